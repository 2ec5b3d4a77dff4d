"""`gputop map`: what a CUDA_VISIBLE_DEVICES means, as text and as JSON (manual/json.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from gputop.model.cuda.entries import ENDS
from gputop.model.cuda.enumeration import CERTAINTY_WORDS, CudaDevice
from gputop.model.cuda.export import corrected_line, shell_lines, why_no_line
from gputop.model.cuda.frameworks import (
    FRAMEWORKS,
    MAIN,
    Layers,
    device_name,
    identity,
    layer_lines,
    layers_json,
)
from gputop.model.cuda.inventory import Inventory
from gputop.model.cuda.mapping import Mapping as CudaMapping
from gputop.model.cuda.mapping import bus_id, hidden_by_reason, unnamed
from gputop.model.cuda.probe import ProbeResult
from gputop.model.cuda.process_mapping import ProcessMapping
from gputop.model.cuda.tf_log import TfLog, physical
from gputop.model.machine.finding import Finding, has_error
from gputop.model.machine.text import GIB, counted, printable, short_name

MappingJson = dict[str, Any]


class MappingReport(NamedTuple):
    """A mapping with everything to print about it."""

    mapping: CudaMapping
    advice: Sequence[Finding]
    process: ProcessMapping | None = None
    """The process that has these variables; None: they were given."""
    unknown: str | None = None
    """Why nothing is claimed of a line; None: the mapping is known."""
    asks_for_hidden: bool = False
    """Whether the program asks for GPUs that it does not see."""
    probe_result: ProbeResult | None = None
    """The CUDA driver's own answer, if it was asked."""


def mapping_json(
    report: MappingReport, inventory: Inventory, layers: Layers, framework: str | None = None
) -> str:
    """Return the answer as one line of JSON."""
    mapping, end = report.mapping, report.mapping.stopped_at
    result: MappingJson = {
        "value": mapping.value,
        "order": mapping.order,
        "certainty": mapping.certainty,
        "documented": mapping.documented,
        "devices": _each(mapping.visible, lambda k, d: _device(k, d, framework)),
        "set": _each(mapping.visible_set, lambda _, d: d.mig_uuid if d.instance else d.index),
        "stopped_at": end and {"position": end.position, "entry": end.text, "reason": end.reason},
        "hidden": [{**identity(h.device), "reason": h.reason} for h in mapping.hidden],
        "advice": msgspec.to_builtins(report.advice),
    }
    if report.unknown is not None:
        result["unknown"] = printable(report.unknown, 600)
    if layers != Layers():
        result["layers"] = layers_json(mapping, inventory, layers)
    if report.process is not None:
        result["process"] = _process(report.process)
    if report.probe_result is not None:
        result["verified"] = msgspec.to_builtins(report.probe_result)
    return json.dumps(result)


def _each(devices: Sequence[CudaDevice] | None, show: Any) -> list[Any] | None:
    return None if devices is None else [show(k, device) for k, device in enumerate(devices)]


def _device(k: int, device: CudaDevice, framework: str | None) -> MappingJson:
    ids = [framework] if framework else [framework.id for framework in FRAMEWORKS]
    names = {id_: device_name(id_, k) for id_ in ids}
    return {"logical": k, **identity(device), "pci_bus_id": device.pci_bus_id, "names": names}


def _process(process: ProcessMapping) -> MappingJson:
    evidence, inside = process.evidence, process.inside
    names = [
        {"gpu": gpu, "gi": gi, "ci": ci, "name": name} for (gpu, gi, ci), name in evidence.names
    ]
    gpus = None if inside.devices is None else [device.index for device in inside.devices]
    return {
        "variables": process.variables,
        "evidence": evidence.kind,
        "because": evidence.because or process.unread,
        "names": names,
        "reach": {"gpus": gpus, "because": inside.reason},
        "mps": process.mps,
    }


