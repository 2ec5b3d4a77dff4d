"""The app started: on a terminal, or for a browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from textual.driver import Driver

from gputop.model.machine.frame import Frame
from gputop.settings import Session
from gputop.sources.feed import Feed
from gputop.tui import glyphs
from gputop.tui.app import GputopApp
from gputop.tui.panes.lines import Lines
from gputop.tui.terminal import app as terminal_app
from gputop.tui.terminal import capabilities


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
