"""`gputop help` on a terminal: the help's pages of the manual, as a program."""

from __future__ import annotations

import os
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.settings import Session
from gputop.tui import themes
from gputop.tui.pages.help import HelpScreen
from gputop.tui.terminal import app as terminal_app
from gputop.tui.terminal import capabilities
from gputop.tui.terminal.key_queue import SerialInput


class ManualApp(SerialInput[None], terminal_app.TerminalApp[None]):
    """Shows the pages of the manual."""

    ALLOW_SELECT = False
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "style.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,f10,ctrl+c", "quit", "Quit", tooltip="Leave the manual", id="manual.quit"),
    ]

    def __init__(self, topic: str, theme: str, settings: Session) -> None:
        super().__init__()
        for each in themes.THEMES:
            self.register_theme(each)
        self.theme, self.own_keys, self._topic = theme, settings.keys, topic
        self.follows_background = settings.theme == "auto"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS

    def on_mount(self) -> None:
        self.set_keymap(self.own_keys)
        self.push_screen(HelpScreen(topic=self._topic), lambda _: self.exit())


def run(topic: str, settings: Session) -> int:
    """Show a page until the reader leaves; return the exit status."""
    capabilities.drop_inherited_colours(os.environ)
    theme = capabilities.nearest_theme(settings.theme, os.environ)
    return terminal_app.run(ManualApp(topic, theme, settings), settings.mouse)
