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
layers          only if asked for: tensorflow, jax, local_rank, device (each a list of name, gpu,
                uuid, mig_uuid, memory_limit in bytes; null if not asked for, or with an error and
                a message), memory (gpu, uuid, mig_uuid, fraction, bytes, fits; fraction null: of
                TensorFlow's logical devices together)
process         only of a process (`--pid`): evidence (confirmed, contradicted, ambiguous, inferred,
                unused, unread, unknown), because, names (gpu, gi, ci, name: what it calls those
                on which the driver sees it; a `?` at the end: likely)
verified        only if asked for: ok (whether the CUDA driver itself agrees; null: that cannot be
                told), reason
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gputop.model.advice import Advice
from gputop.model.enumeration import Device, normalize_bus_id
from gputop.model.frameworks import FRAMEWORKS, MAIN, device_name
from gputop.model.inventory import Inventory
from gputop.model.mapping import Mapping as Answer
from gputop.model.probe import Verdict
from gputop.model.process_mapping import ProcessMapping
from gputop.model.selections import Layers, identity, layer_lines, layers_json
from gputop.model.shell import export_line, uuid_export_line
from gputop.model.text import GIB, MISSING, printable, short_name
from gputop.model.tflog import TfLog, physical

Json = dict[str, Any]


def mapping_json(
    answer: Answer,
    inventory: Inventory,
    advice: Sequence[Advice],
    layers: Layers,
    framework: str | None = None,
    verdict: Verdict | None = None,
    process: ProcessMapping | None = None,
) -> str:
    """The answer as one line of JSON."""
    found: Json = {
        "value": answer.value,
        "order": answer.order,
        "certainty": answer.certainty,
        "documented": answer.documented,
        "devices": _each(answer.visible, lambda k, d: _device(k, d, framework)),
        "set": _each(answer.visible_set, lambda _, d: d.mig_uuid if d.instance else d.index),
        "stopped_at": msgspec.to_builtins(answer.stopped_at),
        "hidden": [{**identity(h.device), "reason": h.reason} for h in answer.hidden],
        "advice": [msgspec.to_builtins(one) for one in advice],
    }
    if layers != Layers():
        found["layers"] = layers_json(answer, inventory, layers)
    if process is not None:
        found["process"] = _process(process)
    if verdict is not None:
        found["verified"] = msgspec.to_builtins(verdict)
    return json.dumps(found)


def _each(devices: Sequence[Device] | None, show: Any) -> list[Any] | None:
    return None if devices is None else [show(k, device) for k, device in enumerate(devices)]


def _device(k: int, device: Device, framework: str | None) -> Json:
    ids = [framework] if framework else [one.id for one in FRAMEWORKS]
    names = {id_: device_name(id_, k) for id_ in ids}
    place = {"logical": k, **identity(device), "pci_bus_id": device.pci_bus_id}
    return {**place, "names": names}


def _process(process: ProcessMapping) -> Json:
    found = process.evidence
    names = [{"gpu": gpu, "gi": gi, "ci": ci, "name": name} for (gpu, gi, ci), name in found.names]
    return {"evidence": found.kind, "because": found.because, "names": names}


def mapping_text(
    answer: Answer,
    inventory: Inventory,
    advice: Sequence[Advice],
    layers: Layers,
    framework: str | None = None,
    verdict: Verdict | None = None,
    process: ProcessMapping | None = None,
) -> str:
    """The answer for people, with a line end."""
    lines = [*(_head(answer) if process is None else process.reasoning())]
    lines += [verdict.reason] if verdict else []
    lines += _table(answer, inventory, framework)
    lines += layer_lines(answer, inventory, layers)
    lines += [
        e.message for e in answer.entries if e.outcome in ("stopped", "duplicate", "unresolved")
    ]
    reasons: dict[str, list[str]] = {}
    for hidden in answer.hidden:
        reasons.setdefault(hidden.reason, []).append(hidden.device.label)
    lines += [f"hidden: {', '.join(labels)} ({reason})" for reason, labels in reasons.items()]
    lines += [f"{one.severity}: {one.message}" for one in advice]
    if all(one.severity != "error" for one in advice):  # nobody should copy a mistake
        lines.append(export_line(answer))
        same = None if answer.certainty == "exact" else uuid_export_line(answer)
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


def log_json(log: TfLog, devices: Sequence[Device], advice: Sequence[Advice]) -> str:
    """What a TensorFlow log says, as one line of JSON."""
    found = []
    for one in log.devices:
        gpu = physical(one.bus_id, devices)
        place = {"gpu": gpu and gpu.index, "uuid": gpu and gpu.uuid, "pci_bus_id": one.bus_id}
        found.append({"name": one.name, "cuda_ordinal": one.ordinal, **place})
    words = [msgspec.to_builtins(one) for one in advice]
    return json.dumps({"devices": found, "operations": log.operations, "advice": words})


def log_text(log: TfLog, devices: Sequence[Device], advice: Sequence[Advice]) -> str:
    """What a TensorFlow log says, for people."""
    lines = []
    for one in log.devices:
        gpu = physical(one.bus_id, devices)
        label = "no GPU of this machine" if gpu is None else gpu.label
        room = "" if one.memory_mb is None else f"  {one.memory_mb} MB"
        place = f"{label}  {short_name(one.model)}  {one.bus_id}{room}"
        lines.append(f"  {one.name:<14} device: {one.ordinal}  -> {place}")
    for device, count in log.operations.items():
        lines.append(f"{device}: {count} operation{'s' * (count > 1)}")
    lines += [f"{one.severity}: {one.message}" for one in advice]
    return "".join(
        printable(line) + "\n" for line in lines or ["no line of a TensorFlow device mapping"]
    )
