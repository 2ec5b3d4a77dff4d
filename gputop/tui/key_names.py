"""The names of keys, as the last line, the help and the palette write them."""

from __future__ import annotations

from collections.abc import Sequence

from textual.keys import key_to_character

from gputop.tui.glyphs import GlyphSet

_NAMES = {
    "slash": "/", "plus": "+", "minus": "-", "backslash": "\\", "escape": "Esc",
    "space": "Space", "enter": "Enter", "backspace": "BS", "pageup": "PgUp", "pagedown": "PgDn",
    "home": "Home", "end": "End", "tab": "Tab",
}  # fmt: skip
"""The names of keys that Textual gives none, or another."""
_ARROWS = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
_DIGITS = "0123456789"
_FEWEST = 3
"""So many digits in a row are written as a range."""


def names_of(keys: Sequence[str], glyphs: GlyphSet, room: int) -> str:
    """Return the usual names of keys, as many as fit into `room` cells, but at least one."""
    digits = "".join(key for key in keys if key in _DIGITS)
    if len(digits) >= _FEWEST and digits in _DIGITS:
        keys = [f"{digits[0]}-{digits[-1]}", *(key for key in keys if key not in _DIGITS)]
    named = [_name(key, glyphs) for key in keys]
    while len(named) > 1 and len(" ".join(named)) > room:
        named.pop()
    return " ".join(named)


def with_arrows(label: str, glyphs: GlyphSet) -> str:
    """Return names of keys with signs for `left`, `right`, `up` and `down`."""
    return " ".join(_arrow(word, glyphs) for word in label.split(" "))


def _arrow(key: str, glyphs: GlyphSet) -> str:
    return key if glyphs.name == "ascii" else _ARROWS.get(key, key)


def _name(key: str, glyphs: GlyphSet) -> str:
    modifier, _, plain = key.rpartition("+")
    name = _NAMES.get(plain) or key_to_character(plain) or _arrow(plain, glyphs)
    if name[:1] == "f" and name[1:].isdecimal():
        name = name.upper()
    return f"^{name.upper()}" if modifier == "ctrl" else f"{modifier} {name}".strip()
