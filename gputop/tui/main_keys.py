"""The keys of the main screen, in the order in which its last line shows them."""

from __future__ import annotations

from functools import partial

from textual.binding import BindingType

from gputop.tui.panes.heading import described_key

FIRST = 7
"""Bindings that stand in the line of keys before those of the app."""

_look = partial(described_key, "Look", area="main")
_processes = partial(described_key, "Processes", area="main")
_mapping = partial(described_key, "Mapping", area="main")
_screen = partial(described_key, "Screen", area="main")

MAIN_BINDINGS: list[BindingType] = [
    _look("enter", "process", "Open", "Open the selected row", "Enter"),
    _look("slash,f3,f4,backslash", "filter", "Filter", "Filter: alice, gpu:1, mem>10G", "/"),
    _look("u", "user", "Users", "All, mine, or a row per user", "u", area="view"),
    _processes("f9,K", "signal", "Signal", "Kill, or send another signal", "F9"),
    _mapping("m", "mapping", "Mapping", "Try a CUDA_VISIBLE_DEVICES", "m"),
    _look("H", "health", "Health", "What needs attention, and why", "H"),
    _look("G", "graphs", "Graphs", "Graphs of the last minutes", "G"),
    *(
        _look(digit, f"pid('{digit}')", "PID search", "Find a process by its PID", area="pid",
              name=digit)
        for digit in "0123456789"
    ),
    _look("backspace", "pid_back", "PID digit back", "Find a process by its PID", area="pid",
          name="back"),
    _look("W", "mark", "Wait for", "Notify when free, or ended", "W"),
    _look("f", "only", "Its processes", "Only this GPU's processes", "f"),
    _look("g", "history", "History", "Next metric of the history", "g"),
    _look("e", "environment", "Environment", "Environment of the process", "e"),
    _processes("space", "tag", "Tag", "Tag the process or the group", "Space", area="view"),
    _processes("s,f6", "sort", "Sort", "Choose the column to sort by", "s"),
    _processes("I", "invert", "Invert", "Reverse the order"),
    _processes("t", "tree", "Tree", "Processes as a tree", "t", area="view"),
    _processes("c", "command", "Command", "Script or full command line", "c"),
    _processes("left", "shift(-1)", "Scroll left", "Scroll the command line", name="shift-back"),
    _processes("right", "shift(1)", "Scroll right", "Scroll the command line"),
    _processes("ctrl+a,circumflex_accent", "shift_to(0)", "Start of line", "Its start, its end",
               name="shift-start"),
    _processes("ctrl+e,dollar_sign", "shift_to(1)", "End of line", "Its start, its end",
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
