"""A program that has the terminal to itself for a while, such as one that asks for a password."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gputop.tui.terminal.app import TerminalApp


def run_outside(
    app: TerminalApp[Any], command: Sequence[str], environ: Mapping[str, str], words: str
) -> int | None:
    """Suspend the screen, say `words`, and run a program on the terminal until it ends; its exit
    status, None where it cannot be started."""
    with app.suspend(), _without_interrupt(app):
        os.write(2, f"{words}\n".encode(errors="replace"))
        try:
            return subprocess.run(command, env=dict(environ), check=False).returncode
        except OSError:
            return None


@contextmanager
def _without_interrupt(app: TerminalApp[Any]) -> Iterator[None]:
    """Leave Ctrl-C, which the terminal sends to both, to the program."""
    loop = asyncio.get_running_loop()
    loop.remove_signal_handler(signal.SIGINT)
    # To ignore it would be inherited.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        loop.add_signal_handler(signal.SIGINT, app.end_by, signal.SIGINT)
