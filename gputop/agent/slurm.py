"""Reads which GPUs the jobs of Slurm hold on this machine, with a process on them or without.

A job is a control group that slurmd has made, and its number is the group's: no user can make one.
The first of these that says something tells its GPUs, as the N of /dev/nvidiaN (`dev_num` in
Slurm's gres_common.c):

    slurmstepd       its environment: it is root's process, in a group of its own (version 2)
    devices.list     of the job's group (version 1), unless it allows `a`: what is denied then is
                     not listed
    the job's own    SLURM_STEP_GPUS of the processes of its steps, and SLURM_JOB_GPUS of its batch
    processes        script: in a step it may be that of another machine. Only root, or the job's
                     user, can read them. Whoever lies there lies about his own job

A job that holds more than its running steps, and has no batch script here, is seen to hold only
those. If nothing of a job can be read, what it holds is not known.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from glob import glob, iglob
from itertools import islice
from typing import NamedTuple

from gputop.agent.process.environment import read_environ
from gputop.agent.process.procfs import read_if_any, read_short
from gputop.agent.process.users import UserNames, real_uid
from gputop.agent.worker import Worker
from gputop.model.machine.environment import JOB_GPUS, job_gpus, slurm_ids
from gputop.model.machine.gpu import SlurmJob

_ROOT = "/sys/fs/cgroup"
_JOBS = (
    "system.slice/*slurmstepd.scope/*/step_*/..",
    "unified/system.slice/*slurmstepd.scope/*/step_*/..",
    *(f"{name}/slurm*/uid_*/job_*" for name in ("devices", "freezer", "cpuset", "memory")),
)
"""The groups of jobs: version 2, a hybrid system, and version 1, where any of these may be used."""
_SERVICES = ("system.slice/slurmd.service", "systemd/system.slice/slurmd.service")
_NUMBER = re.compile(r"job_([0-9]{1,10})", re.ASCII)
_UID = re.compile(r"uid_([0-9]{1,10})", re.ASCII)
_ALLOWED = re.compile(r"c 195:(\d+) \w*r\w*", re.ASCII)
"""A GPU in devices.list: 195 is the driver's major number."""
_MOST_MINOR = 250
"""The nodes above it are those of the driver itself."""
_MOST_JOBS, _MOST_GROUPS, _MOST_PIDS = 512, 64, 16
"""Jobs of a machine, groups of a step and processes of a group that are read."""
_BYTES = 1 << 16
_FIRST_TIMEOUT = 0.5
"""Seconds that the first tick waits: until then no GPU counts as free."""
_SHARE = 50
"""The wait between two readings is at least this many times the CPU time of the last one."""
_LEAST = 5.0
"""Seconds between two readings, at least."""


class _Holder(NamedTuple):
    number: str | None
    uid: int | None
    minors: frozenset[int] | None
    """None: nothing of the job can be read."""
    is_sure: bool
    """Whether root's files or processes tell."""


class _StepProcess(NamedTuple):
    uid: int | None
    ids: tuple[int, ...]
    """The GPUs that its environment names."""
    tells: bool
    """Whether these are all GPUs of its step."""
    is_daemon: bool
    """Whether it is slurmstepd, and no process of the job's user."""


