"""The keys of the main screen, in the order in which its last line shows them."""

from __future__ import annotations

from textual.binding import Binding, BindingType

FIRST = 7
"""Bindings that stand in the line of keys before those of the app."""


def _key(
    keys: str, action: str, description: str, tooltip: str, group: str, label: str = "",
    area: str = "main", name: str = "",
) -> Binding:  # fmt: skip
    """A binding with all that help, palette and the line of keys (where it has a label) say."""
    return Binding(
        keys, action, description, tooltip=tooltip, id=f"{area}.{name or action.partition('(')[0]}",
        show=bool(label), key_display=label or None, group=Binding.Group(group),
    )  # fmt: skip


MAIN_BINDINGS: list[BindingType] = [
    _key("enter", "process", "Open", "Open the selected row", "Look", "Enter"),
    _key("slash,f3,f4,backslash", "filter", "Filter", "Filter: alice, gpu:1, mem>10G", "Look",
         "/"),
    _key("u", "user", "Users", "All, mine, or a row per user", "Look", "u", "view"),
    _key("f9,K", "signal", "Signal", "Kill, or send another signal", "Processes", "F9"),
    _key("m", "mapping", "Mapping", "Try a CUDA_VISIBLE_DEVICES", "Mapping", "m"),
    _key("H", "health", "Health", "What needs attention, and why", "Look", "H"),
    _key("G", "graphs", "Graphs", "Graphs of the last minutes", "Look", "G"),
    *(
        _key(digit, f"pid('{digit}')", "PID search", "Find a process by its PID", "Look",
             area="pid", name=digit)
        for digit in "0123456789"
    ),
    _key("backspace", "pid_back", "PID digit back", "Find a process by its PID", "Look",
         area="pid", name="back"),
    _key("f", "only", "Its processes", "Only this GPU's processes", "Look", "f"),
    _key("g", "history", "History", "Next metric of the history", "Look", "g"),
    _key("e", "environment", "Environment", "Environment of the process", "Look", "e"),
    _key("space", "tag", "Tag", "Tag the process or the group", "Processes", "Space", "view"),
    _key("s,f6", "sort", "Sort",
         "Choose the column to sort by", "Processes", "s"),
    _key("I", "invert", "Invert", "Reverse the order", "Processes"),
    _key("t", "tree", "Tree", "Processes as a tree", "Processes", "t", "view"),
    _key("c", "command", "Command", "Script or full command line", "Processes", "c"),
    _key("left", "shift(-1)", "Scroll left", "Scroll the command line", "Processes",
         name="shift-back"),
    _key("right", "shift(1)", "Scroll right", "Scroll the command line", "Processes"),
    _key("ctrl+a,circumflex_accent", "shift_to(0)", "Start of line",
         "Its start, its end", "Processes", name="shift-start"),
    _key("ctrl+e,dollar_sign", "shift_to(1)", "End of line", "Its start, its end",
         "Processes", name="shift-end"),
    _key("z", "finished", "Ended", "Show or hide ended processes", "Processes", area="view"),
    _key("C", "columns", "Columns", "Choose the columns", "Processes", "C", "view"),
    _key("M", "whole", "Whole mapping", "The mapping, full screen", "Mapping", "M"),
    _key("o", "order", "Order", "Change CUDA_DEVICE_ORDER", "Mapping"),
    _key("U", "unset", "Unset", "Unset CUDA_VISIBLE_DEVICES", "Mapping"),
    _key("v", "verify", "Verify", "Check with the CUDA driver", "Mapping"),
    _key("y", "copy", "Copy", "Copy the export line", "Mapping"),
    _key("escape", "back", "Back", "Back: clear tags, filter", "Screen"),
    _key("f2,S", "panes", "Panes", "Choose the panes", "Screen"),
]  # fmt: skip
