"""Where a Python process is, as py-spy reads it out of its memory without stopping it."""

from __future__ import annotations

import os
import sys

from gputop.agent.program import MOST_BYTES, run_program
from gputop.model.machine.text import printable
from gputop.trust import find_program

_MOST_LINES = 500
_WIDTH = 400
_INSTALL = "py-spy is not installed: pip install py-spy, in the environment of gputop or on PATH."

StackDump = tuple[tuple[str, ...], str | None]
"""Lines, or why there are none and what to do."""


def dump_stack(pid: int, seconds: float = 10.0) -> StackDump:
    """Ask py-spy, within that time; never raises."""
    program, refused = find_program("py-spy", [os.path.dirname(sys.executable)])
    if program is None:
        return (), printable(refused, 300) if refused else _INSTALL
    command = [program, "dump", "--pid", str(pid), "--nonblocking"]
    try:
        output, status = run_program(command, seconds, {"RUST_BACKTRACE": "0"})
    except OSError as error:
        return (), printable(f"py-spy cannot be started: {error.strerror} ({program})", 300)
    lines = output.decode("utf-8", "replace").expandtabs().splitlines()
    if len(output) < MOST_BYTES:
        if status is None:
            return (), f"py-spy did not end within {seconds:g} s."
        if status:
            return (), _why_not(lines, status, " ".join(command[1:]))
    return tuple(printable(line, _WIDTH) for line in lines[:_MOST_LINES]), None


def _why_not(lines: list[str], status: int, arguments: str) -> str:
    if any("permission denied" in line.lower() for line in lines):
        return f'not permitted. By hand: sudo env "PATH=$PATH" py-spy {arguments}'
    said = [line for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("Error")]
    words = (errors or said or ["it said nothing"])[0]
    return printable(f"py-spy ended with status {status}: {words}", 300)