def mapping_text(
    report: MappingReport, inventory: Inventory, layers: Layers, framework: str | None = None
) -> str:
    """Return the answer for people, with a line break at its end."""
    mapping, process, probe_result = report.mapping, report.process, report.probe_result
    said = [f"{advised.level}: {advised.text}" for advised in report.advice]
    if report.unknown is not None:
        return "".join(f"{printable(line, 600)}\n" for line in (report.unknown, *said))
    lines = [*(_head(mapping) if process is None else process.reasoning())]
    lines += [probe_result.reason] if probe_result else []
    lines += _table(mapping, inventory, framework)
    lines += layer_lines(mapping, inventory, layers)
    lines += [entry.message for entry in mapping.entries if entry.outcome in ENDS]
    for reason, devices in hidden_by_reason(mapping).items():
        lines.append(f"hidden: {', '.join(device.label for device in devices)} ({reason})")
    lines += said
    if has_error(report.advice):  # print no line that would copy a mistake
        line = corrected_line(mapping) if process is None else None
        lines += [f"{line}  # without the mistake"] if line else []
    else:
        lines += shell_lines(mapping) if process is None else process.shell_lines
        why_not = why_no_line(mapping) if process is None else None
        lines += [why_not] if why_not else []
    return "".join(printable(line) + "\n" for line in lines)


def _head(mapping: CudaMapping) -> Iterator[str]:
    value = "is unset" if mapping.value is None else f"= {mapping.value}"
    order = "is unset" if mapping.order is None else f"= {mapping.order}"
    yield f"CUDA_VISIBLE_DEVICES {value}; CUDA_DEVICE_ORDER {order}"
    documented = "" if mapping.documented else "; not documented"
    yield f"{CERTAINTY_WORDS[mapping.certainty]}{documented}: {mapping.because}"


def _table(mapping: CudaMapping, inventory: Inventory, framework: str | None) -> Iterator[str]:
    if not mapping.visible:
        yield unnamed(mapping)
    for k, device in enumerate(mapping.visible or ()):
        names = " ".join(
            f"{device_name(id_, k):<14}" for id_ in ((framework,) if framework else MAIN)
        )
        free = inventory.usage_of(device).memory_free
        room = "" if free is None else f"  {free / GIB:.1f} GiB unused"
        yield f"  {names} -> {device.label}  {short_name(device.name)}  {bus_id(device)}{room}"


def log_json(log: TfLog, devices: Sequence[CudaDevice], advice: Sequence[Finding]) -> str:
    """Return what a TensorFlow log says, as one line of JSON."""
    entries = []
    for entry in log.devices:
        gpu = physical(entry.bus_id, devices)
        ids = {"gpu": gpu and gpu.index, "uuid": gpu and gpu.uuid, "pci_bus_id": entry.bus_id}
        entries.append({"name": entry.name, "cuda_ordinal": entry.ordinal, **ids})
    said = msgspec.to_builtins(advice)
    shown = {"devices": entries, "xla": log.xla_gpus, "operations": log.operations, "advice": said}
    return json.dumps(shown)


def log_text(log: TfLog, devices: Sequence[CudaDevice], advice: Sequence[Finding]) -> str:
    """Return what a TensorFlow log says, for people."""
    lines = []
    for entry in log.devices:
        gpu = physical(entry.bus_id, devices)
        label = "no GPU of this machine" if gpu is None else gpu.label
        room = "" if entry.memory_mb is None else f"  {entry.memory_mb} MB"
        card = f"{label}  {short_name(entry.model)}  {entry.bus_id}{room}"
        lines.append(f"  {entry.name:<14} device: {entry.ordinal}  -> {card}")
    for device, count in log.operations.items():
        lines.append(f"{device}: {counted(count, 'operation')}")
    lines += [f"{item.level}: {item.text}" for item in advice]
    return "".join(
        printable(line) + "\n" for line in lines or ["no line of a TensorFlow device mapping"]
    )
