"""The lines of a text, and which of them are in sight."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.tui.panes.lines import StyledLine


class ScrolledText:
    """A text that may change with every tick, and how far it is scrolled.

    `visible_lines` is how many lines fit. Lines are counted from 0.
    """

    def __init__(self) -> None:
        self.lines: Sequence[StyledLine] = ()
        self.top = 0
        """The first line in sight."""

    def show(self, lines: Sequence[StyledLine], visible_lines: int) -> None:
        """Take another text. It stays where it was scrolled to, even if the text above grows: the
        heading before the first line in sight keeps its place."""
        above = [n for n in range(min(self.top + 1, len(self.lines))) if _is_heading(self.lines[n])]
        top = self.top
        if above and self.lines[above[-1]] in lines:
            top += lines.index(self.lines[above[-1]]) - above[-1]
        self.lines = lines
        self.scroll(top, visible_lines)

    def scroll(self, top: int, visible_lines: int) -> None:
        """Bring a line to the top, as far as the text goes."""
        self.top = min(max(0, top), max(0, len(self.lines) - visible_lines))

    def line_at(self, y: int) -> StyledLine | None:
        """Return the line that is shown `y` lines below the top; None below the last."""
        index = self.top + y
        return self.lines[index] if index < len(self.lines) else None

    def span(self, visible_lines: int) -> tuple[int, int, int]:
        """Return the first and last line in sight, counted from 1, and the number of all lines."""
        total = len(self.lines)
        return min(self.top + 1, total), min(self.top + visible_lines, total), total


def _is_heading(line: StyledLine) -> bool:
    return len(line) == 1 and line[0][1] == "heading"
