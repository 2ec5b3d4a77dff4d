"""The sequences that make a terminal draw in a style.

An *sgr* (ECMA-48: select graphic rendition) sets a style, whatever the style before it. A *span* is
text and its sgr.
"""

import re
from functools import lru_cache
from typing import TypeAlias

from rich.color import Color, ColorSystem
from rich.style import Style
from textual.strip import Strip

Span: TypeAlias = tuple[str, str]

PLAIN = "\x1b[m"
STRING_END = "\x1b\\"
LINK_END = "\x1b]8;;" + STRING_END
# A colour of the foreground or background, or one other attribute.
_COLOURS = {"3": "foreground", "9": "foreground", "4": "background", "10": "background"}
_CODE = re.compile(r"([34])8;(?:2(?:;\d+){3}|5;\d+)|\d+")


class SpanLines:
    """A widget whose lines are spans: to make Textual's strips of them would cost as much again."""

    def spans(self, y: int, colors: ColorSystem) -> list[Span] | None:
        """Return line `y` as wide as the widget; None if only its strip has that width."""
        raise NotImplementedError


def span(text: str, style: Style | None, colors: ColorSystem) -> Span:
    """Return text with the sgr of its style.

    Blanks get the plain sgr if nothing of the style can be seen on them: a change of a foreground
    colour then sends none of them again.
    """
    ink, blank = sgrs(style, colors)
    return (text, blank if text.isspace() else ink)


@lru_cache(maxsize=1024)
def sgrs(style: Style | None, colors: ColorSystem) -> tuple[str, str]:
    """Return the sgr of a style, and that of its blanks."""
    if style is None:
        return (PLAIN, PLAIN)
    color, bgcolor = _unless_default(style.color), _unless_default(style.bgcolor)
    bare = style.without_color + Style.from_color(color, bgcolor)
    codes = Strip.render_ansi(bare, colors)
    ink = f"\x1b[0;{codes}m" if codes else PLAIN
    if style.link and style.link.isprintable():
        ink += f"\x1b]8;id={style.link_id};{style.link}{STRING_END}"
    return (ink, ink if bgcolor is not None or _marks_blanks(style) else PLAIN)


def _unless_default(color: Color | None) -> Color | None:
    """Return None for a default colour: every sgr starts from these, so they need no code."""
    return None if color is None or color.is_default else color


def _marks_blanks(style: Style) -> bool:
    lines = style.underline or style.underline2 or style.overline or style.strike
    return bool(lines or style.reverse or style.frame or style.encircle or style.link)


@lru_cache(maxsize=1024)
def change(before: str, after: str) -> str:
    """Return the shortest output that takes a terminal from one sgr to another."""
    if STRING_END in before + after:
        return after
    had, wanted = _codes(before), _codes(after)
    if not had.keys() <= wanted.keys():
        return after
    codes = ";".join(code for kind, code in wanted.items() if had.get(kind) != code)
    return f"\x1b[{codes}m"


def _codes(sgr: str) -> dict[str, str]:
    """Return the codes of an sgr by what they set: `foreground`, `background`, or themselves."""
    codes = {}
    for match in _CODE.finditer(sgr.removeprefix("\x1b[0;")):
        code = match[0]
        codes[_COLOURS.get(match[1] or code[:-1], code)] = code
    return codes
