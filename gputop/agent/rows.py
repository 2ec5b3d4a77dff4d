"""What a frame says of one GPU and of the processes on it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from gputop.agent.gpu.device import Reading
from gputop.agent.gpu.lists import Running, Utilization
from gputop.agent.idle import IdleTimes
from gputop.agent.process.processes import ProcessFacts
from gputop.agent.process.survey import Survey
from gputop.model.frame import Process
from gputop.model.gpu import Gpu
from gputop.model.sections import Health, Xid
from gputop.model.unexplained import unexplained


class Look(msgspec.Struct, frozen=True):
    """One GPU in one cycle."""

    index: int
    reading: Reading | None
    answered: float | None
    """When the reading came (monotonic)."""
    facts: dict[int, ProcessFacts]
    survey: Survey
    idle: IdleTimes | None
    """None where there is no time before this."""
    nested: bool
    """As `Host.nested`."""
    xids: tuple[Xid, ...] | None
    """As `Health.xids`."""

    def gpu(self, stale_for: float | None) -> Gpu:
        """The last values, with their age."""
        reading = self.reading
        if reading is None:
            return Gpu(index=self.index, stale_for=stale_for)
        minor, idle_for = reading.values.get("minor"), None
        if self.idle is not None and self.answered is not None:
            used = reading.values.get("utilization")
            idle_for = self.idle.of_gpu(self.index, used, self.answered)
        return Gpu(
            **{**reading.values, "health": self._health(reading.values.get("health"))},
            memory_unexplained=unexplained_of(reading),
            idle_for=idle_for,
            openers=() if minor is None else self.survey.openers.get(minor, ()),
            stale_for=stale_for,
            error=reading.error,
        )

    def _health(self, told: Health | None) -> Health | None:
        """With the XIDs, which a lost GPU has, too."""
        return told if self.xids is None else replace(told or Health(), xids=self.xids)

    def processes(self) -> list[Process]:
        """Those of the driver's lists."""
        if self.reading is None:
            return []
        values, samples = self.reading.values, self.reading.utilization
        uuid, used = values.get("uuid"), values.get("utilization")
        return [self._process(run, uuid, samples, used) for run in self.reading.running]

    def _process(
        self,
        run: Running,
        uuid: str | None,
        samples: dict[int, Utilization] | None,
        used: float | None,
    ) -> Process:
        """Written out: on a busy machine this is a good part of a tick."""
        fact, sample = self.facts.get(run.pid), samples.get(run.pid) if samples else None
        idle_for = None
        if self.idle is not None and self.answered is not None:
            key = (self.index, run.pid, None if fact is None else fact.start_time)
            idle_for = self.idle.of_process(key, samples, used, self.answered)
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
            elsewhere=fact is None and self.nested,
            **(self._known(run, fact) if fact else {}),
        )

    def _known(self, run: Running, fact: ProcessFacts) -> dict[str, Any]:
        key = (run.pid, fact.start_time)
        known = asdict(fact)
        known["place"] = self.survey.places.get(key)
        if run.type != "G":
            known["surroundings"] = self.survey.surroundings.get(key)
        return known


def unexplained_of(reading: Reading) -> int | None:
    """Bytes of the GPU's memory that no listed process holds."""
    used, known = reading.values.get("memory_used"), reading.values.get("processes_known")
    return unexplained(used, (reading.held,), known)
