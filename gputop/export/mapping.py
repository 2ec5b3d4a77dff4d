"""`gputop map`: what a CUDA_VISIBLE_DEVICES means, as text and as JSON.

value, order    the variables; null: unset
certainty       of the order: exact, expected, predicted, unknown
documented      false: sources are silent on the value, or disagree
devices         the k-th is cuda:k: logical, gpu (nvidia-smi's index), uuid, mig_uuid,
                pci_bus_id, names (by framework); null where certainty is unknown
set             then: index, or MIG UUID, of all that are visible, if that is known
stopped_at      position (from 0), entry and reason where the list ended before its end
hidden          gpu, uuid, mig_uuid, reason
advice          id, severity (error, warning, info), message
layers          only if asked for: tensorflow (name, gpu, uuid, mig_uuid, memory_limit in
                bytes; null with an error and a message), memory (gpu, fraction, bytes, fits)
verified        only if asked for: ok (whether the CUDA driver itself agrees; null: that cannot be
                told), reason
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gputop.model.advice import Advice
from gputop.model.enumeration import Device, normalize_bus_id
from gputop.model.frameworks import FRAMEWORKS, MAIN, device_name
from gputop.model.inventory import Inventory
from gputop.model.layers import Selection, claim, tf_logical_devices, tf_visible_device_list
from gputop.model.mapping import Mapping as Answer
from gputop.model.probe import Verdict
from gputop.model.shell import export_line, uuid_export_line
from gputop.model.text import GIB, MISSING, printable, short_name
from gputop.model.tflog import TfLog, physical

Json = dict[str, Any]


class Layers(msgspec.Struct, frozen=True):
    """What a program selects after CUDA; all None or empty: nothing."""

    tf_visible: str | None = None
    tf_logical: Mapping[int, Sequence[int]] = {}
    """Memory limits in bytes, by CUDA ordinal."""
    fraction: float | None = None

    def selection(self, count: int) -> Selection:
        """TensorFlow's GPUs among `count` visible ones."""
        found = tf_visible_device_list(self.tf_visible or "", count)
        absent = [k for k in self.tf_logical if k not in (found.ordinals or ())]
        if found.ordinals is None or not absent:
            return found
        message = (
            f"logical devices are configured on GPU {absent[0]}, which TensorFlow does not see"
        )
        return Selection(None, "tf_error_range", message)


def mapping_json(
    answer: Answer,
    inventory: Inventory,
    advice: Sequence[Advice],
    layers: Layers,
    framework: str | None = None,
    verdict: Verdict | None = None,
) -> str:
    """The answer as one line of JSON; `layers` and `verified` only if they were asked for."""
    stop = answer.stopped_at
    found: Json = {
        "value": answer.value,
        "order": answer.order,
        "certainty": answer.certainty,
        "documented": answer.documented,
        "devices": _each(answer.visible, lambda k, d: _device(k, d, framework)),
        "set": _each(answer.visible_set, lambda _, d: d.mig_uuid if d.instance else d.index),
        "stopped_at": stop
        and {"position": stop.position, "entry": stop.entry, "reason": stop.reason},
        "hidden": [{**_identity(h.device), "reason": h.reason} for h in answer.hidden],
        "advice": [msgspec.to_builtins(one) for one in advice],
    }
    if layers != Layers():
        found["layers"] = _layers(answer, inventory, layers)
    if verdict is not None:
        found["verified"] = msgspec.to_builtins(verdict)
    return json.dumps(found)


def _each(devices: Sequence[Device] | None, show: Any) -> list[Any] | None:
    return None if devices is None else [show(k, device) for k, device in enumerate(devices)]


def _identity(device: Device) -> Json:
    return {"gpu": device.index, "uuid": device.uuid, "mig_uuid": device.mig_uuid}


def _device(k: int, device: Device, framework: str | None) -> Json:
    ids = [framework] if framework else [one.id for one in FRAMEWORKS]
    names = {id_: device_name(id_, k) for id_ in ids}
    place = {"logical": k, **_identity(device), "pci_bus_id": device.pci_bus_id}
    return {**place, "names": names}


def _layers(answer: Answer, inventory: Inventory, layers: Layers) -> Json:
    """TensorFlow's devices (null with an error) and what the fraction is of each."""
    if answer.visible is None:
        message = "which GPU is which cannot be told"
        return {"tensorflow": None, "error": "unknown", "message": message, "memory": []}
    visible = answer.visible
    selection = layers.selection(len(visible))
    tensorflow = None
    if selection.ordinals is not None:
        tensorflow = [
            {"name": one.name, **_identity(visible[one.ordinal]), "memory_limit": one.memory_limit}
            for one in tf_logical_devices(selection.ordinals, layers.tf_logical)
        ]
    memory = []
    for device in visible if layers.fraction is not None else ():
        usage = inventory.usage_of(device)
        part = claim(layers.fraction or 0, usage.memory_total, usage.memory_free)
        size = {"bytes": part and part.size, "fits": part and part.fits}
        memory.append({"gpu": device.index, "fraction": layers.fraction, **size})
    error = {"error": selection.error, "message": selection.message or None}
    return {"tensorflow": tensorflow, **error, "memory": memory}


