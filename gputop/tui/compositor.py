"""Puts the cell-diffing compositor (`diffing.py`) in the place of Textual's, where it fits."""

import re
import sys
from collections.abc import Collection
from importlib.metadata import version

import textual.screen
from textual.geometry import Region
from textual.widget import Widget

# The versions whose private names `diffing` was written for.
OLDEST = (8, 2, 5)
NEWER = (9,)


def known() -> bool:
    """Whether this Textual is one whose private names this package was made for."""
    return OLDEST <= _release(version("textual")) < NEWER


def install() -> bool:
    """Let screens that are made from now on send only the cells that differ.

    False, and nothing is changed, if this Textual is not one that the compositor was made for.
    The screen then looks the same and costs ten times the bytes.
    """
    if not known():
        return False
    try:
        from gputop.tui import diffing

        if not diffing.fits():
            return False
    except (ImportError, AttributeError, TypeError, ValueError):
        return False
    textual.screen.Compositor = diffing.DiffCompositor  # type: ignore[attr-defined]
    return True


def forget() -> None:
    """Assume nothing about what the terminal shows: the next update draws every line.

    For a terminal that others may have written to; a terminal that changes its size is forgotten
    anyway. Does nothing where Textual's own compositor is at work.
    """
    diffing = sys.modules.get("gputop.tui.diffing")
    if diffing is not None:
        diffing.forget()


def repaint(widget: Widget, lines: Collection[Region]) -> None:
    """Have these regions of a widget drawn, by the shortest way."""
    diffing = sys.modules.get("gputop.tui.diffing")
    if diffing is None or not diffing.mark(widget, lines):
        widget.refresh(*lines)


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version up to its first part that is not one: 8.3.0rc1 is (8, 3, 0)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
