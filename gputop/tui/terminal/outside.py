"""What goes to the terminal besides the picture: notifications, and a program that has it to itself
for a while, such as one that asks for a password."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from textual.app import App

from gputop.tui.terminal.app import TerminalApp
from gputop.tui.terminal.compatibility import is_supported

_AFTERWARDS = 0.2
"""Seconds until the event loop has seen a Ctrl-C that the terminal sent to both programs."""


def run_outside(
    app: TerminalApp[Any], command: Sequence[str], environ: Mapping[str, str], words: str
) -> int | None:
    """Suspend the screen, print `words`, and run a program that asks on the terminal itself
    (/dev/tty). Return its exit status; None if it cannot be started. It has no input and output:
    these would be those of another machine. Ctrl-C ends only that program."""
    app.heeds_interrupt = False
    try:
        with app.suspend():
            os.write(2, f"{words}\n".encode(errors="replace"))
            nothing = subprocess.DEVNULL
            done = subprocess.run(
                command, env=dict(environ), stdin=nothing, stdout=nothing, check=False
            )
            return done.returncode
    except OSError:
        return None
    finally:
        app.set_timer(_AFTERWARDS, app.heed_interrupt)


def alert(app: App[Any], sequence: str) -> None:
    """Send the sequence of a notification between two pictures; ring the bell instead if this
    Textual does not fit."""
    if not is_supported():
        app.bell()
    elif sequence and app._driver is not None:
        app._driver.write(sequence)
