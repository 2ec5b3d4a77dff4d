"""Other programs, run for what they say: none may hang, flood or outlive who asks it.

Which may be run at all, and with which variables, is for trust.py to say.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from gputop.trust import is_elevated, program_environment

MOST_BYTES = 1 << 18
_DIES = 0.2
"""Seconds for one that is killed."""


class Done(NamedTuple):
    """What a program wrote, at most so much, and how it ended."""

    output: bytes
    status: int | None
    """None: it had to be killed; with all of MOST_BYTES written it may be cut."""
    stuck: subprocess.Popen[bytes] | None = None
    """The program, where it was killed and the kernel holds it still."""


def run_program(
    command: Sequence[str],
    seconds: float,
    env: Mapping[str, str | None] | None = None,
    errors: int = subprocess.STDOUT,
    stdin: int = subprocess.DEVNULL,
) -> Done:
    """Run a program, by its whole path, for `seconds` at most; OSError where it cannot be started.

    What it started ends with it. `env`: variables over those that programs get, None for one that
    is not set; `errors` and `stdin`: as for Popen.
    """
    variables = {**program_environment(), **(env or {})}
    child = subprocess.Popen(
        list(command),
        env={name: text for name, text in variables.items() if text is not None},
        cwd="/" if is_elevated() else None,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )
    deadline = time.monotonic() + seconds
    output, ended = _read(child, deadline)
    if ended:
        with suppress(subprocess.TimeoutExpired):
            return Done(output, child.wait(max(0.0, deadline - time.monotonic())))
    # Whatever else it may have ended of, now that nobody reads it.
    return Done(output, None, _kill(child))


def answer_of(command: Sequence[str], seconds: float) -> str:
    """What it writes in time, its errors apart; empty if it fails."""
    try:
        done = run_program(command, seconds, errors=subprocess.DEVNULL)
    except OSError:
        return ""
    return done.output.decode("utf-8", "replace") if done.status == 0 else ""


def _read(child: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """What it writes until it is enough or the time is over, and whether that is all."""
    assert child.stdout is not None
    output = b""
    with child.stdout as pipe:
        while len(output) < MOST_BYTES:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                break
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                return output, True
            output += piece
    return output, False


def _kill(child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
    """And take notice of its end: nobody else may. Return it if the kernel holds it."""
    os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_DIES)
        return None
    return child
