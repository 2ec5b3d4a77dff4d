"""The agent of this machine as a child process, started as early as may be.

Its first frame takes about as long as gputop takes to be ready for it, so a screen's agent is
started before anything else is imported: this module imports little.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, NamedTuple

INTERVAL = 1.0
"""Seconds of an agent that is started before the settings are read."""
_HERE = os.path.dirname(os.path.abspath(__file__))
_MAIN = os.path.join(os.path.dirname(_HERE), "__main__.py")
_WITHOUT_SCREEN = {"--once", "--json", "--demo", "-h", "--help", "--version"}


class Child(NamedTuple):
    """An agent at the other end of its pipes."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    """What it wrote on standard error."""


_early: dict[bool, Child] = {}
"""By whether it is for one look alone."""


def start(*arguments: str) -> Child:
    """Start an agent."""
    errors = os.fdopen(os.memfd_create("agent's errors"), "w+b")
    process = subprocess.Popen(
        [sys.executable, _MAIN, "agent", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,  # the terminal's signals are for the screen
    )
    return Child(process, errors)


def start_early(words: Sequence[str]) -> None:
    """Start one if these arguments say what for; it ends with us if nobody takes it."""
    if words in (["--once"], ["--json"]):
        _early[True] = start("--once")
    elif all(map(os.isatty, range(3))) and not any(
        word in _WITHOUT_SCREEN or not word.startswith("-") for word in words
    ):
        _early[False] = start("--interval", str(INTERVAL))


def take_early(once: bool) -> Child | None:
    """The agent that was started early; None if there is none, or somebody has it."""
    return _early.pop(once, None)
