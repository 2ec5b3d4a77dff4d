"""Readings of the driver and facts of the processes, put together as Frames.

One thread opens the driver, one reads each GPU. `collect` asks them all, waits for a deadline
and takes what is there; who was late keeps its last values, marked with their age.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from gputop.agent.frame_builder import FrameBuilder, is_dubious
from gputop.agent.gpu.driver import DRIVER_GONE, Driver, NvmlError, close_driver, open_driver
from gputop.agent.gpu.events import XidEvents
from gputop.agent.gpu.links import read_links
from gputop.agent.gpu.reader import GpuReader, GpuSample
from gputop.agent.gpu.topology import read_topology
from gputop.agent.host import HostFacts
from gputop.agent.idle import IdleTimes
from gputop.agent.nested import NestedNamespace
from gputop.agent.problems import NO_GPU, NOT_ASKED, OURS, not_answering, problem_of
from gputop.agent.process.enrichment import Enricher, Enrichment, EnrichmentRequest
from gputop.agent.process.namespaces import NUMBERING
from gputop.agent.process.processes import ProcessCache, ProcessFacts
from gputop.agent.reserved import ReservationReader
from gputop.agent.worker import Worker, ask_all
from gputop.model.machine.frame import Frame, Problem, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.topology import Links, Topology

_Read = tuple[int, Worker[GpuSample], GpuSample | None]
"""Index of a GPU, who reads it, and what it told last."""

_RETRY = 5.0
"""Seconds between two tries to open a driver that is not there."""
_WAKE = 3.0
"""Seconds that a GPU may take to answer for the first time: without persistence it starts then."""
_SETTLE = 0.1
"""Seconds between two looks at the CPU time of processes, where one frame is all there is."""
_NO_PERMISSION = 4
_ENRICHMENT_TIMEOUT = 0.02
"""Seconds that a tick waits for what is found out of new processes; it may come with the next."""
_NAMES_TIMEOUT = 0.5
"""Seconds for the names of containers, where one frame is all there is."""


class Collector:
    """Makes Frames; `collect` is called by one thread.

    With `hasty` the first says only what GPUs tell at once, and nothing of processes. Without
    `driver` they say what the host does, and the driver is left alone.
    """

    def __init__(self, hasty: bool = False, driver: bool = True) -> None:
        self._asks_driver = driver
        self._hasty = hasty
        self._opener: Worker[Driver | NvmlError] = Worker(
            "driver", self._open, lambda words: NvmlError(OURS, words)
        )
        self._driver: Driver | None = None
        self._events: XidEvents | None = None
        self._devices: list[GpuReader] = []
        self._readers: list[Worker[GpuSample]] = []
        self._links: Worker[Links] | None = None
        self._topology: Worker[Topology] | None = None
        self._host = HostFacts()
        self._processes = ProcessCache()
        self._enricher = Enricher()
        self._enrichment_timeout = 0.0  # somebody waits for the first frame
        self._idle = IdleTimes()
        self._reservations = ReservationReader()
        self._inside = NestedNamespace(NUMBERING) if self._host.nested else None

    def gpus(self) -> Sequence[GpuReader]:
        """Return who reads the GPUs of now; from any thread."""
        return () if self._driver is None else self._devices

    def collect(self, interval: float | None, timeout: float, settle: bool = False) -> Frame:
        """A Frame after at most `timeout` seconds for the driver; None where it is silent.

        With `settle` the CPU use of processes is measured within the call.
        """
        problem = self._ensure_open(timeout)
        hasty, self._hasty = self._hasty, False
        if problem is None:
            ask_all(self._readers, timeout)
            problem = self._lost_driver()
        if problem is None and self._events is None and not (settle or hasty):
            self._events = XidEvents(self._devices)
        if problem is None and self._links is None and not hasty and self._awake():
            self._ask_topology()
        gpus, processes = ((), ()) if problem else self._assemble(timeout, settle)
        driver = self._driver
        return Frame(
            host=self._host.read(),
            time=round(time.time(), 3),
            interval=interval,
            driver_version=None if driver is None else driver.version,
            cuda_version=None if driver is None else driver.cuda_version,
            gpus=gpus,
            processes=processes,
            links=None if self._links is None else self._links.latest,
            topology=None if self._topology is None else self._topology.latest,
            problem=problem,
        )

    def _ensure_open(self, timeout: float) -> Problem | None:
        if self._driver is not None:
            return None
        if not self._asks_driver:
            return NOT_ASKED
        opener, now = self._opener, time.monotonic()
        if opener.answered is None or now - opener.asked >= _RETRY:
            opener.ask()
        if not opener.wait(now + timeout):
            return not_answering(time.monotonic() - opener.asked)
        answer = opener.latest
        if isinstance(answer, NvmlError):
            return problem_of(answer.code, str(answer))
        if answer is None or answer.count == 0:
            return problem_of(NO_GPU, "")
        self._driver, self._events = answer, None
        NUMBERING.opened(answer.version)
        self._devices = [GpuReader(index, self._hasty) for index in range(answer.count)]
        self._readers = [
            Worker(f"gpu {device.index}", device.read, device.failed) for device in self._devices
        ]
        return None

    def _open(self) -> Driver | NvmlError:
        """In the opener's thread: closing may hang as well as opening."""
        if self._events is not None:
            self._events.end()
        close_driver()
        try:
            return open_driver()
        except NvmlError as error:
            return error

    def _awake(self) -> bool:
        """Whether every GPU has answered, or had the time to."""
        opened = self._opener.answered or time.monotonic()
        late = any(reader.answered is None for reader in self._readers)
        return not late or time.monotonic() - opened >= _WAKE

    def _ask_topology(self) -> None:
        samples = [reader.latest for reader in self._readers]
        gpus = [
            (device.handle, None if sample is None else sample.values.get("pci_bus_id"))
            for device, sample in zip(self._devices, samples, strict=True)
        ]
        self._links = Worker("links", partial(read_links, gpus))
        self._topology = Worker("topology", partial(read_topology, gpus))
        self._links.ask()
        self._topology.ask()

    def _lost_driver(self) -> Problem | None:
        """All GPUs say that there is no driver any more: close, and look for it again."""
        codes = {r.latest.code for r in self._readers if r.latest is not None and not r.busy}
        if codes and codes <= DRIVER_GONE:
            for reader in self._readers:
                reader.end()
            self._driver, self._readers = None, []
            self._links = self._topology = None
            self._opener.reset()
            return problem_of(9, "")
        if codes == {_NO_PERMISSION} and not any(reader.busy for reader in self._readers):
            return problem_of(_NO_PERMISSION, "")
        return None

    def _assemble(
        self, timeout: float, settle: bool
    ) -> tuple[tuple[Gpu, ...], tuple[Process, ...]]:
        # Before what they have read last: one that answers meanwhile is late all the same.
        late = [_stale_for(reader) for reader in self._readers]
        readings = [
            (index, reader, reader.latest)
            for index, reader in enumerate(self._readers)
            if reader.latest is None or reader.latest.code != _NO_PERMISSION
        ]
        samples = [sample for _, _, sample in readings if sample]
        pids = {run.pid for sample in samples for run in sample.running}
        facts = self._processes.read(pids, timeout)
        if self._inside is not None:
            believed = NUMBERING.believed
            readings = self._seen_inside(self._inside, readings)
            if believed != NUMBERING.believed:  # what was read may be of others
                facts = self._processes.read(pids, timeout, every=True)
            samples = [sample for _, _, sample in readings if sample]
        if settle:
            again = time.monotonic() + _SETTLE
            self._enrich(samples, facts, 0.0)  # meanwhile
            self._host.prepare()
        if settle and facts:
            time.sleep(max(0.0, again - time.monotonic()))
            facts = self._processes.read(pids, timeout, every=True)
        enrichment = self._enrich(samples, facts, timeout if settle else self._enrichment_timeout)
        self._enrichment_timeout = _ENRICHMENT_TIMEOUT
        if settle and any(origin.container for origin in enrichment.origins.values()):
            self._enricher.settle(_NAMES_TIMEOUT)
            enrichment = self._enrich(samples, facts, timeout)
        gpus: list[Gpu] = []
        processes: list[Process] = []
        idle = None if settle else self._idle
        events, reserved = self._events, self._reservations.read()
        for index, reader, reading in readings:
            xids = None if events is None else events.xids(index)
            builder = FrameBuilder(
                index, reading, reader.answered, facts, enrichment, idle, self._host.nested, xids,
                reserved,
            )  # fmt: skip
            gpus.append(builder.gpu(stale_for=late[index]))
            processes += builder.processes()
        self._idle.end_cycle()
        return tuple(gpus), tuple(processes)

    def _seen_inside(self, inside: NestedNamespace, readings: list[_Read]) -> list[_Read]:
        """What they mean in a container. A GPU that does not answer lists who may have ended."""
        fresh = {
            run.pid
            for _, reader, reading in readings
            if reading is not None and not reader.busy
            for run in reading.running
        }
        NUMBERING.observe(self._processes.missing & fresh, time.monotonic())
        return [
            (index, reader, None if reading is None else inside.meaning(reading))
            for index, reader, reading in readings
        ]

    def _enrich(
        self, samples: list[GpuSample], facts: dict[int, ProcessFacts], timeout: float
    ) -> Enrichment:
        dubious = {sample.values.get("minor") for sample in samples if is_dubious(sample)}
        wanted = EnrichmentRequest(
            frozenset((pid, fact.start_time) for pid, fact in facts.items()),
            frozenset(minor for minor in dubious if minor is not None),
        )
        return self._enricher.read(wanted, timeout)


def _stale_for(reader: Worker[GpuSample]) -> float | None:
    """Age of the last values, if the GPU was late in this cycle."""
    if not reader.busy:
        return None
    since = reader.answered if reader.answered is not None else reader.asked
    return round(time.monotonic() - since, 2)
