"""A screen that is one page to scroll, with its keys below."""

from __future__ import annotations

from typing import TypeVar

from textual.app import ComposeResult
from textual.screen import Screen

from gputop.tui.keys import KeysInTurn, keyed
from gputop.tui.widgets.bars import PageKeys
from gputop.tui.widgets.page import Page

R = TypeVar("R")


class PageScreen(Screen[R]):
    """A subclass gives `_show`, and bindings: those with a `key_display` are told below."""

    def compose(self) -> ComposeResult:
        """The page, and the keys."""
        yield Page(id="page")
        own = self.app.own_keys if isinstance(self.app, KeysInTurn) else {}
        words = [
            (one.key_display or one.key.partition(",")[0], one.description.lower())
            for one in keyed(own, self.BINDINGS)
            if one.show
        ]
        yield PageKeys([*words, ("j k PgDn", "scroll"), ("q", "quit")], id="keys")

    def on_mount(self) -> None:
        """A frame may have come before the page was made."""
        self._show()

    def on_resize(self) -> None:
        """Other line ends."""
        self._show()

    def action_leave(self) -> None:
        """Back to the tables."""
        self.dismiss(None)

    def _show(self) -> None:
        """Lines of now."""
        raise NotImplementedError
