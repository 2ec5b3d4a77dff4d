"""What a page is written on: breaks texts into the lines of a width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from textwrap import wrap
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

from gputop.model.machine.frame import Frame
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import crop_or_pad
from gputop.tui.panes.lines import Piece, StyledLine

LABEL = 13
"""The width of a label and the space after it, in cells."""


def title(text: str) -> Iterator[StyledLine]:
    """Return the lines that begin a section: a blank one and its heading."""
    yield []
    yield [(f" {text}", "heading")]


def headline(frame: Frame | None, text: str) -> StyledLine:
    """Return the title of a page, with the host if it was asked for by name."""
    host = frame and frame.host.requested_name
    return [(f" {host}  {text}" if host else f" {text}", "heading")]


class Paper(NamedTuple):
    """The width of a page in cells, and the signs that its terminal has."""

    width: int
    glyphs: GlyphSet

    def cut(self, line: StyledLine) -> StyledLine:
        """Cut or pad a line to the width of the page."""
        pieces = [(self.glyphs.text(text), role) for text, role in line]
        return crop_or_pad(pieces, self.width, self.glyphs.ellipsis)

    def wrapped(self, text: str, indent: int = 2, role: str = "text") -> Iterator[StyledLine]:
        """Break a text that is harmless to print into as many lines as it needs."""
        room = max(20, self.width - indent - 1)
        for line in _wrapped(self.glyphs.text(text), room):
            yield [(" " * indent, "text"), (line, role)]

    def facts(self, facts: Iterable[str], role: str = "text") -> Iterator[StyledLine]:
        """Put facts beside each other; one that does not fit begins the next line."""
        separator = f" {self.glyphs.separator} " if self.glyphs.name != "ascii" else ", "
        line = ""
        for fact in facts:
            joined = f"{line}{separator}{fact}" if line else fact
            if line and cell_len(self.glyphs.text(joined)) > self.width - 4:
                yield from self.wrapped(f"{line}{separator}".rstrip(), 1, role)
                joined = fact
            line = joined
        yield from self.wrapped(line, 1, role)

    def quiet(self, text: str) -> Iterator[StyledLine]:
        """Break a quiet text into lines."""
        return self.wrapped(text, 2, "quiet")

    def led(
        self, lead: Piece, text: str, role: str = "text", indent: int | None = None
    ) -> Iterator[StyledLine]:
        """Break a text beside what leads its first line; the others begin below it, or after
        `indent` blanks."""
        width = len(lead[0])
        for line in self.wrapped(text, width, role):
            yield [lead, *line[1:]]
            lead = (" " * (width if indent is None else indent), lead[1])

    def marked(self, text: str, role: str) -> Iterator[StyledLine]:
        """Break a text beside a warning sign."""
        return self.led((f"  {self.glyphs.warning} ", role), text)

    def labelled(self, label: str, text: str) -> Iterator[StyledLine]:
        """Break a text beside a label."""
        return self.led((f"  {label:<{LABEL}}", "quiet"), text)


@lru_cache(maxsize=1024)
def _wrapped(text: str, room: int) -> tuple[str, ...]:
    """Break a text into lines; cached, since most of a page is the same in every tick."""
    lines = wrap(text, room, break_on_hyphens=False) or [""]
    return tuple(part for line in lines for part in chop_cells(line, room) or [""])
