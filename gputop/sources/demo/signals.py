"""Signals that are played: nothing is sent, and what they are for behaves as real processes do."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from msgspec.structs import replace

from gputop.model.machine.signals import Target, Verdict, ends_processes, signal_name
from gputop.model.machine.text import GIB, size
from gputop.protocol.messages import Reply, Signal
from gputop.sources.demo.jobs import HERTZ, DemoJob


class DemoSignals:
    """The invented processes of a machine that got signals."""

    def __init__(self, jobs: Iterable[DemoJob]) -> None:
        self._jobs = {job.pid: job for job in jobs}
        self.ended: dict[int, float] = {}
        """When they ended, in seconds since the epoch, by PID."""

    def reply(self, request: Signal, now: float) -> Reply:
        """Return the verdicts of a request that comes at `now`."""
        verdicts = tuple(self._verdict(request, target, now) for target in request.targets)
        return Reply(request=request.id, verdicts=verdicts)

    def _verdict(self, request: Signal, target: Target, now: float) -> Verdict:
        job = self._jobs.get(target.process.pid)
        verdict = Verdict(
            request_id=request.id, process=target.process, signal=request.number,
            outcome="gone", words="it had ended before: nothing was sent",
        )  # fmt: skip
        if job is None or job.pid in self.ended:
            return verdict
        start = target.process.start_ticks
        verdict = replace(
            verdict, command=job.command, user=job.user, start_time=start and start / HERTZ
        )
        name = signal_name(request.number)
        if request.number == 0:
            words = f"it is {job.user}'s, and invented: signals are played here"
            ignored = (int(signal.SIGTERM),) if job.is_stubborn else ()
            return replace(
                verdict, outcome="alive", caution="foreign", words=words, ignored=ignored
            )
        if not ends_processes(request.number):
            return replace(verdict, outcome="alive", seconds=0.0, words=f"runs on after {name}")
        if job.is_stubborn and request.number != signal.SIGKILL:
            words = f"it ignores {name}; SIGKILL ends it"
            return replace(verdict, outcome="ignored", seconds=0.0, words=words)
        self.ended[job.pid] = now
        held = size(int(job.memory * GIB) * len(job.gpus))
        where = ",".join(map(str, job.gpus))
        words = f"ended at once after {name}; {held} came back on GPU {where}"
        return replace(verdict, outcome="exited", seconds=0.0, ended=True, words=words)
