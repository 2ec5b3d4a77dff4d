"""Start the app on a terminal, or for a browser."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

from textual.driver import Driver

from gputop.model.machine.frame import Frame
from gputop.settings import Session, without_actions
from gputop.sources.feed import Feed
from gputop.tui import glyphs
from gputop.tui.app import GputopApp
from gputop.tui.panes.lines import Lines
from gputop.tui.terminal import app as terminal_app
from gputop.tui.terminal import capabilities

if TYPE_CHECKING:
    from gputop.sources.prometheus.watch import ClusterWatch

_BROWSER = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
_HOST_TERMINAL_VARS = ("NO_COLOR", "STY", "TMUX", "TEXTUAL_DRIVER")
"""Variables that describe the terminal of `gputop serve`, and are wrong for a browser."""
_ROOM, _ROOM_FOR_HOST = 512 << 20, 16 << 20
"""Bytes that a viewer may have as data, and more for each host: its thread's stack and history."""


def run(
    feeds: Sequence[Feed],
    settings: Session,
    taking_over: Callable[[], None],
    driver: type[Driver] | None = None,
    make: Callable[[Sequence[Feed], Session], GputopApp] = GputopApp,
) -> tuple[int, Frame | None]:
    """Show frames of machines until the user leaves; return the exit status and the last frame.

    `taking_over` is called just before the terminal is drawn on; `driver` is a Textual driver for
    something other than this terminal; `make` constructs the app.

    Raise GputopError for an internal error, once the terminal is restored.
    """
    encoding = getattr(sys.__stderr__, "encoding", None)
    Lines.glyphs = glyphs.choose(capabilities.initial_environ(), encoding, settings.glyphs)
    capabilities.drop_inherited_colours(os.environ)
    app = make(feeds, settings)
    app.taking_over = taking_over
    app.encoding = "ascii" if Lines.glyphs.name == "ascii" else None
    try:
        status = terminal_app.run(app, settings.mouse, driver)
    finally:
        app.shown.close()
    return status, app.shown.frame


def view(
    door: int,
    size: tuple[int, int],
    hosts: Sequence[str],
    session: Session,
    cluster: ClusterWatch | None = None,
) -> int:
    """Show one browser the sources that `gputop serve` shares through a door, a descriptor that
    this process inherited, or a `cluster`. `size`: columns and lines; `hosts`: the names given with
    -H. Raise SourceError if nothing is behind the door.

    A browser only watches: it sends no signals, runs no programs and saves no choices. `gputop
    serve`, which holds the sources, refuses such requests too.
    """
    _confine(len(hosts))
    from gputop.sources.shared import SharedSource
    from gputop.tui.terminal.browser import BrowserDriver

    columns, lines = map(str, size)
    os.environ.update(_BROWSER, COLUMNS=columns, ROWS=lines)
    for name in _HOST_TERMINAL_VARS:
        os.environ.pop(name, None)
    shared = socket(fileno=door)
    shared.set_inheritable(False)
    threading.Thread(target=_end_with, args=(shared,), daemon=True).start()
    shown = () if cluster else hosts or (None,)
    sources = [SharedSource(shared, number, host) for number, host in enumerate(shown)]
    feeds = [Feed(source) for source in sources]
    make = partial(GputopApp, cluster=cluster)
    status, _ = run(feeds, without_actions(session), lambda: None, BrowserDriver, make)
    return status


def _confine(hosts: int) -> None:
    """Keep this process from writing files, and from taking memory without end, by the kernel."""
    import resource  # a terminal needs none of it

    room = _ROOM + hosts * _ROOM_FOR_HOST
    wanted = {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: room}
    for limit, value in wanted.items():
        _, most = resource.getrlimit(limit)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))


def _end_with(door: socket) -> None:
    """Wait until `gputop serve`, at the other end of the door, has ended, and end this process."""
    with suppress(OSError):
        door.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)
