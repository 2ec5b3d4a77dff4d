"""The answer to a pasted text, the errors, and what is gathered while it is followed."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gputop.model.machine.environment import CONTAINER, NAME, ORDER
from gputop.model.machine.finding import Finding

CONCERNED = (NAME, ORDER, CONTAINER)
"""The variables that are followed."""
_MOST_WORK = 1 << 20
"""What the steps through one text may cost: a character that an expansion makes is 1."""
_STEP = 50
_MOST_PARSING = 1_000
"""Calls of tree-sitter's progress callback: 160 for 16 kB of loops, 700 for a pipeline of 4,000
parts. A text that is not a shell's at all can take minutes."""
_MOST_ADVICE = 50


def mentions(text: str) -> bool:
    """Return whether a text names one of the variables."""
    return any(name in text for name in CONCERNED)


class Unknown(NamedTuple):
    """A value that the text does not give, and why."""

    reason: str


PastedValue = str | None | Unknown
"""The value of a variable; None: unset."""


class NotKnownError(Exception):
    """No answer can be given; the message says why, as the end of a sentence."""

    words = "not understood"


class UnclearError(NotKnownError):
    """The text is not understood."""


class UndecidedError(NotKnownError):
    """The text is understood, but does not settle the answer."""

    words = "cannot be known from the text"


class NoProgramError(NotKnownError):
    """The text starts no program, by a mistake or because it only prints or sets."""

    words = "starts no program"


class StartedProgram(NamedTuple):
    """A program that a text starts."""

    value: PastedValue
    order: PastedValue
    gpus: PastedValue = None
    """The GPUs of its container, as NVIDIA_VISIBLE_DEVICES; None: it is in none."""
    command: tuple[str, ...] = ()


class Pasted(msgspec.Struct, frozen=True):
    """What a text does."""

    value: str | None
    """CUDA_VISIBLE_DEVICES of the program that it starts; None: unset."""
    order: str | None
    """CUDA_DEVICE_ORDER, likewise."""
    rest: tuple[str, ...]
    """The program's command line."""
    advice: tuple[Finding, ...]
    gpus: str | None = None
    """The GPUs of the program's container, as NVIDIA_VISIBLE_DEVICES; None: it is in none."""
    unknown: str | None = None
    """Why nothing can be claimed; None: the other fields hold."""


class Trace:
    """What the steps through one text have found, in all of its shells."""

    def __init__(self) -> None:
        self.started: list[StartedProgram] = []
        self.advice: list[Finding] = []
        self.written: set[str] = set()
        """Files that the text makes."""
        self.typed = False
        """Whether a text that starts nothing was typed into another window."""
        self.depth = 0
        self._work = self._parsing = 0

    def step(self, copied: int = 0) -> None:
        """Count a step, which copies so many variables."""
        self.spend(_STEP + copied)

    def spend(self, work: int) -> None:
        """Count work before it is done, such as the characters that an expansion makes. This is
        where hostile texts end: UnclearError if it is too much for one text."""
        self._work += work
        if self._work > _MOST_WORK:
            raise UnclearError("it takes too many steps to follow")

    def parses_too_long(self, *_: object) -> bool:
        """Count a call of tree-sitter's progress callback, in all texts inside this one."""
        self._parsing += 1
        return self._parsing > _MOST_PARSING

    def say(self, advice: Finding) -> None:
        """Add advice, unless it is there already."""
        if advice not in self.advice and len(self.advice) < _MOST_ADVICE:
            self.advice.append(advice)
