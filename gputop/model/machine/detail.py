"""What is shown of one process to who asks for it: too much, or too private, for every frame.

A secret is never shown, not even to root, who could read it: a screen is looked at by others, and
frames go into files. What may be one counts as one: a name too many that is hidden costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from gputop.model.machine.environment import State
from gputop.model.machine.secrets import is_secret
from gputop.model.machine.text import printable
from gputop.model.machine.variables import is_of_gpus

VariableKind = Literal["gpu", "other", "secret"]
"""gpu: of CUDA, a framework, a launcher or a job; secret: its value is never shown."""

_MOST_VARIABLES = 512
_NAME, _VALUE = 96, 1024


class EnvVariable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A variable that a process was started with."""

    name: str
    kind: VariableKind
    value: str | None = None
    """None where it is not shown."""


class ChildProcess(msgspec.Struct, frozen=True):
    """A process that the process started itself."""

    pid: int
    start_time: float
    """Seconds since the epoch."""
    command: str


class ProcessDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a `protocol.Detail`: None is what may not be read."""

    pid: int
    start_time: float
    """Of the process that was asked about."""
    gone: bool = False
    """There is no such process any more, or a zombie, or another one has its number."""
    variables: tuple[EnvVariable, ...] | None = None
    """By name; of very many the first."""
    variables_count: int = 0
    """How many it was started with."""
    missing: State = "unset"
    """Why there are no variables."""
    files: int | None = None
    """How many it has open."""
    devices: tuple[str, ...] | None = None
    """Of the GPUs and of DRI, those of its open files."""
    devices_whole: bool = True
    """False where it has more files open than could be looked at."""
    children: tuple[ChildProcess, ...] = ()
    """The oldest, of very many."""
    children_count: int = 0


class ProcessStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a `protocol.Stack`."""

    pid: int
    start_time: float
    lines: tuple[str, ...] = ()
    """As py-spy printed them."""
    problem: str | None = None
    """Why there are none, and what to do."""


def kind_of(name: str, value: str) -> VariableKind:
    """Tell what a variable is about."""
    if is_secret(name, value):
        return "secret"
    return "gpu" if is_of_gpus(name) else "other"


def env_variables(variables: Mapping[str, str], *, hidden: bool) -> tuple[EnvVariable, ...]:
    """What may be shown of variables, printable: values of those about GPUs, with `hidden` those of
    others too; of secrets the names."""
    first = sorted(variables, key=lambda name: (not is_of_gpus(name), name))[:_MOST_VARIABLES]
    shown = []
    for name in sorted(first):
        value = variables[name]
        kind = kind_of(name, value)
        open_ = kind == "gpu" or (hidden and kind == "other")
        text = printable(value, _VALUE) if open_ else None
        shown.append(EnvVariable(printable(name, _NAME), kind, text))
    return tuple(shown)
