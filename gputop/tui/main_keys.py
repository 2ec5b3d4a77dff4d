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
    _key("enter", "process", "Open", "Details, or open the group", "Look", "Enter"),
    _key("slash,f3,f4,backslash", "filter", "Filter", "Word, gpu:1, mem>10G, !, or", "Look",
         "/"),
    _key("u", "user", "Users", "All, my own, a row a user", "Look", "u", "view"),
    _key("f9,K", "signal", "Signal", "Signal (kill) tagged, or this", "Processes", "F9"),
    _key("m", "mapping", "Mapping", "Edit CUDA_VISIBLE_DEVICES", "Mapping", "m"),
    _key("H", "health", "Health", "What needs attention", "Look", "H"),
    _key("G", "graphs", "Graphs", "The past of all GPUs", "Look", "G"),
    *(
        _key(digit, f"pid('{digit}')", "PID search", "Select the process of a PID", "Look",
             area="pid", name=digit)
        for digit in "0123456789"
    ),
    _key("backspace", "pid_back", "PID digit back", "Select the process of a PID", "Look",
         area="pid", name="back"),
    _key("f", "only", "Its processes", "Processes of this GPU alone", "Look", "f"),
    _key("g", "history", "History", "Short history: another metric", "Look", "g"),
    _key("e", "environment", "Environment", "Environment of the process", "Look", "e"),
    _key("space", "tag", "Tag", "Tag it, or all of the group", "Processes", "Space", "view"),
    _key("s,f6,less_than_sign,greater_than_sign,comma,full_stop", "sort", "Sort",
         "Sort by a column", "Processes", "s"),
    _key("I", "invert", "Invert", "Sort the other way round", "Processes"),
    _key("t", "tree", "Tree", "Fold under their parents", "Processes", "t", "view"),
    _key("c", "command", "Command", "Script, or the whole line", "Processes", "c"),
    _key("left", "shift(-1)", "Scroll left", "Scroll the command", "Processes",
         name="shift-back"),
    _key("right", "shift(1)", "Scroll right", "Scroll the command", "Processes"),
    _key("ctrl+a,circumflex_accent", "shift_to(0)", "Start of line",
         "Start, end of the command", "Processes", name="shift-start"),
    _key("ctrl+e,dollar_sign", "shift_to(1)", "End of line", "Start, end of the command",
         "Processes", name="shift-end"),
    _key("z", "finished", "Ended", "With the ended ones, or not", "Processes", area="view"),
    _key("C", "columns", "Columns", "Choose and keep the columns", "Processes", "C", "view"),
    _key("M", "whole", "Whole mapping", "Mapping on a page of its own", "Mapping", "M"),
    _key("o", "order", "Order", "Other CUDA_DEVICE_ORDER", "Mapping"),
    _key("U", "unset", "Unset", "Unset CUDA_VISIBLE_DEVICES", "Mapping"),
    _key("v", "verify", "Verify", "Ask the CUDA driver", "Mapping"),
    _key("y", "copy", "Copy", "Copy the export line", "Mapping"),
    _key("escape", "back", "Back", "One step back: tags, filter", "Screen"),
    _key("f2,S", "panes", "Panes", "Choose what is shown", "Screen"),
]  # fmt: skip