class SlurmReader:
    """Reads the jobs in a thread. Where slurmd does not run this costs next to nothing."""

    def __init__(self, root: str = _ROOT) -> None:
        self._root = root
        self._worker: Worker[tuple[list[_Holder], bool]] | None = None
        self._users = UserNames()
        self._due = 0.0
        self.unknown = False
        """Whether what some job holds cannot be read."""

    def read(self, timeout: float) -> dict[int, SlurmJob]:
        """Return the job on each GPU, by the N of /dev/nvidiaN, after at most `timeout` seconds."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _LEAST
            if self._worker is None and not self._has_slurm():
                return {}
            self._worker = self._worker or Worker("Slurm jobs", self._read)
            self._worker.ask()
        if self._worker is None:
            return {}
        is_first = self._worker.answered is None
        self._worker.wait(now + max(timeout, _FIRST_TIMEOUT if is_first else 0.0))
        holders, hidden = self._worker.latest or ([], True)
        self.unknown = hidden or any(holder.minors is None for holder in holders)
        self._users.prepare(holder.uid for holder in holders)
        by_minor: dict[int, SlurmJob] = {}
        for holder in sorted(holders, key=lambda holder: holder.is_sure):
            job = SlurmJob(number=holder.number, user=self._users.name(holder.uid))
            by_minor |= dict.fromkeys(holder.minors or (), job)
        return by_minor

    def _has_slurm(self) -> bool:
        paths = (*_SERVICES, *(path.partition("/*/")[0] for path in _JOBS[:2]))
        version1 = (path.partition("/uid_")[0] for path in _JOBS[2:])
        return any(glob(f"{self._root}/{path}") for path in (*paths, *version1))

    def _read(self) -> tuple[list[_Holder], bool]:
        """Return the jobs, and whether there are some that have no control group."""
        begun = time.thread_time()
        kinds = (list(islice(iglob(f"{self._root}/{path}"), _MOST_JOBS)) for path in _JOBS)
        jobs = {os.path.normpath(path) for path in next(filter(None, kinds), ())}
        holders = [_holder(path) for path in sorted(jobs)]
        hidden = not jobs and any(map(_runs_steps, (f"{self._root}/{path}" for path in _SERVICES)))
        spent = time.thread_time() - begun
        self._due = max(self._due, time.monotonic() + _SHARE * spent)
        return holders, hidden


def _holder(path: str) -> _Holder:
    folder, name = os.path.split(path)
    number, uid = _NUMBER.fullmatch(name), _UID.fullmatch(os.path.basename(folder))
    processes = list(_processes(path))
    owner = int(uid[1]) if uid else next((p.uid for p in processes if p.uid), None)
    daemons = [process for process in processes if process.is_daemon and process.ids]
    listed = None if daemons else _allowed(path)
    witnesses = [process for process in daemons or processes if process.tells]
    ids = frozenset(number for process in witnesses for number in process.ids)
    minors = (ids if witnesses else None) if listed is None else listed
    is_sure = bool(daemons) or listed is not None
    return _Holder(number and number[1], owner, minors, is_sure)


def _processes(path: str) -> Iterator[_StepProcess]:
    """Yield the processes of a job's steps, some of each group."""
    for step in sorted(iglob(f"{path}/step_*")):
        for folder, _, _ in islice(os.walk(step), _MOST_GROUPS):
            for pid in _pids(folder)[:_MOST_PIDS]:
                yield _step_process(pid, os.path.basename(step), folder == f"{step}/slurm")


def _step_process(pid: int, step: str, is_daemons_group: bool) -> _StepProcess:
    """Read one process. A setuid program has an environment that its user chose: root's processes
    are believed only in the group that no user's process enters."""
    environ, uid = read_environ(pid), real_uid(pid)
    is_number = step.removeprefix("step_").isdecimal()
    text = environ.variables.get(JOB_GPUS[0]) if is_number else job_gpus(environ.variables)
    is_daemon = is_daemons_group and uid == 0
    # slurmstepd, and the process that holds a job open (`extern`), may lack the job's variables.
    is_read = environ.missing in (None, "unset")
    tells = is_read and (bool(text) or not (is_daemon or step == "step_extern"))
    return _StepProcess(uid, slurm_ids(text), tells, is_daemon)


def _pids(folder: str) -> list[int]:
    """Return the processes of a control group; 0 stands for one of another PID namespace."""
    data, _ = read_if_any(f"{folder}/cgroup.procs", _BYTES)
    return [int(word) for word in data.split() if word.isdigit() and int(word)]


def _allowed(path: str) -> frozenset[int] | None:
    """Return the GPUs that the devices.list of a group allows; None if it does not say."""
    data, whole = read_if_any(f"{path}/devices.list", _BYTES)
    lines = data.decode("ascii", "replace").splitlines()
    if not whole or not lines or any(line[:1] == "a" or line[:7] == "c 195:*" for line in lines):
        return None
    minors = (int(match[1]) for line in lines if (match := _ALLOWED.fullmatch(line)))
    return frozenset(minor for minor in minors if minor < _MOST_MINOR)


def _runs_steps(service: str) -> bool:
    """Whether slurmd has started a job's step that has left no control group of its own."""
    return any(
        read_short(f"/proc/{pid}/comm") == b"slurmstepd\n" and real_uid(pid) == 0
        for pid in _pids(service)
    )
