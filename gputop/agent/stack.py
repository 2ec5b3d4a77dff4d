"""Where a Python process is, as py-spy reads it out of its memory without stopping it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time

from gputop.model.text import printable

_MOST_BYTES = 1 << 18
_MOST_LINES = 500
_WIDTH = 400
_INSTALL = "py-spy is not installed: pip install py-spy, in the environment of gputop or on PATH."

Stack = tuple[tuple[str, ...], str | None]
"""Lines, or why there are none and what to do."""


def dump_stack(pid: int, seconds: float = 10.0) -> Stack:
    """Ask py-spy, within that time; never raises."""
    beside = os.path.dirname(sys.executable)
    program = shutil.which("py-spy") or shutil.which("py-spy", path=beside)
    if program is None:
        return (), _INSTALL
    command = [program, "dump", "--pid", str(pid), "--nonblocking"]
    try:
        child = subprocess.Popen(
            command,
            env={**os.environ, "RUST_BACKTRACE": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return (), printable(f"py-spy cannot be started: {error.strerror} ({program})", 300)
    deadline = time.monotonic() + seconds
    output, ended = _read(child, deadline)
    status = _status(child, deadline if ended else 0.0)
    lines = output.decode("utf-8", "replace").expandtabs().splitlines()
    if len(output) < _MOST_BYTES:
        if status is None:
            return (), f"py-spy did not end within {seconds:g} s."
        if status:
            return (), _why_not(lines, status, " ".join(command[1:]))
    return tuple(printable(line, _WIDTH) for line in lines[:_MOST_LINES]), None


def _read(child: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """What it writes until it is enough or the time is over, and whether that is all."""
    assert child.stdout is not None
    output = b""
    with child.stdout as pipe:
        while len(output) < _MOST_BYTES:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                break
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                return output, True
            output += piece
    return output, False


def _status(child: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Its exit status; None of one that has to be killed, with what it started.

    That is not waited for: the kernel may hold it.
    """
    try:
        return child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return None


def _why_not(lines: list[str], status: int, arguments: str) -> str:
    if any("permission denied" in line.lower() for line in lines):
        return f'not permitted. By hand: sudo env "PATH=$PATH" py-spy {arguments}'
    said = [line for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("Error")]
    words = (errors or said or ["it said nothing"])[0]
    return printable(f"py-spy ended with status {status}: {words}", 300)
