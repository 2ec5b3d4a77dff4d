"""The signs that views draw with: a Unicode set, and a set for terminals that have only ASCII.

Every sign is one cell wide unless its field says otherwise, so that a layout does not depend on the
set.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gputop.model.machine.text import MISSING


@dataclass(frozen=True, slots=True)
class GlyphSet:
    """One set of signs, by default in Unicode."""

    name: str = "unicode"
    """`unicode` or `ascii`, as a user would write it in the settings."""
    bar: str = "▏▎▍▌▋▊▉█"
    """The steps that fill one cell of a bar, least first; the last step is a full cell."""
    bar_empty: str = "░"
    levels: str = "▁▂▃▄▅▆▇█"
    """Eight heights of a graph, lowest first. The lowest is drawn for 0."""
    no_sample: str = " "
    """A graph cell for which there is no value; never one of `levels`."""
    rule: str = "─"
    ellipsis: str = "…"
    ascending: str = "↑"
    descending: str = "↓"
    cursor: str = "▸"
    tag: str = "»"
    """Before a row that is tagged."""
    mark: str = "W"
    """Before a row that is marked; the same letter as the key that marks it."""
    caret: str = "▏"
    """Where typed text will go."""
    to: str = "→"
    """Between a name and what it stands for."""
    separator: str = "·"
    degree: str = "°"
    not_available: str = "–"
    pending: str = "·"
    """No sample has come yet."""
    stale: str = "≈"
    """The value is of an earlier time."""
    warning: str = "!"
    branch: str = "├─"
    """Two cells before a child in a tree that has younger siblings."""
    last_branch: str = "└─"
    """Two cells before the last child in a tree."""
    lamp_free: str = "□"
    lamp_used: str = "■"
    lamp_idle: str = "▄"
    """A GPU that is held but does no work."""

    def fill(self, ratio: float | None, width: int) -> str:
        """Return the filled part of a bar: at most `width` cells, and none without a value.

        It is empty only for 0 and full only for 1: a card with one byte in use is not free, and a
        card that is 99.9 % full still has room.
        """
        if ratio is None or math.isnan(ratio) or width <= 0:
            return ""
        steps = len(self.bar)
        total = width * steps
        if ratio <= 0 or ratio >= 1:
            filled = 0 if ratio <= 0 else total
        else:
            filled = min(max(round(ratio * total), 1), total - 1)
        cells, part = divmod(filled, steps)
        return self.bar[-1] * cells + (self.bar[part - 1] if part else "")

    def value(self, text: str) -> str:
        """Return the text of a value, or the sign of one that is not known (MISSING)."""
        return self.not_available if text == MISSING else text

    def text(self, text: str) -> str:
        """Return foreign text in characters that the terminal has, with its width unchanged."""
        return text if self.name == "unicode" or text.isascii() else _ascii(text)


UNICODE = GlyphSet()
"""Block elements and box drawing: what a UTF-8 terminal has."""
ASCII = GlyphSet(
    "ascii",
    bar="#",
    bar_empty=".",
    levels="_.:-=+*#",
    rule="-",
    ellipsis="~",
    ascending="^",
    descending="v",
    cursor=">",
    tag="#",
    caret="|",
    to=">",
    separator="|",
    degree=" ",
    not_available="-",
    pending=".",
    stale="*",
    branch="|-",
    last_branch="`-",
    lamp_free="o",
    lamp_used="#",
    lamp_idle="=",
)
"""For other locales and for the Linux console, whose font has few block elements."""

_SETS = {glyphs.name: glyphs for glyphs in (UNICODE, ASCII)}


def choose(
    environ: Mapping[str, str], encoding: str | None, override: str | None = None
) -> GlyphSet:
    """Return the set that the terminal can show.

    `environ` is the environment that the program was started with (`initial_environ`): under LANG=C
    Python sets LC_CTYPE=C.UTF-8 for itself, which says nothing about the terminal. `encoding` is
    that of what is written to. `override` is the name of the set to use (`unicode`, `ascii`),
    whatever the others say; anything else is none.
    """
    if override in _SETS:
        return _SETS[override]
    fits = _utf8_locale(environ) and environ.get("TERM") != "linux" and _encodes_blocks(encoding)
    return UNICODE if fits else ASCII


def _utf8_locale(environ: Mapping[str, str]) -> bool:
    """Return whether the characters of the locale are UTF-8; the order is that of locale(7)."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if value := environ.get(name):
            return "utf8" in value.lower().replace("-", "")
    return False


def _encodes_blocks(encoding: str | None) -> bool:
    try:
        (UNICODE.bar + UNICODE.rule).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


@lru_cache(maxsize=1024)
def _ascii(text: str) -> str:
    from rich.cells import cell_len  # no other part of the module needs Rich

    return "".join(char if char.isascii() else "?" * cell_len(char) for char in text)
