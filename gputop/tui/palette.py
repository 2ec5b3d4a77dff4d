"""All actions by name, for the command palette, the help and the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen

from gputop.settings import Session
from gputop.tui import themes
from gputop.tui.hosts import HostsScreen
from gputop.tui.key_names import names_of
from gputop.tui.keys import APP_BINDINGS
from gputop.tui.main import MainScreen
from gputop.tui.pages.base import PageScreen
from gputop.tui.pages.gpu import GpuScreen
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.help import HelpScreen
from gputop.tui.pages.mapping import MappingScreen
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.pages.process import ProcessScreen
from gputop.tui.panes.heading import works
from gputop.tui.panes.lines import Lines
from gputop.tui.terminal.key_queue import keyed

_SYNONYMS = {"signal": "signal, kill, terminate"}
"""Words that users may search for instead of the action's own."""
_KEYS = 12
"""Cells for the keys of an action."""
PAGES = (PageScreen, ProcessScreen, GpuScreen, GraphScreen, MappingScreen)
"""The pages that have their keys in the help."""
_SCREENS = (HelpScreen, HostsScreen, MainScreen, ProblemScreen, *PAGES)


def described(settings: Session, *groups: Iterable[BindingType]) -> list[Binding]:
    """Return bindings with the user's keys, without those that do nothing in a read-only gputop."""
    bindings = keyed(settings.keys, *groups)
    return [b for b in bindings if not (settings.readonly and b.action == "signal")]


def system_commands(
    app: App[None],
    settings: Session,
    screen: Screen[Any],
    choose_theme: Callable[[str], None],
) -> Iterator[SystemCommand]:
    """Return the actions of all keys of a screen, each once, and the themes by name."""
    of_screen = screen.BINDINGS if isinstance(screen, _SCREENS) else ()
    actions: dict[str, list[Binding]] = {}
    for binding in described(settings, of_screen, app.BINDINGS):
        if (binding.id or "").startswith("pid."):
            continue  # a digit is typed
        owner: DOMNode = app if binding.action.startswith("app.") else screen
        if not works(owner, binding):
            continue  # the line of keys leaves it out, too
        words = _SYNONYMS.get(binding.action, binding.description.lower())
        actions.setdefault(words, []).append(binding)
    for words, bindings in actions.items():
        keys = [key for binding in bindings for key in binding.key.split(",")]
        title = f"{words}  {names_of(keys, Lines.glyphs, _KEYS)}"
        run = partial(app.call_later, _run, app, bindings[0].action)
        yield SystemCommand(title, bindings[0].tooltip or "", run)
    for theme in themes.THEMES:
        choose = partial(choose_theme, theme.name)
        yield SystemCommand(f"theme: {theme.name}", "Colours", choose)


async def _run(app: App[None], action: str) -> None:
    """Run an action as its key would: of the app, or of the topmost screen that has it."""
    name = f"action_{action.partition('(')[0]}"
    owners = (app, *reversed(app.screen_stack))
    owner = next(node for node in owners if hasattr(node, name))
    await app.run_action(action, owner)


def binding_ids(*apps: type[App[Any]]) -> set[str]:
    """Return the ids of everything that `[keys]` of the settings can give another key."""
    groups = [app.BINDINGS for app in apps] + [screen.BINDINGS for screen in _SCREENS]
    bindings = [binding for group in (*groups, APP_BINDINGS) for binding in group]
    return {b.id for b in bindings if isinstance(b, Binding) and b.id}
