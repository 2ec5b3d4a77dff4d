"""The screen on a terminal, from its first picture to what is left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gputop.output import write
from gputop.sources.feed import Feed, close_all
from gputop.tui.terminal.splash import Splash

if TYPE_CHECKING:
    from gputop.settings import Session
    from gputop.tui.app import GputopApp


def show(
    feeds: Sequence[Feed],
    session: Session,
    make: Callable[[], Callable[[Sequence[Feed], Session], GputopApp]] | None = None,
) -> int:
    """Show machines until the user has seen enough; the exit status. GputopError.

    Their first frame is painted before Textual is imported; `make` returns what makes the app then.
    """
    splash = Splash(feeds, session.user)
    try:
        splash.start()
        from gputop.tui.app import GputopApp
        from gputop.tui.start import run

        status, frame = run(feeds, session, splash.hand_over, make=make() if make else GputopApp)
    finally:
        splash.leave()
        close_all([feed.source for feed in feeds])
    if session.print_last and frame is not None and frame.problem is None:
        from gputop.export.table import table

        write(table(frame, session.processes.idle_after))
    return status
