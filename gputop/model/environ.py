"""The environment of a process, from the raw bytes of its /proc/PID/environ.

Those are the variables that it was started with; what it set later is not there. A program that
changes its title (setproctitle: Ray, vLLM, gunicorn) writes over them, which must not be taken for
"no variable is set".

Source: proc_pid_environ(5); measured with setproctitle 1.3.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

from gputop.model.text import printable

NAME = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
CONTAINER = "NVIDIA_VISIBLE_DEVICES"

State = Literal[
    "value", "empty", "unset", "overwritten", "empty_block", "unreadable", "gone", "too_long"
]
"""What is known of a variable.

value, empty, unset   as the process was started
overwritten           the process wrote over its environment
empty_block           there are no bytes: started without any variable, or a kernel thread
unreadable, gone      no permission, no such process: said by who reads the file
too_long              those that matter are longer than anybody means them to be
"""

_VARIABLE = re.compile(rb"[A-Za-z_][^= ]*=")
_CLOSE = 3
_LONGEST = 4096
_MATTER = {NAME, ORDER, CONTAINER, "CUDA_MPS_PIPE_DIRECTORY", "SLURM_JOB_GPUS",
           "SLURM_STEP_GPUS", "LOCAL_RANK"}  # fmt: skip
# The same variable of another vendor's runtime (Moore Threads), two letters away.
_OTHERS = {"MUSA_VISIBLE_DEVICES"}


class Variable(msgspec.Struct, frozen=True):
    """One variable of a process."""

    state: State
    value: str | None = None
    """Bytes that are not UTF-8 are lone surrogates (PEP 383)."""


class Environ(msgspec.Struct, frozen=True, omit_defaults=True):
    """The variables of a process."""

    variables: dict[str, str] = {}
    missing: State = "unset"
    """What a variable is that is not among them."""

    def get(self, name: str) -> Variable:
        """Look a variable up as getenv() does."""
        value = self.variables.get(name)
        if value is None:
            return Variable(self.missing)
        return Variable("value" if value else "empty", value)

    @property
    def misspelt(self) -> tuple[str, ...]:
        """Names that were meant to be CUDA_VISIBLE_DEVICES."""
        return tuple(name for name in self.variables if is_misspelt(name))


class Descendant(msgspec.Struct, frozen=True):
    """A process that a GPU process started, directly or not, with other variables than its own."""

    pid: int
    environ: Environ


class Surroundings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What decides which GPUs a process sees and what it calls them, as /proc tells it."""

    environ: Environ = Environ()
    """Of its variables `what_matters`."""
    minors: tuple[int, ...] | None = None
    """The N of the /dev/nvidiaN that it sees, rising; None: not known, none, or those of gputop."""
    in_container: bool = False
    frameworks: tuple[str, ...] = ()
    """Ids (`model.frameworks`) of the libraries that it has loaded; empty: none, or not known."""
    descendant: Descendant | None = None
    """The one whose variables tell what its own are by now; None where there is none."""


def parse_environ(block: bytes) -> Environ:
    """Read /proc/PID/environ; of a name that stands twice the first counts, as for getenv()."""
    if not block:
        return Environ({}, "empty_block")
    entries = block.split(b"\0")
    if not _VARIABLE.match(entries[0]) or block.endswith(b"\0\0"):
        return Environ({}, "overwritten")
    variables: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.decode("utf-8", "surrogateescape").partition("=")
        if equals:
            variables.setdefault(name, value)
    return Environ(variables)


def what_matters(environ: Environ) -> Environ:
    """Keep the variables that decide which GPUs a process sees, and misspelt names of them.

    Bytes that are not UTF-8 become the replacement character: no number and no UUID has any.
    """
    kept = {
        printable(name, 64): value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for name, value in environ.variables.items()
        if name in _MATTER or is_misspelt(name)
    }
    if sum(map(len, kept.values())) > _LONGEST:
        return Environ({}, "too_long")
    return Environ(kept, environ.missing)


@lru_cache(maxsize=1024)
def is_misspelt(name: str) -> bool:
    """Tell whether a variable's name was meant to be CUDA_VISIBLE_DEVICES and is not."""
    if name == NAME or name in _OTHERS or len(name) > len(NAME) + _CLOSE:
        return False
    plain = name.upper().replace("-", "_")
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
