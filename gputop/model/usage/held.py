"""Which parts of a GPU are held, and by which processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu, MigDevice

UnknownReason = Literal["silent", "unlisted", "instance"]
"""
silent    the GPU did not answer, or was asleep and not asked
unlisted  the driver did not list its processes, or not all of them, and none was seen
instance  a MIG device is in use, and it is not known which, or how large it is
"""


class HeldPart(NamedTuple):
    """A part of a GPU with processes that compute on it."""

    share: float
    """The share of the whole GPU."""
    processes: Sequence[Process]


def held_parts(frame: Frame, gpu: Gpu) -> list[HeldPart] | UnknownReason:
    if gpu.state != "answers" or gpu.uuid is None:
        return "silent"
    processes = frame.compute_processes.get(gpu.uuid, [])
    if not processes:
        return [] if gpu.listed == "all" else "unlisted"
    if not gpu.mig_mode:
        return [HeldPart(1.0, processes)]
    parts = list(_devices(gpu, processes))
    return "instance" if None in parts else [part for part in parts if part is not None]


def _devices(gpu: Gpu, processes: Sequence[Process]) -> Iterator[HeldPart | None]:
    """Yield the MIG devices that are held; None for one that is not fully known."""
    here: dict[tuple[int | None, int | None], list[Process]] = {}
    for process in processes:
        here.setdefault((process.gpu_instance, process.compute_instance), []).append(process)
    siblings = Counter(device.gi for device in gpu.mig or ())
    devices: dict[tuple[int | None, int | None], MigDevice]
    devices = {device.instance_ids: device for device in gpu.mig or ()}
    for ids, members in here.items():
        device = devices.get(ids)
        if device is None or not device.memory_total or not gpu.memory_total:
            yield None
        else:
            share = device.memory_total / gpu.memory_total / siblings[device.gi]
            yield HeldPart(min(1.0, share), members)
