"""What can be done, by name: the palette, the themes, and the keys as the user has them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gputop.settings import Session
from gputop.tui import themes
from gputop.tui.keys import keyed
from gputop.tui.screens.main import MainScreen
from gputop.tui.screens.mapping import MappingScreen
from gputop.tui.screens.pages import PAGES
from gputop.tui.screens.problem import ProblemScreen

_WITH_COMMANDS = (MainScreen, MappingScreen, ProblemScreen, *PAGES)


class Commands(App[None]):
    """An app whose keys and themes a user can choose."""

    settings: Session
    _main: MainScreen

    def keyed(self, *groups: Iterable[BindingType]) -> list[Binding]:
        """Bindings with the keys that the settings give them."""
        return keyed(self.settings.keys, *groups)

    def choose_theme(self, name: str) -> None:
        """For now, and for the next time."""
        self.theme = name
        self._main.keep({"theme": name})

    def action_next_theme(self) -> None:
        """Go round our themes."""
        names = [theme.name for theme in themes.THEMES]
        place = names.index(self.theme) if self.theme in names else -1
        self.choose_theme(names[(place + 1) % len(names)])

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action of the keys, and the themes by name."""
        of_screen = screen.BINDINGS if isinstance(screen, _WITH_COMMANDS) else ()
        for binding in (*self.BINDINGS, *of_screen):
            if isinstance(binding, Binding):
                area = (binding.id or "").partition(".")[0]
                yield SystemCommand(
                    f"{area}: {binding.description.lower()}",
                    binding.tooltip or "",
                    partial(self.call_later, self._run_command, binding.action),
                )
        for theme in themes.THEMES:
            choose = partial(self.choose_theme, theme.name)
            yield SystemCommand(f"theme: {theme.name}", "Colours", choose)

    async def _run_command(self, action: str) -> None:
        """What a key would do, from the palette: the app's actions, else the screen's."""
        name = f"action_{action.partition('(')[0]}"
        there = self.screen if hasattr(self.screen, name) else self._main
        await self.run_action(action, self if hasattr(self, name) else there)


def binding_ids() -> set[str]:
    """Of everything that `[keys]` can give another key."""
    from gputop.tui.app import GputopApp
    from gputop.tui.screens.signalling import SignallingScreen

    owners = (GputopApp, SignallingScreen, *_WITH_COMMANDS)
    bindings = [binding for owner in owners for binding in owner.BINDINGS]
    return {one.id for one in bindings if isinstance(one, Binding) and one.id}
