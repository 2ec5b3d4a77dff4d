"""A few lines of text, for whoever has worked them out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.tui.panes.columns import crop_or_pad
from gputop.tui.panes.lines import Lines, Piece, StyledLine


class TextLines(Lines):
    """Shows the lines that it was last given, and is as high as they are many. One that is too wide
    is cut."""

    _said: Sequence[StyledLine] = ()

    def say(self, lines: Sequence[StyledLine]) -> None:
        """Show other lines."""
        self._said = lines
        self.styles.height = len(lines)
        self.repaint_changed()

    @property
    def count(self) -> int:
        """How many lines it shows."""
        return len(self._said)

    def pieces(self, y: int) -> Iterable[Piece]:
        line = self._said[y] if y < len(self._said) else []
        return crop_or_pad(line, self.size.width, self.glyphs.ellipsis)
