"""What is told of one process to who asks for it: too much, or too private, for every frame.

A secret is never told, not even to root, who could read it: a screen is looked at by others, and
frames go into files. What may be one counts as one: a name too many that is hidden costs little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from gputop.model.environ import State
from gputop.model.text import printable

Kind = Literal["gpu", "other", "secret"]
"""gpu: of CUDA, a framework, a launcher or a job; secret: its value is never told."""

_PREFIXES = (
    "CUDA_", "NCCL_", "NVIDIA_", "SLURM_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "TF_", "XLA_",
    "JAX_", "OMPI_", "PMI_", "RAY_", "VLLM_",
)  # fmt: skip
_NAMES = {"OMP_NUM_THREADS", "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE",
          "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # fmt: skip

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|_PWD\Z|CREDENTIAL|AUTH|COOKIE|PRIVATE|DSN", re.IGNORECASE
)
_GPU_UUID = re.compile(
    r"\b(?:MIG-GPU|MIG|GPU)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"://[^/\s]*@"  # a URL with a user, who may be a token
    r"|passw|secret|token|credential|api.?key|bearer|BEGIN [A-Z ]{0,40}PRIVATE"
    r"|(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{16}"  # a token, or a part of one
    r"|[A-Za-z0-9]{24}",
    re.IGNORECASE,
)
_BASE64 = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9+=_-][A-Za-z0-9+/=_-]{19,}")

_MOST_VARIABLES = 512
_NAME, _VALUE = 96, 1024


class EnvVariable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A variable that a process was started with."""

    name: str
    kind: Kind
    value: str | None = None
    """None where it is not told."""


class Child(msgspec.Struct, frozen=True):
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
    missing: State = "unset"
    """Why there are no variables."""
    files: int | None = None
    """How many it has open."""
    devices: tuple[str, ...] | None = None
    """Of the GPUs and of DRI, those of its open files."""
    children: tuple[Child, ...] = ()
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


def kind_of(name: str, value: str) -> Kind:
    """Tell what a variable is about."""
    if _SECRET_NAME.search(name) or _looks_secret(value):
        return "secret"
    return "gpu" if name in _NAMES or name.startswith(_PREFIXES) else "other"


def told(variables: Mapping[str, str], *, hidden: bool) -> tuple[EnvVariable, ...]:
    """What may be told of variables, printable: values of those about GPUs, with `hidden` those of
    others too; of secrets the names."""
    found = []
    for name, value in sorted(variables.items())[:_MOST_VARIABLES]:
        kind = kind_of(name, value)
        open_ = kind == "gpu" or (hidden and kind == "other")
        text = printable(value, _VALUE) if open_ else None
        found.append(EnvVariable(printable(name, _NAME), kind, text))
    return tuple(found)


def _looks_secret(value: str) -> bool:
    rest = _GPU_UUID.sub("", value)
    return bool(_SECRET_VALUE.search(rest) or _BASE64.fullmatch(rest))
