"""Collects driver readings and process facts into Frames.

One thread opens the driver, and one reads each GPU. `collect` asks all of them and waits until a
deadline. A GPU that is late keeps its last values, marked with their age.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pynvml
from msgspec.structs import replace

from gputop.agent.frame_builder import FrameBuilder, GpuReading, is_dubious
from gputop.agent.gpu.driver import DRIVER_GONE, Driver, close_driver, open_driver
from gputop.agent.gpu.events import XidEvents
from gputop.agent.gpu.reader import GpuReader, GpuSample
from gputop.agent.gpu.topology import links_in_use, read_links, read_topology
from gputop.agent.host import HostFacts
from gputop.agent.idle import IdleTimes
from gputop.agent.nested import NestedNamespace
from gputop.agent.problems import NO_GPU, NOT_ASKED, not_answering, problem_of, unreadable
from gputop.agent.process.enrichment import Enricher, Enrichment, EnrichmentRequest
from gputop.agent.process.namespaces import NUMBERING
from gputop.agent.process.processes import ProcessCache
from gputop.agent.reserved import ReservationReader
from gputop.agent.slurm import SlurmReader
from gputop.agent.worker import Worker, ask_all
from gputop.model.machine.frame import Frame, Problem, Process
from gputop.model.machine.gpu import Gpu
from gputop.protocol.messages import Preview

_RETRY = 5.0
"""Seconds between two attempts to open a driver that is missing."""
_WAKE = 3.0
"""Seconds that a GPU may take for its first answer: without persistence mode it starts up then."""
_SETTLE = 0.1
"""Seconds between two readings of processes' CPU time, for a single frame."""
_ENRICHMENT_TIMEOUT = 0.02
"""Seconds that a tick waits for the enrichment of new processes; a later frame may have it."""
_TAKEN_TIMEOUT = 0.05
"""Seconds that a tick waits for the reservations, and for what Slurm's jobs hold; likewise."""
_NAMES_TIMEOUT = 0.5
"""Seconds to wait for the names of containers, for a single frame."""


