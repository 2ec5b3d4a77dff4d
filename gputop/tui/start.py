"""The app started: on a terminal, or for a browser."""

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
"""What the terminal that `gputop serve` was started on says of itself; a browser is another."""


def run(
    feeds: Sequence[Feed],
    settings: Session,
    taking_over: Callable[[], None],
    driver: type[Driver] | None = None,
    make: Callable[[Sequence[Feed], Session], GputopApp] = GputopApp,
) -> tuple[int, Frame | None]:
    """Show the frames of machines until the user has seen enough; exit status and last frame.

    `taking_over` is called when the terminal is about to be drawn on; `driver`: of Textual, for
    what is no terminal of ours; `make`: the app, where it is another one.

    GputopError for an error of ours, when the terminal is as it was.
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
    """Show one browser the sources whose sockets, 0 and up, `gputop serve` has in a folder; `hosts`
    are the names that were given with -H. SourceError.

    A browser only looks. Nothing is signalled, and nothing that is chosen is saved; the holder of
    the sources refuses the same, whatever a viewer asks.
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
    """End with `gputop serve`, however that ended."""
    os.kill(os.getpid(), signal.SIGTERM)
