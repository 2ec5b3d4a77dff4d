"""A viewer: the screen for one browser, at the other end of what `gputop serve` holds.

It only looks. Nothing is signalled, and nothing that is chosen is saved; the holder of the sources
refuses the same, whatever a viewer asks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from msgspec.structs import replace
from textual.drivers.web_driver import WebDriver

from gputop.settings import Session
from gputop.sources.feed import Feed
from gputop.sources.shared import SharedSource
from gputop.tui.start import run

_TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
_NOT_OURS = ("NO_COLOR", "STY", "TMUX", "TEXTUAL_DRIVER")
"""What the terminal that `gputop serve` was started on says of itself; a browser is another."""


def view(folder: str, hosts: Sequence[str], session: Session) -> int:
    """Show the sources whose sockets, 0 and up, are in a folder; `hosts` are the names that were
    given with -H. SourceError."""
    os.environ.update(_TERMINAL)
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