def mapping_text(
    answer: Answer,
    inventory: Inventory,
    advice: Sequence[Advice],
    layers: Layers,
    framework: str | None = None,
    verdict: Verdict | None = None,
) -> str:
    """The answer for people, with a line end."""
    lines = [*_head(answer), *([verdict.reason] if verdict else [])]
    lines += _table(answer, inventory, framework)
    if layers != Layers():
        lines += _layer_lines(_layers(answer, inventory, layers))
    lines += [
        e.message for e in answer.entries if e.outcome in ("stopped", "duplicate", "unresolved")
    ]
    reasons: dict[str, list[str]] = {}
    for hidden in answer.hidden:
        reasons.setdefault(hidden.reason, []).append(hidden.device.label)
    lines += [f"hidden: {', '.join(labels)} ({reason})" for reason, labels in reasons.items()]
    lines += advice_lines(advice)
    lines.append(export_line(answer))
    if answer.certainty != "exact":
        same = uuid_export_line(answer)
        lines += [f"{same}  # the same in every order"] if same else []
    return "".join(printable(line) + "\n" for line in lines)


def _head(answer: Answer) -> Iterator[str]:
    value = "is unset" if answer.value is None else f"= {answer.value}"
    order = "is unset" if answer.order is None else f"= {answer.order}"
    yield f"CUDA_VISIBLE_DEVICES {value}; CUDA_DEVICE_ORDER {order}"
    documented = "" if answer.documented else "; not documented"
    yield f"{answer.certainty}{documented}: {answer.because}"


def _table(answer: Answer, inventory: Inventory, framework: str | None) -> Iterator[str]:
    if answer.visible is None:
        names = ", ".join(device.label for device in answer.visible_set or ())
        known = (
            "" if answer.count is None else f"{answer.count} visible{': ' * bool(names)}{names}; "
        )
        yield f"{known}which is cuda:0 cannot be told"
    elif not answer.visible:
        yield "no GPU is visible"
    for k, device in enumerate(answer.visible or ()):
        names = " ".join(
            f"{device_name(id_, k):<14}" for id_ in ((framework,) if framework else MAIN)
        )
        place = normalize_bus_id(device.pci_bus_id)
        bus = MISSING if place is None else f"{place[0]:04x}:{place[1]:02x}:{place[2]:02x}.0"
        free = inventory.usage_of(device).memory_free
        room = "" if free is None else f"  {free / GIB:.1f} GiB free"
        yield f"  {names} -> {device.label}  {short_name(device.name)}  {bus}{room}"


def _layer_lines(found: Json) -> Iterator[str]:
    if found["error"]:
        raises = "" if found["error"] == "unknown" else " raises an error"
        yield f"TensorFlow{raises}: {found['message']}"
    for one in found["tensorflow"] or ():
        limit = "" if one["memory_limit"] is None else f"  {one['memory_limit'] / GIB:.2f} GiB"
        yield f"  TensorFlow {one['name']:<14} -> {_label(one)}{limit}"
    for one in found["memory"]:
        if one["bytes"] is None:
            yield f"  GPU {one['gpu']}: its memory is not known"
            continue
        fits = {None: "", True: ", which is free now", False: ", which is NOT free now"}[
            one["fits"]
        ]
        yield f"  {one['fraction']:g} of GPU {one['gpu']} is {one['bytes'] / GIB:.2f} GiB{fits}"


def _label(one: Json) -> str:
    return str(one["mig_uuid"] or f"GPU {one['gpu']}")


def advice_lines(advice: Sequence[Advice]) -> list[str]:
    """One line for each."""
    return [f"{one.severity}: {one.message}" for one in advice]


def log_json(log: TfLog, devices: Sequence[Device], advice: Sequence[Advice]) -> str:
    """What a TensorFlow log says, as one line of JSON."""
    found = []
    for one in log.devices:
        gpu = physical(one.bus_id, devices)
        place = {"gpu": gpu and gpu.index, "uuid": gpu and gpu.uuid, "pci_bus_id": one.bus_id}
        found.append({"name": one.name, "cuda_ordinal": one.ordinal, **place})
    words = [msgspec.to_builtins(one) for one in advice]
    return json.dumps({"devices": found, "operations": log.operations, "advice": words})


def log_text(log: TfLog, advice: Sequence[Advice]) -> str:
    """What a TensorFlow log says, for people."""
    placed = [f"{device}: {count} operations" for device, count in log.operations.items()]
    lines = [*advice_lines(advice), *placed] or ["no line of a TensorFlow device mapping"]
    return "".join(printable(line) + "\n" for line in lines)
