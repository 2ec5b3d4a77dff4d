"""Screens of one subject: a page to scroll, with its keys below."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from gputop.tui.keys import first_keys
from gputop.tui.messages import Note
from gputop.tui.panes.heading import PageKeys, described_key, key_words, works
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.page import Page
from gputop.tui.panes.paper import Paper
from gputop.tui.snapshot import Snapshot
from gputop.tui.terminal.key_queue import keyed

R = TypeVar("R")
_key = partial(described_key, "Pages", area="page")
IDLE = 10.0
"""Seconds without work that are worth mentioning."""
_WAITING: StyledLine = [("  waiting for the driver", "quiet")]


class PageScreen(Screen[R]):
    """A page over a line of keys. A subclass gives `lines`, and bindings, with `show` if listed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("q", "leave", "Back", "Leave any page"),
        _key("f9,K", "no_signal", "Signal", "Say where F9 signals", name="signal"),
    ]  # fmt: skip

    MORE_KEYS: ClassVar[tuple[tuple[str, str], ...]] = (("j k PgDn", "scroll"),)

    def __init__(self) -> None:
        super().__init__()
        self.shown: Snapshot | None = None

    def lines(self, paper: Paper, shown: Snapshot) -> Iterator[StyledLine]:
        raise NotImplementedError

    def body(self) -> Widget:
        """Make the widget above the keys."""
        return Page()

    def compose(self) -> ComposeResult:
        yield self.body()
        yield PageKeys(self._all_keys, ("back",), with_notes=True)

    def key_words(self) -> list[tuple[str, str]]:
        """Return the keys of the last line, each with its word."""
        own = [b for b in keyed(self.app, self.BINDINGS) if self.offers(b)]
        return [*key_words(own), *self.MORE_KEYS]

    @property
    def _all_keys(self) -> list[tuple[str, str]]:
        """The keys of the last line, after those that move in time if it is not now."""
        times = first_keys(self.shown.instant, self.app) if self.shown else ()
        return [*(time for time in times if time[1] != "now"), *self.key_words()]

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def offers(self, binding: Binding) -> bool:
        """Return whether its key is among those below; one that is not may still answer."""
        return works(self, binding)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_no_signal(self) -> None:
        self.post_message(Note("F9 signals from the table, and on the page of a process"))

    def show_frame(self, shown: Snapshot) -> None:
        before, self.shown = self.shown, shown
        if self.is_mounted and (before is None or before.instant != shown.instant):
            self.query_one(PageKeys).show(self._all_keys)
        self.draw()

    def draw(self) -> None:
        """Draw all lines anew once the page is mounted; before a frame, say what it waits for."""
        if self.is_mounted:
            page = self.query_one(Page)
            lines = self.lines(page.paper, self.shown) if self.shown else iter([_WAITING])
            page.show_lines(list(lines))
