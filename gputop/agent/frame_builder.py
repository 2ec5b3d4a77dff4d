"""Builds the parts of a frame: a GPU, and the processes on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gputop.agent.gpu.lists import GpuProcess
from gputop.agent.gpu.reader import GpuSample
from gputop.agent.idle import IdleTimes
from gputop.agent.process.enrichment import Enrichment
from gputop.agent.process.stat import latest_start
from gputop.model.health.unaccounted import is_notable, unaccounted
from gputop.model.machine.frame import Process
from gputop.model.machine.gpu import (
    Gpu,
    GpuState,
    MigDevice,
    Reservation,
    SlurmJob,
    overdue_state,
)
from gputop.model.machine.sections import Health, Xid


class GpuReading(NamedTuple):
    """What is known of a GPU at the end of a cycle."""

    sample: GpuSample
    answered: float | None
    """When it came, in monotonic seconds; None before the first answer."""
    stale_for: float | None
    """The age of that answer in seconds if the GPU was late in this cycle; otherwise None."""
    xids: tuple[Xid, ...] | None
    """See `Health.xids`."""


class FrameBuilder(msgspec.Struct, frozen=True):
    """Builds the GPUs and processes of one cycle."""

    by_pid: dict[int, Process]
    """What /proc says of processes."""
    silent: dict[int, Process]
    """The same of those that have never answered."""
    enrichment: Enrichment
    idle: IdleTimes | None
    """None for a single frame, which has no history."""
    nested: bool
    """See `Host.nested`."""
    reservations: dict[str, Reservation]
    """Keyed by the UUID of the GPU or MIG device."""
    jobs: Mapping[int, SlurmJob]
    """By the N of /dev/nvidiaN."""

    def gpu(self, reading: GpuReading) -> Gpu:
        sample, holders = reading.sample, self.enrichment.holders
        values, idle_for = sample.values, None
        minor = values.get("minor")
        if self.idle is not None and reading.answered is not None:
            used = values.get("utilization")
            idle_for = self.idle.of_gpu(values["index"], used, reading.answered)
        health = values.get("health")
        if reading.xids is not None:  # a lost GPU has them, too
            health = replace(health or Health(), xids=reading.xids)
        return Gpu(
            **{
                **values,
                "health": health,
                "state": _state(reading),
                "mig": self._mig(values.get("mig")),
            },
            memory_unaccounted=unaccounted_of(sample),
            idle_for=idle_for,
            holders=() if minor is None else holders.by_minor.get(minor, ()),
            holders_known=holders.complete if minor in holders.by_minor else None,
            reservation=self.reservations.get(values.get("uuid", "")),
            slurm_job=None if values.get("mig_mode") else self.jobs.get(values.get("minor", -1)),
            stale_for=reading.stale_for,
        )

    def _mig(self, devices: tuple[MigDevice, ...] | None) -> tuple[MigDevice, ...] | None:
        if not devices or not self.reservations:
            return devices
        reserved = self.reservations.get
        return tuple(replace(device, reservation=reserved(device.uuid or "")) for device in devices)

    def processes(self, reading: GpuReading) -> list[Process]:
        newest = latest_start(reading.sample.listed)
        return [self._process(run, reading, newest) for run in reading.sample.running]

    def _process(self, run: GpuProcess, reading: GpuReading, newest: float) -> Process:
        """Return what /proc says of a process with what the driver says. Written out: on a busy
        machine this is much of a tick."""
        of_gpu, answered = reading.sample, reading.answered
        values, samples = of_gpu.values, of_gpu.utilization
        process, sample = self.by_pid.get(run.pid), samples.get(run.pid) if samples else None
        elsewhere = process is None and self.nested
        if process is not None and (process.start_ticks or 0) > newest:
            process = None  # the process that the driver listed has ended, and another has its PID
        process = process or self.silent.get(run.pid) or Process(run.pid)
        id_ = process.id
        idle_for = None
        if self.idle is not None and answered is not None:
            key = values["index"], id_
            measured = None if of_gpu.unassigned and not (sample and sample.is_busy) else samples
            idle_for = self.idle.of_process(key, measured, values.get("utilization"), answered)
        return replace(
            process,
            gpu_uuid=values.get("uuid"),
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
            origin=self.enrichment.origins.get(id_),
            cuda_context=None if run.type == "G" else self.enrichment.contexts.get(id_),
        )


def _state(reading: GpuReading) -> GpuState:
    state: GpuState = reading.sample.values.get("state", "answers")
    if state == "lost" or reading.stale_for is None:
        return state
    return overdue_state(reading.stale_for)


def is_dubious(sample: GpuSample) -> bool:
    """Return whether processes that are not listed may have the GPU open."""
    return sample.values.get("listed") == "none" or is_notable(unaccounted_of(sample))


def unaccounted_of(sample: GpuSample) -> int | None:
    """Return the GPU's bytes that no listed process holds; None if the system manages them."""
    values = sample.values
    if values.get("numa_node") is not None:
        return None
    is_listed = values.get("listed") in ("all", "ours")
    return unaccounted(values.get("memory_used"), (sample.held,), is_listed)
