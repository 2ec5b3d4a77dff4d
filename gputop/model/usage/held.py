"""Which parts of a GPU are held, and by which processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.grouped import grouped

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
    return _held_devices(gpu, processes)


def _held_devices(gpu: Gpu, processes: Sequence[Process]) -> list[HeldPart] | UnknownReason:
    siblings = Counter(device.gi for device in gpu.mig or ())
    devices = {device.instance_ids: device for device in gpu.mig or ()}
    parts = []
    ids_of = attrgetter("gpu_instance", "compute_instance")
    for ids, members in grouped(processes, ids_of).items():
        device = devices.get(ids)
        if device is None or not device.memory_total or not gpu.memory_total:
            return "instance"
        share = device.memory_total / gpu.memory_total / siblings[device.gi]
        parts.append(HeldPart(min(1.0, share), members))
    return parts
