"""The keys of the screen of a cluster, in the order in which its last line shows them."""

from __future__ import annotations

from functools import partial

from textual.binding import BindingType

from gputop.tui.panes.heading import described_key

FIRST = 3
"""Bindings that stand in the line of keys before those of the app."""

_key = partial(described_key, "Cluster", area="cluster")

CLUSTER_BINDINGS: list[BindingType] = [
    _key("enter", "open", "Open", "The screen of this host", "Enter"),
    _key("slash,f3,f4,backslash", "filter", "Filter", "A part of a host's name", "/"),
    _key("s,f6", "sort", "Sort", "Attention, free, busy first", "s"),
    _key("escape", "back", "Back", "One step back: cursor, filter"),
]
