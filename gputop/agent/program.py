"""Runs other programs for their output: none may hang, flood or outlive its caller.

trust.py decides which programs may run, and with which variables.
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
"""Seconds for a killed program to end."""


class ProgramResult(NamedTuple):
    """What a program wrote, up to about MOST_BYTES, and how it ended."""

    output: bytes
    status: int | None
    """None: it was killed, as its time was over or its output reached MOST_BYTES and may be cut."""
    stuck: subprocess.Popen[bytes] | None = None
    """The program, if it was killed and the kernel still holds it."""


def run_program(
    command: Sequence[str],
    seconds: float,
    env: Mapping[str, str | None] | None = None,
    errors: int = subprocess.STDOUT,
    stdin: int = subprocess.DEVNULL,
) -> ProgramResult:
    """Run a program, by its full path, for `seconds` at most; OSError if it cannot be started.

    If it is killed, so is what it started. `env`: variables over those that programs get, None for
    an unset one; `errors` and `stdin`: as for Popen.
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
            return ProgramResult(output, child.wait(max(0.0, deadline - time.monotonic())))
    # Without its status: the closed pipe may be what ended it.
    return ProgramResult(output, None, _kill(child))


def answer_of(command: Sequence[str], seconds: float) -> str:
    """Return what a program writes to standard output in `seconds`; empty if it fails."""
    try:
        done = run_program(command, seconds, errors=subprocess.DEVNULL)
    except OSError:
        return ""
    return done.output.decode("utf-8", "replace") if done.status == 0 else ""


def _read(child: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """Return the output up to MOST_BYTES or `deadline`, and whether that is all of it."""
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
    """Kill a program and what it started, and reap it. Return it if the kernel still holds it."""
    os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_DIES)
        return None
    return child
