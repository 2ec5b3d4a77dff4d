"""`gputop help` on a terminal: shows the manual page by page, and searches it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, Markdown, Static

from gputop.errors import UsageError
from gputop.manual import TOPICS, contents, page, search
from gputop.output import complain
from gputop.settings import Session, session_of
from gputop.tui import themes
from gputop.tui.keys import following
from gputop.tui.panes.heading import KeyLine
from gputop.tui.terminal import app as terminal_app
from gputop.tui.terminal import capabilities

_CONTENTS = "contents"
_KEYS = (
    ("Space", "on"), ("b", "back"), ("n p", "other page"), ("c", "contents"), ("/", "search"),
    ("q", "quit"),
)  # fmt: skip


class ManualApp(terminal_app.TerminalApp[None]):
    """Shows the pages of the manual."""

    ALLOW_SELECT = False
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; overflow: hidden; }
    VerticalScroll { height: 1fr; }
    #title { height: 1; color: $gp-heading; text-style: bold; padding: 0 1; }
    Markdown { padding: 0 1; }
    MarkdownH1, MarkdownH2, MarkdownH3 {
        content-align: left middle; margin: 1 0 0 0; color: $gp-heading; text-style: bold;
    }
    MarkdownTable { margin: 1 0; }
    MarkdownTableContent { keyline: none; grid-gutter: 0 1; }
    MarkdownTableContent > .cell, MarkdownTableContent > .header { padding: 0 1 0 0; }
    MarkdownTableContent > .header { color: $gp-heading; }
    MarkdownFence, MarkdownFence:ansi { margin: 0 0 1 0; background: $background; }
    MarkdownFence > Label, MarkdownFence:ansi > Label { padding: 0 4; }
    Markdown MarkdownBlock > .code_inline { color: $gp-key; background: $background; }
    Input { display: none; height: 1; border: none; padding: 0 1; }
    Input.-asks { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,f10,ctrl+c", "quit", "Quit", tooltip="Leave the manual", id="manual.quit"),
        Binding("escape", "leave", "Back", tooltip="Leave the search, or the manual",
                id="manual.leave"),
        Binding("down,j,enter", "scroll(1)", "Down", tooltip="A line down", id="manual.down"),
        Binding("up,k", "scroll(-1)", "Up", tooltip="A line up", id="manual.up"),
        Binding("space,pagedown,ctrl+f", "screenful(1)", "On", tooltip="A screenful down",
                id="manual.on"),
        Binding("b,pageup,ctrl+b", "screenful(-1)", "Back", tooltip="A screenful up",
                id="manual.back"),
        Binding("home,g", "end(False)", "Top", tooltip="To the beginning", id="manual.top"),
        Binding("end,G", "end(True)", "End", tooltip="To the end", id="manual.end"),
        Binding("n,right", "turn(1)", "Next", tooltip="The next page", id="manual.next"),
        Binding("p,left", "turn(-1)", "Previous", tooltip="The page before", id="manual.previous"),
        Binding("c", "contents", "Contents", tooltip="All pages", id="manual.contents"),
        Binding("slash", "search", "Search", tooltip="Find a word in all pages",
                id="manual.search"),
    ]  # fmt: skip

    def __init__(self, topic: str, theme: str, keys: Mapping[str, str]) -> None:
        """`keys` are the user's own, by id."""
        super().__init__()
        self._keys = keys
        for each in themes.THEMES:
            self.register_theme(each)
        self.theme = theme
        self._topic = topic

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with VerticalScroll(can_focus=False):
            yield Markdown(open_links=False)  # root must not start a browser
        yield Input(placeholder="a word", compact=True)
        yield KeyLine(_KEYS)

    async def on_mount(self) -> None:
        self.set_keymap(self._keys)
        await self._open(self._topic)

    async def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Open another page of the manual; other links do nothing, as their text says enough."""
        topic = event.href.partition("#")[0].removesuffix(".md")
        if topic in TOPICS:
            await self._open(topic)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        self._end_search()
        if event.value.strip():
            await self._show(f"/{event.value}", _results(event.value.strip()))

    def action_leave(self) -> None:
        if self.query_one(Input).has_class("-asks"):
            self._end_search()
        else:
            self.exit()

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_screenful(self, screenfuls: int) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=screenfuls * max(1, scroll.size.height - 1), animate=False)

    def action_end(self, last: bool) -> None:
        scroll = self.query_one(VerticalScroll)
        (scroll.scroll_end if last else scroll.scroll_home)(animate=False)

    async def action_turn(self, pages: int) -> None:
        await self._open(following(self._topic, TOPICS, pages))

    async def action_contents(self) -> None:
        await self._show(_CONTENTS, contents())

    def action_search(self) -> None:
        line = self.query_one(Input)
        line.add_class("-asks")
        line.value = ""
        line.focus()

    def _end_search(self) -> None:
        line = self.query_one(Input)
        line.remove_class("-asks")
        self.set_focus(None)

    async def _open(self, topic: str) -> None:
        self._topic = topic
        await self._show(topic, page(topic))

    async def _show(self, title: str, markdown: str) -> None:
        self.query_one("#title", Static).update(f"gputop help {title}")
        await self.query_one(Markdown).update(markdown)
        self.query_one(VerticalScroll).scroll_home(animate=False)


def _results(word: str) -> str:
    lines, before = [], None
    for topic, heading, text in search(word):
        if before != (topic, heading):
            lines.append(f"\n### [{topic}]({topic}.md): {heading}\n")
        before = topic, heading
        lines.append(f"- {text}")
    return "\n".join(lines) or f"The manual has no `{word}`."


def run(topic: str, options: Namespace) -> int:
    """Show a page until the reader leaves; return the exit status."""
    capabilities.drop_inherited_colours(os.environ)
    settings = _settings(options)
    theme = capabilities.nearest_theme(settings.theme, os.environ)
    return terminal_app.run(ManualApp(topic, theme, settings.keys))


def _settings(options: Namespace) -> Session:
    """Return the settings, or the defaults if they are wrong: the manual explains them."""
    try:
        return session_of(options)
    except UsageError as error:
        complain(f"{error}; the defaults are used")
        return Session()
