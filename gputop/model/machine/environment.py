"""The environment of a process, from the raw bytes of its /proc/PID/environ.

These are the variables that it was started with; what it set later is not there. A program that
changes its title (setproctitle: Ray, vLLM, gunicorn) overwrites them, which must not be mistaken
for "no variable is set".

Source: proc_pid_environ(5); measured with setproctitle 1.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Literal

import msgspec

from gputop.model.machine.text import printable

NAME = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
CONTAINER = "NVIDIA_VISIBLE_DEVICES"

State = Literal[
    "unset",
    "overwritten",
    "empty_block",
    "unreadable",
    "gone",
    "too_long",
    "no_answer",
]
"""What is known of a variable that is not among those of a process.

unset             the process was started without it
overwritten       the process wrote over its environment
empty_block       there are no bytes: started without any variable, or a kernel thread
unreadable, gone  no permission, no such process: set by the code that reads the file
too_long          more variables, or longer ones, than any real program has
no_answer         the process blocks whoever reads it
"""

_VARIABLE = re.compile(rb"[A-Za-z_][^= ]*=")
_CLOSE = 3
_MAX_ENVIRON_CHARS = 4096
"""Most characters, of all names and values, that are kept of a process's variables."""
_MOST_VARIABLES = 1 << 14
"""Most variables that are parsed; more than anybody sets."""
_MOST_LIKE_IT = 4096
"""Most names of a similar length that are compared with CUDA_VISIBLE_DEVICES."""
JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "_CONDOR_SLOT": "HTCondor"}
"""Variables that are set in the jobs of a batch system, and the system's name."""
JOB_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Variables with the machine's numbers of a step's or job's GPUs; the first that is set counts."""
_IDS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_MOST_IDS = 1024
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
RANKS = ("LOCAL_RANK", "SLURM_LOCALID")
"""Variables with a process's number on its machine, which most programs take for its cuda:k."""
_MATTER = {NAME, ORDER, CONTAINER, PIPE, *RANKS, *JOB_GPUS, *JOBS}
_END = "_VISIBLE_DEVICES"
_OTHERS = {"MUSA", "SUPA"}
"""Prefixes of other vendors' own variables (Moore Threads, Biren), two letters from CUDA. MetaX's
MACA, Hygon's DCU and Enflame's GCU are three away: too many for a typo in four letters."""
_CLOSE_PREFIX = 2


class Environ(msgspec.Struct, frozen=True, omit_defaults=True):
    """The variables of a process."""

    variables: dict[str, str] = {}
    """Name and value, as it was started."""
    missing: State = "unset"
    """The state of a variable that is not among them: `unset`, or why it is not known."""

    @property
    def misspelt(self) -> tuple[str, ...]:
        """Names that were meant to be CUDA_VISIBLE_DEVICES."""
        return _misspelt(self.variables)


class RelatedProcess(msgspec.Struct, frozen=True):
    """A process whose variables tell of a GPU process that it started, or was started by, directly
    or not."""

    pid: int
    """Process number."""
    environ: Environ
    """Its variables."""


class CudaContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """What decides which GPUs a process sees and what it calls them, from /proc."""

    environ: Environ = Environ()
    """The variables that decide which GPUs it sees."""
    minors: tuple[int, ...] | None = None
    """The N of each /dev/nvidiaN that it may open, ascending; empty: it has no GPU; None: not
    known, or the same as gputop's."""
    in_container: bool = False
    """It has another root than gputop."""
    frameworks: tuple[str, ...] = ()
    """The frameworks that it has loaded, as `pytorch`; empty: none, or not known."""
    descendant: RelatedProcess | None = None
    """A process that it started and whose variables show what its own are now; None without one."""
    ancestor: RelatedProcess | None = None
    """If it wrote over its variables: the nearest process above it that did not, if that has
    CUDA_VISIBLE_DEVICES; None without one."""


