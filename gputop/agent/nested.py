"""Interprets what the driver reports in a nested PID namespace, as in a container.

The lists may have only our own processes, with a memory of 0, and the utilization samples may have
other PIDs than the lists: see `process.namespaces`. A value is left out of a process unless it is
known to belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from gputop.agent.gpu.lists import GpuProcess, Utilization
from gputop.agent.gpu.reader import GpuSample
from gputop.agent.process.namespaces import NUMBERING

_Listed = tuple[tuple[GpuProcess, ...], frozenset[int], frozenset[int]]
"""The processes that the driver listed last, their PIDs, and the PIDs of the lists before."""


class NestedNamespace:
    """Interprets readings; remembers which PIDs were listed."""

    def __init__(self) -> None:
        self._listed: dict[int, _Listed] = {}

    def meaning(self, reading: GpuSample) -> GpuSample:
        """Return a reading without the values that mean nothing here."""
        values = reading.values
        # The first, quick reading has no lists yet, and must not make a GPU look free.
        listed = values.get("listed", "all" if "utilization" in values else "unknown")
        if listed == "all" and not NUMBERING.is_initial_namespace:
            values = {**values, "listed": "ours"}
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
        """Return the samples known to belong to listed processes, and whether others show work."""
        samples = reading.utilization
        if not samples or NUMBERING.is_initial_namespace:
            return samples, False
        if NUMBERING.samples_differ:
            return {}, _work(samples)
        listed = self._pids(reading)
        unlisted = {pid: sample for pid, sample in samples.items() if pid not in listed}
        trusted = NUMBERING.samples_ours or not unlisted
        return samples if trusted else {}, _work(unlisted)

    def _pids(self, reading: GpuSample) -> frozenset[int]:
        """Return the PIDs in the lists. A process's last sample may come after it has left them."""
        index, running = reading.values["index"], reading.running
        before = self._listed.get(index)
        if before is None or before[0] is not running:
            pids = frozenset(process.pid for process in running)
            before = self._listed[index] = (running, pids, before[1] if before else frozenset())
        return before[1] | before[2]


def _work(samples: Mapping[int, Utilization]) -> bool:
    return any(sample.is_busy for sample in samples.values())
