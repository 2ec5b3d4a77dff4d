"""What was picked for a program, and the variables with which it sees only that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gputop.allocation.gpu_watch import Picked, not_enough
from gputop.errors import GputopError, SourceError
from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.cuda.pick import PickRequest, value_of
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import plural, printable

_PLAIN = re.compile(r"[\w/-]+(?:,[\w/-]+)*", re.ASCII)


class Taken(NamedTuple):
    """GPUs or MIG devices, and the variables with which a program sees only these."""

    gpus: tuple[Gpu, ...]
    """Of MIG devices the GPU of each."""
    numbers: list[str]
    """As in `GpuPick.numbers`."""
    variables: dict[str, str]

    def __str__(self) -> str:
        return numbered(self.numbers)


def take(picked: Picked, request: PickRequest, by_uuid: bool) -> Taken:
    """Return the GPUs. NotEnoughGpusError, and GputopError if no variable can name them."""
    frame, pick = picked
    if pick.parts is None or pick.gpus is None:
        raise not_enough(picked, request)
    value = value_of(frame, pick.parts, PCI_BUS_ID, by_uuid)
    if value.text is None:
        raise GputopError(str(value.note))
    return Taken(pick.gpus, pick.numbers, {ORDER: PCI_BUS_ID, NAME: plain_value(value.text)})


def indices_of(gpus: Sequence[Gpu]) -> str:
    """Return `GPU 2`, or `GPUs 2, 6`."""
    return numbered([str(gpu.index) for gpu in gpus])


def numbered(numbers: Sequence[str]) -> str:
    """Return the numbers of GPUs or MIG devices in words: `GPU 0:2`."""
    return f"{plural(len(numbers), 'GPU')} {', '.join(numbers)}"


def plain_value(value: str) -> str:
    """Return a value for CUDA_VISIBLE_DEVICES. SourceError for one with characters that mean
    something to a shell: the driver there made it, or a program that poses as one."""
    if not _PLAIN.fullmatch(value):
        raise SourceError(f"a GPU calls itself {printable(value, 100)!r}, which is not a UUID")
    return value