class AgentSurroundings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where gputop itself runs: NVML lists only the GPUs that it can reach there, from 0."""

    minors: tuple[int, ...] | None = None
    """The N of each /dev/nvidiaN that it sees, ascending; None: there are none, as under WSL."""
    container: bool = False
    """It runs in a container."""
    job: str | None = None
    """The batch job that it runs in, as `Slurm 4711`."""
    job_gpus: str | None = None
    """The machine's numbers of that job's GPUs."""


def job_of(variables: Mapping[str, str]) -> str | None:
    """Name the batch job that started a process, as `Slurm 4711`; None without one."""
    jobs = (f"{system} {variables[name]}" for name, system in JOBS.items() if name in variables)
    return next((printable(job, 64) for job in jobs), None)


def job_gpus(variables: Mapping[str, str]) -> str | None:
    """Return the machine's numbers of the GPUs of a Slurm step, or of its job; None without any."""
    return next((variables[name] for name in JOB_GPUS if name in variables), None)


def slurm_ids(job_gpus: str | None) -> tuple[int, ...]:
    """Read the numbers of a job's GPUs, `0,1` or `0-1`; empty if the text is anything else."""
    ids: list[int] = []
    for text in (job_gpus or "").split(","):
        match = _IDS.fullmatch(text)
        if match is None:
            return ()
        ids += range(int(match[1]), int(match[2] or match[1]) + 1)
        if len(ids) > _MOST_IDS:
            return ()
    return tuple(dict.fromkeys(ids))


def parse_environ(block: bytes) -> Environ:
    """Parse /proc/PID/environ; if a name occurs twice, the first counts, as for getenv(). Bytes
    that are not UTF-8 become lone surrogates (PEP 383)."""
    if not block:
        return Environ({}, "empty_block")
    if block.count(b"\0") > _MOST_VARIABLES:
        return Environ({}, "overwritten" if block.endswith(b"\0\0") else "too_long")
    entries = block.split(b"\0")
    if not _VARIABLE.match(entries[0]) or block.endswith(b"\0\0"):
        return Environ({}, "overwritten")
    variables: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.decode("utf-8", "surrogateescape").partition("=")
        if equals:
            variables.setdefault(name, value)
    return Environ(variables)


def relevant_variables(environ: Environ) -> Environ:
    """Keep the variables that decide which GPUs a process sees, and misspelt names of them.

    Bytes that are not UTF-8 become the replacement character: no number and no UUID has any.
    """
    variables = environ.variables
    wanted = _MATTER.union(_misspelt(variables))
    names = [name for name in variables if name in wanted]
    if sum(len(name) + len(variables[name]) for name in names) > _MAX_ENVIRON_CHARS:
        return Environ({}, "too_long")
    kept = {
        printable(name, 64): variables[name]
        .encode("utf-8", "surrogateescape")
        .decode("utf-8", "replace")
        for name in names
    }
    return Environ(kept, environ.missing)


def _misspelt(names: Iterable[str]) -> tuple[str, ...]:
    lengths = range(len("CUDA_VISIBLE"), len(NAME) + _CLOSE + 1)
    near = (name for name in names if len(name) in lengths and name not in _MATTER)
    return tuple(filter(is_misspelt, islice(near, _MOST_LIKE_IT)))


@lru_cache(maxsize=1024)
def is_misspelt(name: str) -> bool:
    """Return whether a variable's name is a misspelt CUDA_VISIBLE_DEVICES."""
    if name == NAME or len(name) > len(NAME) + _CLOSE:
        return False
    plain = name.upper().replace("-", "_")
    if plain.endswith(_END):
        prefix = plain.removesuffix(_END)
        return prefix not in _OTHERS and _distance(prefix, "CUDA") <= _CLOSE_PREFIX
    if plain.startswith("CUDA_VISIBLE"):
        return True
    return len(name) >= len(NAME) - _CLOSE and _distance(plain, NAME) <= _CLOSE


def _distance(a: str, b: str) -> int:
    """Count the letters to insert, delete or replace (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (letter != other))
    return row[-1]
