"""The keys that move in time: in the live view, and in a replay."""

from __future__ import annotations

from functools import partial

from textual.binding import BindingType

from gputop.tui.panes.heading import described_key

_look = partial(described_key, "Look", area="time")
_WORDS = "A step, a minute back; on"

TIME_BINDINGS: list[BindingType] = [
    _look("comma", "step(-1)", "Step back", _WORDS, name="back"),
    _look("full_stop", "step(1)", "Step on", _WORDS, name="on"),
    _look("less_than_sign", "skip(-60)", "Minute back", _WORDS, name="minute-back"),
    _look("greater_than_sign", "skip(60)", "Minute on", _WORDS, name="minute-on"),
]  # fmt: skip
