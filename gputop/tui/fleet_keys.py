"""The keys of the screen of many hosts, in the order in which its last line shows them."""

from __future__ import annotations

from functools import partial

from textual.binding import BindingType

from gputop.tui.panes.heading import described_key

FIRST = 5
"""Bindings that stand in the line of keys before those of the app."""

_key = partial(described_key, "Hosts", area="fleet")

FLEET_BINDINGS: list[BindingType] = [
    _key("enter", "open", "Open", "The screen of this host", "Enter"),
    _key("slash,f3,f4,backslash", "filter", "Filter", "Word, host:node3, mem>10G", "/"),
    _key("u", "user", "Users", "All, my own, a row a user", "u"),
    _key("s,f6", "sort", "Sort", "Hosts: other order; processes: by", "s"),
    _key("L", "login", "Log in", "Log in to this host by hand", "L"),
    _key("f9,K", "signal", "Signal", "Open its host, where F9 signals"),
    _key("I", "invert", "Invert", "Sort processes the other way round"),
    _key("c", "command", "Command", "Script, or the whole line"),
    _key("left", "shift(-1)", "Scroll left", "Scroll the command", name="shift-back"),
    _key("right", "shift(1)", "Scroll right", "Scroll the command"),
    _key("escape", "back", "Back", "One step back: cursor, filter"),
]
