"""An invented machine, for trying gputop and for its screenshots.

Everything is a function of the time, so that a picture of it can be made again.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator

from msgspec.structs import replace

from gputop.errors import DriverError
from gputop.model.machine.detail import ProcessStack
from gputop.model.machine.environment import CudaContext
from gputop.model.machine.frame import Frame, Host, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.probed import Probed
from gputop.model.machine.text import GIB
from gputop.protocol.messages import (
    AnsweredRequest,
    Checks,
    Context,
    Detail,
    Probe,
    Reply,
    Request,
    SetInterval,
    Signal,
    Stack,
    clamp_interval,
)
from gputop.sources.agent_process import SILENCE
from gputop.sources.agentless import AgentlessSource
from gputop.sources.demo.fleet import check_reach, demo_machine, is_silent
from gputop.sources.demo.gpus import demo_gpu, links, topology, wave
from gputop.sources.demo.jobs import HERTZ, DemoJob, DemoSignals, demo_detail, environ_of, job_of
from gputop.sources.source import Past

_NAMESPACE = uuid.UUID("8a5f61b2-5f3d-4f0e-9d33-6d0c3b1f7a55")
_REMEMBERED = 900.0
"""Seconds of frames that are remembered."""


class DemoPast:
    """Frames of the last quarter of an hour, which are made again when wanted."""

    def __init__(self, make: Callable[[float], Frame]) -> None:
        self._make = make
        self.times: list[float] = []

    def add(self, when: float) -> None:
        self.times = [*self.times[bisect_left(self.times, when - _REMEMBERED) :], when]

    def at(self, when: float) -> Frame | None:
        index = bisect_right(self.times, when)
        return self._make(self.times[index - 1]) if index else None

    def frames(self, since: float, until: float) -> Iterator[Frame]:
        times = self.times
        yield from map(self._make, times[bisect_left(times, since) : bisect_right(times, until)])


class DemoSource(AgentlessSource):
    """Frames of the invented machine, at the wanted interval."""

    def __init__(
        self, interval: float | None = 1.0, host: str | None = None, waits: bool = False
    ) -> None:
        """`host`: a machine of the fleet that `demo.fleet` invents; with `waits` a silent machine
        is waited for without end."""
        super().__init__(host or "demo")
        self._name = host
        self._interval = interval
        self._timeout = None if waits else SILENCE
        self._started = time.time()
        self._past = DemoPast(self._frame)
        self._signals = DemoSignals(demo_machine(host).jobs)

    @property
    def past(self) -> Past:
        return self._past

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`; with `interval` None it yields one frame only."""
        events, goes_on = self._events, True
        check_reach(self.host)
        if is_silent(self.host):
            if (yield from self._pause(events, self._timeout)):
                raise DriverError(f"no answer for {self._timeout:g} s")
            return
        while goes_on:
            frame = self._frame(time.time())
            self._past.add(frame.time)
            yield frame
            if self._interval is None:
                return
            goes_on = yield from self._pause(events, self._interval)

    def _frame(self, when: float) -> Frame:
        ended = [pid for pid, end in self._signals.ended.items() if end <= when]
        return demo_frame(when, when - self._started, self._interval, self._name, ended)

    def request(self, request: Request) -> None:
        """See `AgentlessSource`; a silent machine does not answer."""
        if isinstance(request, SetInterval):
            self._interval = clamp_interval(request.seconds)
        if not is_silent(self.host):
            super().request(request)

    def _answer(self, request: AnsweredRequest) -> Reply:
        if isinstance(request, Probe):
            problem = "the demo has no CUDA driver"
            probed = Probed(None, problem, request.value, request.order)
            return Reply(request=request.id, probed=(probed,))
        if isinstance(request, Detail):
            return Reply(request=request.id, detail=demo_detail(request))
        if isinstance(request, Stack):
            problem = "the demo has no processes to look into"
            stack = ProcessStack(request.process, problem=problem)
            return Reply(request=request.id, stack=stack)
        if isinstance(request, Context):
            job = job_of(request.pid)
            return Reply(request=request.id, context=job and CudaContext(environ_of(job)))
        if isinstance(request, Signal):
            return self._signals.reply(request, time.time())
        if isinstance(request, Checks):
            return Reply(request=request.id)
        return Reply(request=request.id, error="the demo does not know this")


def demo_frame(
    now: float, running: float = 0.0, interval: float | None = None, host: str | None = None,
    ended: Container[int] = (),
) -> Frame:  # fmt: skip
    """Return the machine at `now` (seconds since the epoch), `running` seconds after the start,
    without the processes that have `ended`, by PID."""
    machine = demo_machine(host)
    jobs = [job for job in machine.jobs if job.pid not in ended]
    processes = tuple(
        _process(job, host, index, now, running) for job in jobs for index in job.gpus
    )
    return Frame(
        host=Host(
            name=host or "demo",
            requested_name=host,
            boot_id=f"demo {host}" if host else "demo",
            cpu=0.11 + 0.03 * wave(now, 13, 0.4),
            cpu_count=192,
            memory_total=2015 * GIB,
            memory_used=int((412 + 9 * wave(now, 31, 0.1)) * GIB),
        ),
        time=round(now, 3),
        interval=interval,
        driver_version="580.159.03",
        cuda_version="13.0",
        gpus=tuple(_gpu(host, index, now, running, processes) for index in range(machine.gpus)),
        processes=processes,
        links=links(machine.gpus),
        topology=topology(machine.gpus),
        demo=True,
    )


def _gpu(
    host: str | None, index: int, now: float, running: float, processes: tuple[Process, ...]
) -> Gpu:
    """Return a GPU, with its fault on that machine if it has one."""
    machine, identity = demo_machine(host), _uuid(host, index)
    here = [process for process in processes if process.gpu_uuid == identity]
    memory = sum(process.gpu_memory or 0 for process in here)
    load = min(1.0, sum(process.sm_utilization or 0.0 for process in here))
    gpu = demo_gpu(index, identity, memory, load, now, running)
    if index == machine.sick and gpu.health is not None:
        return replace(gpu, health=replace(gpu.health, recovery_action="gpu_reset"))
    if index == machine.hung:
        return replace(gpu, state="silent", stale_for=round(95.0 + running, 1))
    return gpu


def _process(job: DemoJob, host: str | None, index: int, now: float, running: float) -> Process:
    load = None if job.load is None else job.load * (0.93 + 0.07 * wave(now, 9, index + job.pid))
    start_time = round(now - running - job.age, 2)
    return Process(
        pid=job.pid,
        start_ticks=round(start_time * HERTZ),
        start_time=start_time,
        gpu_uuid=_uuid(host, index),
        gpu_memory=int(job.memory * GIB * (1 + 0.004 * wave(now, 41, job.pid))),
        sm_utilization=None if load is None else round(load, 2),
        memory_utilization=None if load is None else round(load * 0.6, 2),
        idle_for=round(2460 + running, 1) if load is None else 0.0,
        user=job.user,
        command=job.command,
        cpu=round(job.cpu * (1 + 0.05 * wave(now, 5, job.pid)), 3),
        rss=int((2.1 + job.memory / 20) * GIB),
        state="R" if job.load else "S",
        parent=job.origin.ancestors[0].pid if job.origin.ancestors else 1,
        threads=8 + int(job.memory),
        io_read=None if load is None else round(load * 40e6),
        io_write=0.0,
        origin=job.origin,
        cuda_context=CudaContext(environ_of(job)),
    )


def _uuid(host: str | None, index: int) -> str:
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{host}/{index}' if host else str(index))}"
