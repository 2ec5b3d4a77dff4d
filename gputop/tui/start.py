"""Start the app on a terminal, or for a browser."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

from msgspec.structs import replace
from textual.driver import Driver

from gputop.model.machine.frame import Frame
from gputop.settings import Session
from gputop.sources.feed import Feed
from gputop.tui import glyphs
from gputop.tui.app import GputopApp
from gputop.tui.panes.lines import Lines
from gputop.tui.terminal import app as terminal_app
from gputop.tui.terminal import capabilities

_BROWSER = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
_NOT_OURS = ("NO_COLOR", "STY", "TMUX", "TEXTUAL_DRIVER")
"""Variables that describe the terminal of `gputop serve`, and are wrong for a browser."""


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
    override = None if settings.glyphs == "auto" else settings.glyphs
    encoding = getattr(sys.__stderr__, "encoding", None)
    Lines.glyphs = glyphs.choose(capabilities.initial_environ(), encoding, override)
    capabilities.drop_inherited_colours(os.environ)
    app = make(feeds, settings)
    app.taking_over = taking_over
    app.encoding = "ascii" if Lines.glyphs.name == "ascii" else None
    try:
        status = terminal_app.run(app, settings.mouse, driver)
    finally:
        app.close_sources()
    return status, app.last_frame


def view(folder: str, hosts: Sequence[str], session: Session) -> int:
    """Show one browser the sources that `gputop serve` shares in a folder, by sockets named 0, 1,
    and so on. `hosts` are the names given with -H. Raise SourceError if a socket is not served.

    A browser only watches: it sends no signals and saves no choices. `gputop serve`, which holds
    the sources, refuses such requests too.
    """
    from textual.drivers.web_driver import WebDriver  # a terminal needs none of it

    from gputop.sources.shared import SharedSource

    os.environ.update(_BROWSER)
    for name in _NOT_OURS:
        os.environ.pop(name, None)
    sources = [
        SharedSource(os.path.join(folder, str(number)), host, _end)
        for number, host in enumerate(hosts or (None,))
    ]
    only_looks = replace(session, readonly=True, path=None, glyphs="unicode", mouse=True)
    status, _ = run([Feed(source) for source in sources], only_looks, lambda: None, WebDriver)
    return status


def _end() -> None:
    """End this process because `gputop serve` has ended."""
    os.kill(os.getpid(), signal.SIGTERM)
