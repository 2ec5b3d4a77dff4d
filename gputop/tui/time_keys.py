"""The keys that move in time: in the live view, and in a replay."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from textual.binding import Binding, BindingType

from gputop.sources.past import Moment
from gputop.tui.panes.heading import described_key

_look = partial(described_key, "Look", area="time")
_WORDS = "A step, a minute back; on"
_time = partial(described_key, "Time", area="time")

TIME_BINDINGS: list[BindingType] = [
    _look("comma", "step(-1)", "Step back", _WORDS, name="back"),
    _look("full_stop", "step(1)", "Step on", _WORDS, name="on"),
    _look("less_than_sign", "skip(-60)", "Minute back", _WORDS, name="minute-back"),
    _look("greater_than_sign", "skip(60)", "Minute on", _WORDS, name="minute-on"),
]  # fmt: skip
"""In the live view."""

_ABOVE_ALL: list[BindingType] = [
    _time("t", "ask_time", "To a time", "Go to a time: 03:00, -2h", name="to"),
    _time("space", "run", "Run", "Run, stop"),
    *(
        _time(f"{number}", f"speed({number})", "Speed", "1, 2, 5, ... 500 times", name=f"{number}")
        for number in range(1, 10)
    ),
]
REPLAY_BINDINGS: list[BindingType] = [
    _time("comma", "step(-1)", "Step back", "A sample back; on", name="back"),
    _time("full_stop", "step(1)", "Step on", "A sample back; on", name="on"),
    _time("less_than_sign", "skip(-60)", "Minute back", "A minute back; on", name="minute-back"),
    _time("greater_than_sign", "skip(60)", "Minute on", "A minute back; on", name="minute-on"),
    *(replace(key, priority=True) for key in _ABOVE_ALL if isinstance(key, Binding)),
]
"""In a replay. What has keys of the same names on other screens gives way to some of them."""

FIRST_KEYS: dict[Moment, tuple[tuple[str, str], ...]] = {
    "now": (),
    "past": ((", .", "step"), ("< >", "minute"), ("Esc", "now")),
    "replay": ((", .", "step"), ("< >", "minute"), ("t", "time"), ("Space", "run"),
               ("1-9", "speed")),
}  # fmt: skip
"""What stands first in the line of keys."""
NOT_IN_A_REPLAY = ("tag", "pid", "pid_back", "mark")
"""Actions of the main screen whose keys are those of a replay, or that are about what comes."""
