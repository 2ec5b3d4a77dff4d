"""Whether a terminal's background is light: what it answers when it is asked (OSC 11).

The answer comes among the keys. It is taken out of them whenever it comes, and counts if it comes
soon.
"""

import re
from collections.abc import Mapping

from textual.message import Message

from gputop.tui.terminal.capabilities import colours

QUERY = "\x1b]11;?\x1b\\"
"""xterm's control sequences: OSC 11 with `?` asks for the background colour."""
_ASKED = (
    "alacritty", "contour", "foot", "ghostty", "gnome", "iterm2", "konsole", "mintty", "mlterm",
    "putty", "rxvt", "screen", "st", "tmux", "vte", "wezterm", "xterm",
)  # fmt: skip
"""Families of TERM that take in an OSC whole, whether they know it or not; others may print it."""
_ANSWER = re.compile(r"\x1b\]11;rgba?:([\da-fA-F]{1,4}(?:/[\da-fA-F]{1,4}){2,3})(?:\x07|\x1b\\)")
_BEGUN = re.compile(r"\x1b(?:\](?:1(?:1(?:;[rgba:/\da-fA-F]{0,25}\x1b?)?)?)?)?\Z")
_LIGHT = 0.179
"""The luminance from which black is easier to read than white (WCAG 2)."""


def can_be_asked(environ: Mapping[str, str]) -> bool:
    """Return whether the query does no harm on this terminal, and the answer changes anything."""
    family = re.split(r"[-.]", environ.get("TERM", "").lower())[0]
    return family in _ASKED and colours(environ) > 0


def is_light_colour(text: str) -> bool:
    """Return whether a colour is light, as X11 writes it: one to four hexadecimal digits each for
    red, green and blue, as `ffff/ffff/ffff`."""
    parts = [int(part, 16) / (16 ** len(part) - 1) for part in text.split("/")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(map(float.__mul__, (0.2126, 0.7152, 0.0722), linear)) > _LIGHT


class Background(Message):
    """Posted when the terminal has answered whether its background is light."""

    def __init__(self, is_light: bool) -> None:
        super().__init__()
        self.is_light = is_light


class AnswerFilter:
    """Takes the answers out of what is typed."""

    def __init__(self) -> None:
        self.held = ""
        """The beginning of what may be an answer, until the rest comes or `release`."""

    def feed(self, typed: str, is_due: bool) -> tuple[str, bool | None]:
        """Return what is left of `typed`, and whether the background is light if there was an
        answer. Escape alone is only held while one is due: it is a key."""
        text, light = self.held + typed, None
        for answer in _ANSWER.finditer(text):
            light = is_light_colour(answer[1])
        text = _ANSWER.sub("", text)
        begun = _BEGUN.search(text)
        at = begun.start() if begun and (is_due or begun[0] != "\x1b") else len(text)
        self.held = text[at:]
        return text[:at], light

    def release(self) -> str:
        """Return what is held, as no answer came of it."""
        held, self.held = self.held, ""
        return held
