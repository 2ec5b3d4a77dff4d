"""A frame in a few words: which GPUs are free, and who is on which."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.frame import Frame, Process
from gputop.model.gpu import Gpu
from gputop.model.text import MIB

_FREE_MEMORY = 1024 * MIB
"""A GPU with less in use is free if nobody computes on it; the driver itself takes up to 600 MiB
where it counts what it reserves."""


class _OnGpu:
    """The compute processes of one frame by GPU. They are asked for many times a frame, so those
    of the last frame are kept."""

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._found: dict[str | None, list[Process]] = {}
        self._users: dict[str | None, list[str]] = {}

    def __call__(self, frame: Frame, gpu: Gpu) -> list[Process]:
        if self._frame is not frame:
            self._frame, self._found, self._users = frame, {}, {}
            for one in frame.processes:
                if one.type != "G":
                    self._found.setdefault(one.gpu_uuid, []).append(one)
        return self._found.get(gpu.uuid, [])

    def users(self, frame: Frame, gpu: Gpu) -> list[str]:
        """Who has them."""
        found = self(frame, gpu)
        if gpu.uuid not in self._users:
            self._users[gpu.uuid] = _by_memory(found)
        return self._users[gpu.uuid]


_on_gpu = _OnGpu()


def users(frame: Frame, gpu: Gpu | None = None) -> list[str]:
    """Who has compute processes, on one GPU or on any, those with most memory first."""
    return _by_memory(frame.processes) if gpu is None else _on_gpu.users(frame, gpu)


def _by_memory(processes: Iterable[Process]) -> list[str]:
    held: dict[str, int] = {}
    for process in processes:
        if process.user is not None and process.type != "G":
            held[process.user] = held.get(process.user, 0) + (process.gpu_memory or 0)
    return sorted(held, key=lambda user: (-held[user], user))


def strangers(frame: Frame, gpu: Gpu) -> int:
    """How many compute processes of a GPU nothing is known of, as in a container."""
    return sum(process.user is None for process in _on_gpu(frame, gpu))


def is_free(frame: Frame, gpu: Gpu) -> bool:
    """Nobody computes on it, and its memory is there to be used; a GPU in doubt is not free."""
    if gpu.error or gpu.stale_for is not None or gpu.memory_used is None:
        return False
    if gpu.processes_known is False or gpu.mig_mode:
        return False  # in MIG mode a job gets an instance, not the GPU
    return not _on_gpu(frame, gpu) and has_room(gpu.memory_used)


def has_room(memory_used: int | None) -> bool:
    """Whether so much in use is no more than what the driver itself takes."""
    return memory_used is not None and memory_used < _FREE_MEMORY


def by_instance(frame: Frame) -> dict[tuple[str | None, int, int], list[Process]]:
    """The processes on MIG devices by UUID of the GPU, GPU instance and compute instance."""
    found: dict[tuple[str | None, int, int], list[Process]] = {}
    for one in frame.processes:
        if one.gpu_instance is not None and one.compute_instance is not None:
            place = (one.gpu_uuid, one.gpu_instance, one.compute_instance)
            found.setdefault(place, []).append(one)
    return found


def free_gpus(frame: Frame) -> list[Gpu]:
    """The GPUs that a new job could have."""
    return [gpu for gpu in frame.gpus if is_free(frame, gpu)]


def only_display(frame: Frame, gpu: Gpu) -> str | None:
    """`display` for a GPU on which there are graphics processes and no others."""
    drawn = any(process.gpu_uuid == gpu.uuid for process in frame.processes)
    return "display" if drawn else None
