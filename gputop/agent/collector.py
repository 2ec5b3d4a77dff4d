"""Readings of the driver and facts of the processes, put together as Frames.

One thread opens the driver, one reads each GPU. `collect` asks them all, waits for a deadline
and takes what is there; who was late keeps its last values, marked with their age.
"""

from __future__ import annotations

import time
from functools import partial

from gputop.agent.gpu.device import Device, Reading
from gputop.agent.gpu.driver import DRIVER_GONE, Driver, NvmlError, close_driver, open_driver
from gputop.agent.gpu.events import Events
from gputop.agent.gpu.links import read_links
from gputop.agent.gpu.topology import read_topology
from gputop.agent.host import HostFacts
from gputop.agent.idle import IdleTimes
from gputop.agent.problems import NO_GPU, OURS, not_answering, problem_of
from gputop.agent.process.processes import Processes, ProcessFacts
from gputop.agent.process.survey import Survey, Surveyor, Wanted
from gputop.agent.rows import Look, unexplained_of
from gputop.agent.worker import Worker, ask_all
from gputop.model.frame import Frame, Problem, Process
from gputop.model.gpu import Gpu
from gputop.model.links import Links
from gputop.model.topology import Topology
from gputop.model.unexplained import is_notable

_RETRY = 5.0
"""Seconds between two tries to open a driver that is not there."""
_WAKE = 3.0
"""Seconds that a GPU may take to answer for the first time: without persistence it starts then."""
_SETTLE = 0.1
"""Seconds between two looks at the CPU time of processes, where one frame is all there is."""
_NO_PERMISSION = 4
_SURVEY_PATIENCE = 0.02
"""Seconds that a tick waits for what is found out of new processes; it may come with the next."""
_NAMES_PATIENCE = 0.5
"""Seconds for the names of containers, where one frame is all there is."""


class Collector:
    """Makes Frames; `collect` is called by one thread.

    With `hasty` the first says only what GPUs tell at once, and nothing of processes.
    """

    def __init__(self, hasty: bool = False) -> None:
        self._hasty = hasty
        self._opener: Worker[Driver | NvmlError] = Worker("driver", self._open, _unopened)
        self._driver: Driver | None = None
        self._events: Events | None = None
        self._devices: list[Device] = []
        self._readers: list[Worker[Reading]] = []
        self._links: Worker[Links] | None = None
        self._topology: Worker[Topology] | None = None
        self._host = HostFacts()
        self._processes = Processes()
        self._surveyor = Surveyor()
        self._survey_patience = 0.0  # somebody waits for the first frame
        self._idle = IdleTimes()

    def collect(self, interval: float | None, patience: float, settle: bool = False) -> Frame:
        """A Frame after at most `patience` seconds for the driver; None where it is silent.

        With `settle` the CPU use of processes is measured within the call.
        """
        problem = self._ensure_open(patience)
        hasty, self._hasty = self._hasty, False
        if problem is None:
            ask_all(self._readers, patience)
            problem = self._lost_driver()
        if problem is None and self._events is None and not (settle or hasty):
            self._events = Events(self._devices)
        if problem is None and self._links is None and not hasty and self._awake():
            self._look_around()
        gpus, processes = ((), ()) if problem else self._assemble(patience, settle)
        driver = self._driver
        return Frame(
            host=self._host.read(begins=not hasty),
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

    def _ensure_open(self, patience: float) -> Problem | None:
        if self._driver is not None:
            return None
        opener, now = self._opener, time.monotonic()
        if opener.answered is None or now - opener.asked >= _RETRY:
            opener.ask()
        if not opener.wait(now + patience):
            return not_answering(time.monotonic() - opener.asked)
        answer = opener.latest
        if isinstance(answer, NvmlError):
            return problem_of(answer.code, str(answer))
        if answer is None or answer.count == 0:
            return problem_of(NO_GPU, "")
        self._driver, self._events = answer, None
        self._devices = [Device(index, self._hasty) for index in range(answer.count)]
        self._readers = [Worker(f"gpu {one.index}", one.read, one.failed) for one in self._devices]
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

    def _look_around(self) -> None:
        """Ask once how the GPUs are connected and where they stand."""
        answers = [reader.latest for reader in self._readers]
        places = [None if one is None else one.values.get("pci_bus_id") for one in answers]
        gpus = [(one.handle, place) for one, place in zip(self._devices, places, strict=True)]
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
            self._opener.forget()
            return problem_of(9, "")
        if codes == {_NO_PERMISSION} and not any(reader.busy for reader in self._readers):
            return problem_of(_NO_PERMISSION, "")
        return None

    def _assemble(
        self, patience: float, settle: bool
    ) -> tuple[tuple[Gpu, ...], tuple[Process, ...]]:
        readings = [
            (index, reader, reader.latest)
            for index, reader in enumerate(self._readers)
            if reader.latest is None or reader.latest.code != _NO_PERMISSION
        ]
        told = [reading for _, _, reading in readings if reading]
        pids = {run.pid for reading in told for run in reading.running}
        facts = self._processes.read(pids, patience)
        if settle:
            again = time.monotonic() + _SETTLE
            self._survey(told, facts, 0.0)  # meanwhile
            self._host.prepare()
        if settle and facts:
            time.sleep(max(0.0, again - time.monotonic()))
            facts = self._processes.read(pids, patience, every=True)
        survey = self._survey(told, facts, patience if settle else self._survey_patience)
        self._survey_patience = _SURVEY_PATIENCE
        if settle and any(place.container for place in survey.places.values()):
            self._surveyor.settle(_NAMES_PATIENCE)
            survey = self._survey(told, facts, patience)
        gpus: list[Gpu] = []
        processes: list[Process] = []
        idle = None if settle else self._idle
        events = self._events
        for index, reader, reading in readings:
            xids = None if events is None else events.xids(index)
            seen = Look(
                index, reading, reader.answered, facts, survey, idle, self._host.nested, xids
            )
            gpus.append(seen.gpu(stale_for=_stale_for(reader)))
            processes += seen.processes()
        self._idle.end_cycle()
        return tuple(gpus), tuple(processes)

    def _survey(
        self, told: list[Reading], facts: dict[int, ProcessFacts], patience: float
    ) -> Survey:
        dubious = {
            reading.values.get("minor")
            for reading in told
            if reading.values.get("processes_known") is False or is_notable(unexplained_of(reading))
        }
        wanted = Wanted(
            frozenset((pid, fact.start_time) for pid, fact in facts.items()),
            frozenset(minor for minor in dubious if minor is not None),
            frozenset(facts),
        )
        return self._surveyor.read(wanted, patience)


def _unopened(words: str) -> NvmlError:
    return NvmlError(OURS, words)


def _stale_for(reader: Worker[Reading]) -> float | None:
    """Age of the last values, if the GPU was late in this cycle."""
    if not reader.busy:
        return None
    since = reader.answered if reader.answered is not None else reader.asked
    return round(time.monotonic() - since, 2)
