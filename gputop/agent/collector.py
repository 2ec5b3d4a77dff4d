"""Readings of the driver and facts of the processes, put together as Frames.

One thread opens the driver, one reads each GPU. `collect` asks them all, waits for a deadline
and takes what is there; who was late keeps its last values, marked with their age.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from gputop.agent.host import HostFacts
from gputop.agent.links import read_links
from gputop.agent.nvml import (
    DRIVER_GONE,
    Device,
    Driver,
    NvmlError,
    Reading,
    close_driver,
    open_driver,
)
from gputop.agent.problems import NO_GPU, not_answering, problem_of
from gputop.agent.processes import Processes, ProcessFacts
from gputop.agent.surroundings import Key, Surveyor
from gputop.agent.worker import Worker, ask_all
from gputop.model.environ import Surroundings
from gputop.model.frame import Frame, Gpu, Problem, Process
from gputop.model.links import Links

_RETRY = 5.0
"""Seconds between two tries to open a driver that is not there."""
_SETTLE = 0.1
"""Seconds between two looks at the CPU time of processes, where one frame is all there is."""
_NO_PERMISSION = 4
_SURVEY_PATIENCE = 0.02
"""Seconds that a tick waits for the surroundings of new processes; they may come with the next."""


class Collector:
    """Makes Frames; `collect` is called by one thread."""

    def __init__(self) -> None:
        self._opener: Worker[Driver | NvmlError] = Worker("driver", _open)
        self._driver: Driver | None = None
        self._devices: list[Device] = []
        self._readers: list[Worker[Reading]] = []
        self._links: Worker[Links] | None = None
        self._host = HostFacts()
        self._processes = Processes()
        self._surveyor = Surveyor()

    def collect(self, interval: float | None, patience: float, settle: bool = False) -> Frame:
        """A Frame after at most `patience` seconds for the driver; None where it is silent.

        With `settle` the CPU use of processes is measured within the call.
        """
        problem = self._ensure_open(patience)
        if problem is None:
            ask_all(self._readers, patience)
            problem = self._lost_driver()
        if problem is None and self._links is None:
            self._links = self._look_at_links()
        gpus, processes = ((), ()) if problem else self._assemble(patience, settle)
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
        self._driver = answer
        self._devices = [Device(index) for index in range(answer.count)]
        self._readers = [Worker(f"gpu {one.index}", one.read) for one in self._devices]
        return None

    def _look_at_links(self) -> Worker[Links]:
        """How the GPUs are connected, asked once, when they have answered."""
        answers = [reader.latest for reader in self._readers]
        places = [None if one is None else one.values.get("pci_bus_id") for one in answers]
        gpus = [(one.handle, place) for one, place in zip(self._devices, places, strict=True)]
        worker = Worker("links", partial(read_links, gpus))
        worker.ask()
        return worker

    def _lost_driver(self) -> Problem | None:
        """All GPUs say that there is no driver any more: close, and look for it again."""
        codes = {r.latest.code for r in self._readers if r.latest is not None and not r.busy}
        if codes and codes <= DRIVER_GONE:
            for reader in self._readers:
                reader.end()
            self._driver, self._readers, self._links = None, [], None
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
        pids = {run.pid for _, _, reading in readings if reading for run in reading.running}
        facts = self._processes.read(pids, patience)
        if settle and facts:
            time.sleep(_SETTLE)
            facts = self._processes.read(pids, patience)
        computing = {run.pid for _, _, r in readings if r for run in r.running if run.type != "G"}
        around = self._surveyor.read(
            frozenset((pid, facts[pid].start_time) for pid in computing & facts.keys()),
            patience if settle else _SURVEY_PATIENCE,
        )
        gpus = tuple(_gpu(index, reader, reading) for index, reader, reading in readings)
        processes = tuple(
            process
            for _, _, reading in readings
            if reading
            for process in _processes_of(reading, facts, around)
        )
        return gpus, processes


def _open() -> Driver | NvmlError:
    """In the opener's thread: closing may hang as well as opening."""
    close_driver()
    try:
        return open_driver()
    except NvmlError as error:
        return error


def _gpu(index: int, reader: Worker[Reading], reading: Reading | None) -> Gpu:
    """The last values, with their age if the GPU was late in this cycle."""
    stale_for = None
    if reader.busy:
        since = reader.answered if reader.answered is not None else reader.asked
        stale_for = round(time.monotonic() - since, 2)
    if reading is None:
        return Gpu(index=index, stale_for=stale_for)
    return Gpu(**reading.values, stale_for=stale_for, error=reading.error)


def _processes_of(
    reading: Reading, facts: dict[int, ProcessFacts], around: dict[Key, Surroundings]
) -> list[Process]:
    uuid: str | None = reading.values.get("uuid")
    found = []
    for run in reading.running:
        sample = reading.utilization.get(run.pid)
        known: dict[str, Any] = {}
        if (fact := facts.get(run.pid)) is not None:
            known = {name: getattr(fact, name) for name in _FACTS}
            known["surroundings"] = around.get((run.pid, fact.start_time))
        found.append(
            Process(
                pid=run.pid,
                gpu_uuid=uuid,
                gpu_instance=run.gpu_instance,
                compute_instance=run.compute_instance,
                type=run.type,
                gpu_memory=run.memory,
                sm_utilization=None if sample is None else sample.sm,
                **known,
            )
        )
    return found


_FACTS = tuple(name for name in ProcessFacts.__slots__ if name in Process.__struct_fields__)