class Collector:
    """Makes Frames; one thread calls `collect`.

    With `hasty` the first is a Preview: only what GPUs report at once, without processes. Without
    `driver` frames describe the host alone, and the driver is left alone. If it is `brief`, GPUs
    have only the values that are BRIEF (`model.machine.sections`); without `links` nothing is said
    of how they are connected.
    """

    def __init__(
        self, hasty: bool = False, driver: bool = True, brief: bool = False, links: bool = True
    ) -> None:
        self._asks_driver, self._asks_links = driver, links
        self._hasty, self._brief = hasty, brief
        self._events: XidEvents | None = None
        self._forget_driver()
        self._host = HostFacts()
        self._processes = ProcessCache()
        self._enricher = Enricher(brief)
        self._enrichment_timeout = 0.0  # the first frame is urgent
        self._reservations, self._slurm = ReservationReader(), SlurmReader()
        self._inside = NestedNamespace() if self._host.nested else None

    def _forget_driver(self) -> None:
        """Begin anew with what is known of a driver and its GPUs."""
        self._opener: Worker[Driver | Problem] = Worker("driver", self._open, unreadable)
        self._driver, self._idle = Driver(), IdleTimes()
        self.gpus: Sequence[GpuReader] = ()
        """The readers of the current GPUs; for any thread."""
        self._links = Worker("links", lambda: read_links([gpu.place for gpu in self.gpus]))
        self._topology = Worker("topology", lambda: read_topology([gpu.place for gpu in self.gpus]))
        self._placed: set[tuple[int, int | None]] | None = None
        """The GPUs that had answered when links and topology were asked for, and how many of their
        NVLinks were in use."""

    def collect(self, interval: float | None, timeout: float, settle: bool = False) -> Frame:
        """Return a Frame; the driver has `timeout` seconds to open, and its GPUs as long to answer.

        With `settle` the CPU use of processes is measured within the call.
        """
        problem = self._ensure_open(timeout)
        hasty, self._hasty = self._hasty, False
        if problem is None:
            ask_all([gpu.worker for gpu in self.gpus], timeout)
            problem = self._lost_driver()
        if problem is None and self._events is None and not (settle or hasty):
            self._events = XidEvents(self.gpus)
        if problem is None and not hasty and self._asks_links and self._awake():
            self._ask_topology()
        gpus, processes = ((), ()) if problem else self._assemble(timeout, settle)
        return (Preview if hasty else Frame)(
            host=replace(
                self._host.read(),
                jobs_unknown=self._slurm.unknown,
                reservations_unknown=self._reservations.unknown,
            ),
            time=round(time.time(), 3),
            interval=interval,
            driver_version=self._driver.version,
            cuda_version=self._driver.cuda_version,
            gpus=gpus,
            processes=processes,
            links=self._links.latest,
            topology=self._topology.latest,
            problem=problem,
        )

    def _ensure_open(self, timeout: float) -> Problem | None:
        if self.gpus:
            return None
        if not self._asks_driver:
            return NOT_ASKED
        opener, now = self._opener, time.monotonic()
        if opener.answered is None or now - opener.asked >= _RETRY:
            opener.ask()
        if not opener.wait(now + timeout):
            return not_answering(time.monotonic() - opener.asked)
        driver = opener.latest
        if not isinstance(driver, Driver):
            return driver
        self._driver, self._events = driver, None
        NUMBERING.opened(driver.version)
        self.gpus = [GpuReader(index, self._hasty, self._brief) for index in range(driver.count)]
        return None

    def _open(self) -> Driver | Problem:
        """Open the driver anew, in the opener's thread: closing may hang as well as opening."""
        if self._events is not None:
            self._events.end()
        close_driver()
        try:
            driver = open_driver()
        except pynvml.NVMLError as error:
            return problem_of(error.value, str(error))
        return driver if driver.count else problem_of(NO_GPU)

    def _awake(self) -> bool:
        """Return whether every GPU has answered, or has had the time to."""
        opened = self._opener.answered or time.monotonic()
        late = any(gpu.worker.answered is None for gpu in self.gpus)
        return not late or time.monotonic() - opened >= _WAKE

    def _ask_topology(self) -> None:
        """Ask where the GPUs are, once, and again when one has answered that had not, or has other
        NVLinks."""
        ready = {
            (gpu.index, links_in_use(gpu.link_states))
            for gpu in self.gpus
            if gpu.worker.answered and gpu.handle is not None
        }
        is_known = self._placed is not None and ready <= self._placed
        if not (is_known or self._links.busy or self._topology.busy):
            self._placed = ready
            self._links.ask()
            self._topology.ask()

    def _lost_driver(self) -> Problem | None:
        """Return the problem that all GPUs report. A driver that is gone is opened anew later."""
        busy = any(gpu.worker.busy for gpu in self.gpus)
        codes = {gpu.latest.code for gpu in self.gpus if not gpu.worker.busy}
        if codes and codes <= DRIVER_GONE:
            workers: list[Worker[Any]] = [self._opener, self._links, self._topology]
            for worker in (*workers, *(gpu.worker for gpu in self.gpus)):
                worker.end()
            self._forget_driver()
            return problem_of(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if codes == {pynvml.NVML_ERROR_NO_PERMISSION} and not busy:
            return problem_of(pynvml.NVML_ERROR_NO_PERMISSION)
        return None

    def _assemble(
        self, timeout: float, settle: bool
    ) -> tuple[tuple[Gpu, ...], tuple[Process, ...]]:
        readings = list(self._readings())
        pids = {run.pid for reading in readings for run in reading.sample.running}
        by_pid = self._processes.read(pids, timeout)
        if self._inside is not None:
            pids_match = NUMBERING.pids_match
            readings = self._seen_inside(self._inside, readings)
            if pids_match != NUMBERING.pids_match:  # it may be about other processes
                by_pid = self._processes.read(pids, timeout, every=True)
        if settle:
            again = time.monotonic() + _SETTLE
            self._enrich(readings, by_pid, 0.0)  # runs meanwhile
            self._host.read()  # CPU use is measured from here on
        if settle and by_pid:
            time.sleep(max(0.0, again - time.monotonic()))
            by_pid = self._processes.read(pids, timeout, every=True)
        enrichment = self._enrich(readings, by_pid, timeout if settle else self._enrichment_timeout)
        self._enrichment_timeout = _ENRICHMENT_TIMEOUT
        if settle and any(origin.container for origin in enrichment.origins.values()):
            self._enricher.settle(_NAMES_TIMEOUT)
            enrichment = self._enrich(readings, by_pid, timeout)
        idle = None if settle else self._idle
        wait = timeout if settle else _TAKEN_TIMEOUT
        reserved, jobs = self._reservations.read(wait), self._slurm.read(wait)
        cycle = FrameBuilder(
            by_pid, self._processes.silent, enrichment, idle, self._host.nested, reserved, jobs
        )
        gpus = tuple(map(cycle.gpu, readings))
        processes = tuple(process for reading in readings for process in cycle.processes(reading))
        self._idle.end_cycle()
        return gpus, processes

    def _readings(self) -> Iterator[GpuReading]:
        for gpu in self.gpus:
            # Taken before `latest`: a GPU that answers in between still counts as late.
            stale_for, answered = _stale_for(gpu.worker), gpu.worker.answered
            events = None if answered is None else self._events
            xids = None if events is None else events.heard.get(gpu.index)
            reading = GpuReading(gpu.latest, answered, stale_for, xids)
            if reading.sample.code != pynvml.NVML_ERROR_NO_PERMISSION:
                yield reading

    def _seen_inside(
        self, inside: NestedNamespace, readings: Sequence[GpuReading]
    ) -> list[GpuReading]:
        """Return what readings mean in a container. A late GPU may list ended processes."""
        fresh = {
            run.pid
            for reading in readings
            if reading.stale_for is None
            for run in reading.sample.running
        }
        NUMBERING.observe(self._processes.missing & fresh, time.monotonic())
        return [reading._replace(sample=inside.meaning(reading.sample)) for reading in readings]

    def _enrich(
        self, readings: Iterable[GpuReading], by_pid: dict[int, Process], timeout: float
    ) -> Enrichment:
        dubious = {
            reading.sample.values.get("minor") for reading in readings if is_dubious(reading.sample)
        }
        wanted = EnrichmentRequest(
            frozenset(process.id for process in by_pid.values()),
            frozenset(minor for minor in dubious if minor is not None),
        )
        return self._enricher.read(wanted, timeout)


def _stale_for(worker: Worker[GpuSample]) -> float | None:
    """Return the age in seconds of the last values if the GPU was late in this cycle."""
    if not worker.busy:
        return None
    since = worker.answered if worker.answered is not None else worker.asked
    return round(time.monotonic() - since, 2)
