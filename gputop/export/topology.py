"""`gputop topo`: how the GPUs are connected and where, as text and as JSON (manual/json.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from gputop.export.table import aligned
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import MISSING, short_name
from gputop.model.machine.topology import ITSELF, Topology

T = TypeVar("T")

_FLAGS = {True: "Y", False: "N", None: MISSING}
_PLACES = ("cpus", "usable_cpus", "numa", "gpu_numa")
_HEADS = ("GPU", "NAME<", "BUS-ID<", "NUMA", "CPUS<")
_WORDS = """\
NV# is a bond of # NVLinks, PIX one PCIe bridge, PXB several, PHB a host bridge,
NODE between host bridges of one NUMA node, SYS between NUMA nodes."""


def topology_json(frame: Frame) -> str:
    """Return one line of JSON without its line break."""
    where = frame.topology or Topology()
    gpus = [
        {"gpu": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "pci_bus_id": gpu.pci_bus_id}
        | {field: _at(getattr(where, field), gpu.index) for field in _PLACES}
        for gpu in frame.gpus
    ]
    return json.dumps({"gpus": gpus, "links": frame.links, "p2p": where.p2p or None})


def topology_text(frame: Frame) -> str:
    """Return text for people, with a line break at its end; 80 columns hold eight GPUs."""
    where = frame.topology or Topology()
    flags = [
        [ITSELF if row == column else _FLAGS[flag] for column, flag in enumerate(line)]
        for row, line in enumerate(where.p2p)
    ]
    parts = [
        ("links", _matrix(frame.links), _WORDS),
        ("P2P: can the GPU of the row use the memory of the column's", _matrix(flags), ""),
        ("the CPUs near each GPU", _near(frame, where), "\n".join(_usable(frame, where))),
    ]
    return "\n\n".join("\n".join(filter(None, part)) for part in parts) + "\n"


def _matrix(rows: Sequence[Sequence[str | None]] | None) -> str:
    if not rows:
        return "not known: the driver did not answer"
    heads = ["", *map(str, range(len(rows)))]
    return aligned(heads, [[f"{n}:", *map(_or_missing, row)] for n, row in enumerate(rows)])


def _near(frame: Frame, where: Topology) -> str:
    return aligned(
        _HEADS,
        [
            [str(gpu.index), short_name(gpu.name), gpu.pci_bus_id or MISSING]
            + [_or_missing(_at(column, gpu.index)) for column in (where.numa, where.cpus)]
            for gpu in frame.gpus
        ],
    )


def _usable(frame: Frame, where: Topology) -> Iterator[str]:
    lists = [_at(where.usable_cpus, gpu.index) for gpu in frame.gpus]
    for cpus in dict.fromkeys(lists):
        gpus = [gpu.index for gpu, own in zip(frame.gpus, lists, strict=True) if own == cpus]
        near = [index for index in gpus if _at(where.cpus, index) is not None]
        if cpus is not None:
            yield f"taskset -c {cpus} python train.py   # {_named(gpus)}"
        elif near:
            yield f"none of the CPUs near {_named(near)} is yours to use"
    own = [(gpu.index, _at(where.gpu_numa, gpu.index)) for gpu in frame.gpus]
    yield from (f"the memory of GPU {gpu} is NUMA node {n}" for gpu, n in own if n is not None)


def _named(gpus: Iterable[int]) -> str:
    return "GPU " + ", ".join(map(str, gpus))


def _at(values: Sequence[T], index: int) -> T | None:
    return values[index] if index < len(values) else None


def _or_missing(value: object) -> str:
    return MISSING if value is None else str(value)
