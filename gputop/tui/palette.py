"""All actions by name, for the command palette, the help and the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen

from gputop.settings import Session
from gputop.sources.source import Moment
from gputop.tui import themes
from gputop.tui.cluster import ClusterHosts
from gputop.tui.hosts import HostsScreen
from gputop.tui.key_names import names_of
from gputop.tui.keys import APP_BINDINGS
from gputop.tui.main import MainScreen
from gputop.tui.pages.base import PageScreen
from gputop.tui.pages.gpu import GpuScreen
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.health import HealthScreen
from gputop.tui.pages.help import HelpScreen
from gputop.tui.pages.mapping import MappingScreen
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.pages.process import ProcessScreen
from gputop.tui.pages.screen_help import ScreenKeys
from gputop.tui.panes.heading import works
from gputop.tui.panes.lines import Lines
from gputop.tui.table_screen import TableScreen
from gputop.tui.terminal.key_queue import keyed

_SYNONYMS = {"signal": "signal, kill, terminate"}
"""Words that users may search for instead of the action's own."""
_KEYS = 12
"""Cells for the keys of an action."""
_WHERE: dict[type[Screen[Any]], str] = {
    HelpScreen: "of the help",
    ProblemScreen: "without GPUs to see",
    ProcessScreen: "on the page of a process",
    GpuScreen: "on the page of a GPU",
    GraphScreen: "in the graphs",
    HealthScreen: "in the list of findings",
    MappingScreen: "in the mapping",
    PageScreen: "on a page",
    MainScreen: "of the main screen",
    HostsScreen: "of a fleet",
    ModalScreen: "of this dialog",
}
_MOMENTS: dict[Moment, str] = {"past": "in the past", "replay": "in a replay"}
_IN_THE_PAST = {"main.back": "Return to now"}
"""What else a key does there."""
_ENTER = Binding("enter", "", "Choose what is selected")
"""What every dialog leaves to its list or its button."""
_SCREENS = tuple(kind for kind in _WHERE if kind is not ModalScreen)


def described(app: App[None], settings: Session, *groups: Iterable[BindingType]) -> list[Binding]:
    """Return bindings with the user's keys, without those that do nothing in a read-only gputop."""
    bindings = keyed(app, *groups)
    return [b for b in bindings if not (settings.readonly and b.action == "signal")]


def keys_of(app: App[None], settings: Session, screen: Screen[Any], moment: Moment) -> ScreenKeys:
    """Return the keys that do something on a screen now, for its help."""
    kinds = (kind for kind in type(screen).__mro__ if kind.__module__.startswith("gputop"))
    own = described(app, settings, *(vars(kind).get("BINDINGS", ()) for kind in kinds))
    bindings = [key for key in own if _is_offered(screen, key)]
    if isinstance(screen, ModalScreen):
        bindings.insert(0, _ENTER)
    else:
        bindings += [key for key in described(app, settings, app.BINDINGS) if works(app, key)]
    where = next(where for kind, where in _WHERE.items() if isinstance(screen, kind))
    if isinstance(screen, MainScreen):
        where = _MOMENTS.get(moment, where)
        bindings = [_in_the_past(key) if moment == "past" else key for key in bindings]
        bindings.sort(key=lambda key: key.group != Binding.Group("Time"))
    elif isinstance(screen, HostsScreen) and isinstance(screen.hosts, ClusterHosts):
        where = "of a cluster"
    moves: Literal["table", "text", ""] = ""
    if isinstance(screen, TableScreen | MappingScreen):
        moves = "table"
    elif isinstance(screen, PageScreen) and screen.MORE_KEYS:
        moves = "text"
    return ScreenKeys(where, [*_unshadowed(bindings)], moves)


def _is_offered(screen: Screen[Any], binding: Binding) -> bool:
    if isinstance(screen, TableScreen | PageScreen):
        return screen.offers(binding)
    return works(screen, binding)


def _in_the_past(binding: Binding) -> Binding:
    """Return a key as it is there: those of the time are a task of their own."""
    id_ = binding.id or ""
    if id_ in _IN_THE_PAST or id_.startswith("time."):
        tooltip = _IN_THE_PAST.get(id_, binding.tooltip)
        return replace(binding, tooltip=tooltip, group=Binding.Group("Time"))
    return binding


def _unshadowed(bindings: Iterable[Binding]) -> Iterator[Binding]:
    """Yield bindings without the keys of those before them, if any are left."""
    taken: set[str] = set()
    for binding in bindings:
        keys = [key for key in binding.key.split(",") if key not in taken]
        taken.update(keys)
        if keys:
            yield replace(binding, key=",".join(keys))


def system_commands(
    app: App[None],
    settings: Session,
    screen: Screen[Any],
    choose_theme: Callable[[str], None],
) -> Iterator[SystemCommand]:
    """Return the actions of all keys of a screen, each once, and the themes by name."""
    of_screen = screen.BINDINGS if isinstance(screen, _SCREENS) else ()
    actions: dict[str, list[Binding]] = {}
    for binding in described(app, settings, of_screen, app.BINDINGS):
        # A digit is typed; `elsewhere` only says where a key works.
        if binding.action.startswith(("pid", "elsewhere")) or not works(screen, binding):
            continue
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
    """Run an action as its key would: of the topmost screen that has it, otherwise of the app."""
    name = f"action_{action.partition('(')[0]}"
    owners = (screen for screen in reversed(app.screen_stack) if hasattr(screen, name))
    await app.run_action(action, next(owners, app))


def binding_ids(*apps: type[App[Any]]) -> set[str]:
    """Return the ids of everything that `[keys]` of the settings can give another key."""
    groups = [app.BINDINGS for app in apps] + [screen.BINDINGS for screen in _SCREENS]
    bindings = [*chain.from_iterable(groups), *APP_BINDINGS]
    return {b.id for b in bindings if isinstance(b, Binding) and b.id}
