"""What a GPU tells in a PID namespace below the first, as a container has.

The lists may have our own processes alone, their memory may be told as 0, and the utilization
samples may have other numbers than the lists: see `process.namespaces`. What is not known to be
of a process is not told of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from gputop.agent.gpu.lists import GpuProcess, Utilization
from gputop.agent.gpu.reader import GpuSample
from gputop.agent.process.namespaces import NUMBERING

_Listed = tuple[tuple[GpuProcess, ...], frozenset[int], frozenset[int]]
"""The lists that the driver told last, the pids in them, and those before."""


class NestedNamespace:
    """Makes of readings what they mean here; remembers who was listed."""

    def __init__(self) -> None:
        self._listed: dict[int, _Listed] = {}

    def meaning(self, reading: GpuSample) -> GpuSample:
        """The reading, without what it does not tell."""
        values = reading.values
        # The first, quick look at a GPU has no lists yet, and all the same no GPU is free by it.
        listed = values.get("processes_known", "utilization" in values)
        if listed and not NUMBERING.everybodys:
            values = {**values, "processes_known": False, "own_namespace_only": True}
        running = reading.running
        if values.get("memory_used") != 0 and any(process.memory == 0 for process in running):
            running = tuple(
                process if process.memory else process._replace(memory=None) for process in running
            )
        samples, unassigned = self._samples(reading)
        return replace(
            reading,
            values=values,
            running=running,
            held=reading.held if running is reading.running else None,
            utilization=samples,
            unassigned=unassigned,
        )

    def _samples(self, reading: GpuSample) -> tuple[dict[int, Utilization] | None, bool]:
        """Those that are known to be of a listed process, and whether others show work."""
        samples = reading.utilization
        if not samples or NUMBERING.everybodys:
            return samples, False
        if NUMBERING.samples_differ:
            return {}, _work(samples)
        listed = self._pids(reading)
        unlisted = {pid: sample for pid, sample in samples.items() if pid not in listed}
        trusted = NUMBERING.samples_ours or not unlisted
        return samples if trusted else {}, _work(unlisted)

    def _pids(self, reading: GpuSample) -> frozenset[int]:
        """Those in the lists. The last sample of a process may come when it has left them."""
        index, running = reading.values["index"], reading.running
        before = self._listed.get(index)
        if before is None or before[0] is not running:
            pids = frozenset(process.pid for process in running)
            before = self._listed[index] = (running, pids, before[1] if before else frozenset())
        return before[1] | before[2]


def _work(samples: Mapping[int, Utilization]) -> bool:
    return any(sample.is_busy for sample in samples.values())
