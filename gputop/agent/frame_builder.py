"""What a frame says of one GPU and of the processes on it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from gputop.agent.gpu.lists import GpuProcess, Utilization
from gputop.agent.gpu.reader import GpuSample
from gputop.agent.idle import IdleTimes
from gputop.agent.process.enrichment import Enrichment
from gputop.agent.process.processes import ProcessFacts
from gputop.agent.process.stat import latest_start
from gputop.model.health.unaccounted import is_notable, unaccounted
from gputop.model.machine.frame import Process
from gputop.model.machine.gpu import Gpu, Reservation
from gputop.model.machine.sections import Health, Xid


class FrameBuilder(msgspec.Struct, frozen=True):
    """One GPU in one cycle."""

    index: int
    reading: GpuSample | None
    answered: float | None
    """When the reading came (monotonic)."""
    facts: dict[int, ProcessFacts]
    enrichment: Enrichment
    idle: IdleTimes | None
    """None where there is no time before this."""
    nested: bool
    """As `Host.nested`."""
    xids: tuple[Xid, ...] | None
    """As `Health.xids`."""
    reservations: dict[str, Reservation]
    """By the UUID of the GPU."""

    def gpu(self, stale_for: float | None) -> Gpu:
        """The last values, with their age."""
        reading = self.reading
        if reading is None:
            return Gpu(index=self.index, stale_for=stale_for)
        minor, idle_for = reading.values.get("minor"), None
        holders = self.enrichment.holders
        if self.idle is not None and self.answered is not None:
            used = reading.values.get("utilization")
            idle_for = self.idle.of_gpu(self.index, used, self.answered)
        return Gpu(
            **{**reading.values, "health": self._health(reading.values.get("health"))},
            memory_unaccounted=unaccounted_of(reading),
            idle_for=idle_for,
            holders=() if minor is None else holders.by_minor.get(minor, ()),
            holders_known=holders.complete if minor in holders.by_minor else None,
            reservation=self.reservations.get(reading.values.get("uuid", "")),
            stale_for=stale_for,
            error=reading.error,
        )

    def _health(self, health: Health | None) -> Health | None:
        """With the XIDs, which a lost GPU has, too."""
        return health if self.xids is None else replace(health or Health(), xids=self.xids)

    def processes(self) -> list[Process]:
        """Those of the driver's lists."""
        if self.reading is None:
            return []
        values, samples = self.reading.values, self.reading.utilization
        uuid, used = values.get("uuid"), values.get("utilization")
        rest = latest_start(self.reading.listed), self.reading.unassigned
        return [self._process(run, uuid, samples, used, *rest) for run in self.reading.running]

    def _process(
        self,
        run: GpuProcess,
        uuid: str | None,
        samples: dict[int, Utilization] | None,
        used: float | None,
        newest: float,
        unassigned: bool,
    ) -> Process:
        """Written out: on a busy machine this is a good part of a tick."""
        fact, sample = self.facts.get(run.pid), samples.get(run.pid) if samples else None
        elsewhere = fact is None and self.nested
        if fact is not None and fact.start_time > newest:
            fact = None  # the one that the driver named has ended, and its number is another's
        idle_for = None
        if self.idle is not None and self.answered is not None:
            key = (self.index, run.pid, None if fact is None else fact.start_time)
            measured = None if unassigned and not (sample and sample.is_busy) else samples
            idle_for = self.idle.of_process(key, measured, used, self.answered)
        return Process(
            pid=run.pid,
            gpu_uuid=uuid,
            gpu_instance=run.gpu_instance,
            compute_instance=run.compute_instance,
            type=run.type,
            gpu_memory=run.memory,
            sm_utilization=sample.sm if sample else None,
            memory_utilization=sample.memory if sample else None,
            encoder_utilization=sample.encoder if sample else None,
            decoder_utilization=sample.decoder if sample else None,
            idle_for=idle_for,
            elsewhere=elsewhere,
            **(self._facts_of(run, fact) if fact else {}),
        )

    def _facts_of(self, run: GpuProcess, fact: ProcessFacts) -> dict[str, Any]:
        key = (run.pid, fact.start_time)
        fields = asdict(fact)
        fields["origin"] = self.enrichment.origins.get(key)
        if run.type != "G":
            fields["cuda_context"] = self.enrichment.contexts.get(key)
        return fields


def is_dubious(reading: GpuSample) -> bool:
    """Whether others than those listed may have the GPU open."""
    unlisted = reading.values.get("processes_known") is False
    ours = reading.values.get("own_namespace_only", False)
    return (unlisted and not ours) or is_notable(unaccounted_of(reading))


def unaccounted_of(reading: GpuSample) -> int | None:
    """Bytes of the GPU's memory that no listed process holds; None where the system manages it."""
    values = reading.values
    if values.get("numa_node") is not None:
        return None
    listed = values.get("own_namespace_only") or values.get("processes_known")
    return unaccounted(values.get("memory_used"), (reading.held,), listed)
