"""The keys of the screens of machines, in the order of their lines of keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from textual.app import App
from textual.binding import Binding, BindingType

from gputop.tui.key_names import names_of
from gputop.tui.panes.heading import described_key
from gputop.tui.panes.lines import Lines
from gputop.tui.snapshot import Instant
from gputop.tui.terminal.key_queue import keyed

T = TypeVar("T")
_view = partial(described_key, "View", area="main")
_processes = partial(described_key, "Processes", area="main")
_mapping = partial(described_key, "Mapping", area="main")
_screen = partial(described_key, "Screen", area="main")
_hosts = partial(described_key, "Hosts", area="hosts")
_step = partial(described_key, "View", area="time")
_time = partial(described_key, "Time", area="time", priority=True)
_app = partial(described_key, "Screen", area="app")

MAIN_BINDINGS: list[Binding] = [
    _view("enter", "process", "Open", "Open the selected row", "Enter"),
    _view("slash,f3,f4,backslash", "filter", "Filter", "Filter: alice, gpu:1, mem>10G", "/"),
    _view("u", "user", "Users", "A row per user; Enter: theirs", "u", area="view"),
    _processes("f9,K", "signal", "Signal", "Kill, or send another signal", "F9"),
    _mapping("m", "mapping", "Mapping", "Try a CUDA_VISIBLE_DEVICES", "m"),
    _view("H", "health", "Health", "What needs attention, and why", "H"),
    _view("G", "graphs", "Graphs", "Graphs of the last minutes", "G"),
    *(
        _view(digit, f"pid('{digit}')", "PID search", "Find a process by its PID", area="pid",
              name=digit)
        for digit in "0123456789"
    ),
    _view("backspace", "pid_back", "PID digit back", "Find a process by its PID", area="pid",
          name="back"),
    _view("W", "mark", "Wait for", "Notify when free, or ended", "W"),
    _view("f", "only", "Its processes", "Only this GPU's processes", "f"),
    _view("g", "history", "History", "Next metric of the history", "g"),
    _view("e", "environment", "Environment", "Environment of the process", "e"),
    _processes("space", "tag", "Tag", "Tag the row, or all in view", "Space", area="view"),
    _processes("A", "tag_all", "Tag all", "Tag the row, or all in view", area="view"),
    _processes("s,f6", "sort", "Sort", "Choose the column to sort by", "s"),
    _processes("I", "invert", "Invert", "Reverse the order"),
    _processes("t", "tree", "Tree", "Processes as a tree", "t", area="view"),
    _processes("c", "command", "Command", "Script or full command line", "c"),
    _processes("left", "shift(-1)", "Scroll left", "Scroll the command line", name="shift-back"),
    _processes("right", "shift(1)", "Scroll right", "Scroll the command line"),
    _processes("ctrl+a,circumflex_accent", "shift_to(0)", "Start of line", "Start or end of line",
               name="shift-start"),
    _processes("ctrl+e,dollar_sign", "shift_to(1)", "End of line", "Start or end of line",
               name="shift-end"),
    _processes("z", "finished", "Ended", "Show or hide ended processes", area="view"),
    _processes("C", "columns", "Columns", "Choose the columns", "C", area="view"),
    _mapping("M", "whole", "Whole mapping", "The mapping, full screen", "M"),
    _mapping("o", "order", "Order", "Change CUDA_DEVICE_ORDER"),
    _mapping("U", "unset", "Unset", "Unset CUDA_VISIBLE_DEVICES"),
    _mapping("v", "verify", "Verify", "Check with the CUDA driver"),
    _mapping("y", "copy", "Copy", "Copy the export line"),
    _screen("escape", "back", "Back", "Back: clear tags, filter"),
    _screen("f2,S", "panes", "Panes", "Choose the panes"),
]  # fmt: skip

HOSTS_BINDINGS: list[Binding] = [
    _hosts("enter", "open", "Open", "The screen of this host", "Enter"),
    _hosts("slash,f3,f4,backslash", "filter", "Filter", "Word, host:node3, mem>10G", "/"),
    _hosts("slash,f3,f4,backslash", "search", "Filter", "A part of a host's name", "/"),
    _hosts("u", "user", "Users", "A row per user; Enter: theirs", "u"),
    _hosts("s,f6", "sort", "Sort", "Order of hosts, or processes", "s"),
    _hosts("L", "login", "Log in", "Log in to this host by hand", "L"),
    _hosts("f9,K", "signal", "Signal", "Open its host, and signal it there"),
    _hosts("W", "on_host('mark')", "Wait for", "Open its host, and wait for its end", name="mark"),
    _hosts("space", "on_host('tag')", "Tag", "Open its host, and tag it there", name="tag"),
    _hosts("I", "invert", "Invert", "Sort processes the other way round"),
    _hosts("c", "command", "Command", "Script, or the whole line"),
    _hosts("left", "shift(-1)", "Scroll left", "Scroll the command", name="shift-back"),
    _hosts("right", "shift(1)", "Scroll right", "Scroll the command"),
    _hosts("escape", "back", "Back", "One step back: cursor, filter"),
]  # fmt: skip
"""The keys of the screen of many hosts; a fleet or a cluster lacks some."""

TIME_BINDINGS: list[Binding] = [
    _step("comma", "step(-1)", "Step back", "Sample back or forward", name="back"),
    _step("full_stop", "step(1)", "Step forward", "Sample back or forward", name="on"),
    _step("less_than_sign", "skip(-60)", "Minute back", "Minute back or forward",
          name="minute-back"),
    _step("greater_than_sign", "skip(60)", "Minute forward", "Minute back or forward",
          name="minute-on"),
]  # fmt: skip
"""The keys that move in time, in the live view."""

APP_BINDINGS: list[Binding] = [
    _app("question_mark,f1,h", "help", "Help", "This page", "?"),
    _app("q,f10", "quit", "Quit", "Quit", "q"),
    _app("ctrl+c", "interrupt", "Quit", "Quit", priority=True),
    _app("p,Z", "pause", "Pause", "Pause the display", "p"),
    _app("ctrl+z", "suspend_process", "Suspend", "Suspend; fg resumes", name="suspend",
         priority=True),
    _app("plus,equals_sign", "interval(1)", "Slower", "Longer or shorter interval", name="slower"),
    _app("minus", "interval(-1)", "Faster", "Longer or shorter interval", name="faster"),
    _app("r,f5,ctrl+r", "refresh_now", "Refresh", "Refresh now", name="refresh"),
    _app("T", "next_theme", "Theme", "Next colour theme", name="theme"),
    _app("ctrl+l", "repaint", "Redraw", "Redraw the screen", name="redraw", priority=True),
    *TIME_BINDINGS,
]  # fmt: skip
"""The keys of every screen of machines."""

REPLAY_BINDINGS: list[BindingType] = [
    *(replace(key, group=Binding.Group("Time")) for key in TIME_BINDINGS),
    _time("t", "ask_time", "To a time", "Go to a time: 03:00, -2h", name="to"),
    _time("space", "run", "Run", "Run, stop"),
    *(
        _time(f"{number}", f"speed({number})", "Speed", "1, 2, 5, ... 500 times", name=f"{number}")
        for number in range(1, 10)
    ),
]
"""The keys of a replay. Some have priority over the same keys of other screens."""

_TAKEN = {key for binding in HOSTS_BINDINGS for key in binding.key.split(",")}
HOST_ONLY: list[BindingType] = [
    replace(binding, action=f"elsewhere('{binding.description}')", show=False, group=None)
    for group in (HOSTS_BINDINGS, MAIN_BINDINGS, TIME_BINDINGS)
    for binding in group
    if group is HOSTS_BINDINGS or _TAKEN.isdisjoint(binding.key.split(","))
]
"""The keys that work on the screen of a host alone: on that of many hosts, or on one that lacks
them, they say so."""

_MOVES = (("time.back time.on", "step"), ("time.minute-back time.minute-on", "minute"))
_FIRST: dict[Instant, tuple[tuple[str, str], ...]] = {
    "now": (),
    "paused": (*_MOVES, ("app.pause", "resume")),
    "past": (*_MOVES, ("main.back", "now")),
    "replay": (*_MOVES, ("time.to", "time"), ("time.run", "run"),
               (" ".join(f"time.{number}" for number in range(1, 10)), "speed")),
}  # fmt: skip
"""The ids of the keys that the line of keys begins with, and a word for them."""
OPENING_FIELDS = ("filter", "search", "mapping", "edit", "ask_time")
"""Actions of the app and its screens that open a field to type into."""
NOT_IN_A_REPLAY = ("tag", "tag_all", "pid", "pid_back", "mark")
"""Actions of the main screen that need keys of a replay, or frames that are yet to come."""
ONLY_NOW = ("signal", "mark", "verify", "pause")
"""Actions that do nothing in the past but say so, or that lead back to now."""


def first_keys(instant: Instant, app: App[Any]) -> list[tuple[str, str]]:
    """Return what the line of keys begins with."""
    groups = (APP_BINDINGS, MAIN_BINDINGS, REPLAY_BINDINGS)
    keys = {binding.id: binding.key.partition(",")[0] for binding in keyed(app, *groups)}
    return [(names_of([keys[id_] for id_ in ids.split()], Lines.glyphs, 12), word)
            for ids, word in _FIRST[instant]]  # fmt: skip


def following(current: T, choices: Iterable[T], step: int = 1) -> T:
    """Return the choice that is `step` places after another; they go round. A current value that is
    no choice counts as before the first."""
    every = list(choices)
    index = every.index(current) if current in every else -1
    return every[(index + step) % len(every)]
