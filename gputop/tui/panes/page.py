"""A text to scroll, which may change with every tick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.events import MouseScrollDown, MouseScrollUp

from gputop.tui.panes.lines import MOVES, NOTCH, Lines, Piece, StyledLine
from gputop.tui.panes.paper import Paper, title


class Page(Lines, can_focus=True):
    """A text, counted in lines from 0, that the keys of a table and the wheel scroll."""

    BINDINGS = MOVES

    def __init__(self) -> None:
        super().__init__()
        self.lines: Sequence[StyledLine] = ()
        self.top = 0
        """The first line in sight."""
        self._title: StyledLine | None = None
        self.marked: int | None = None
        """The line that is bright, with the sign of the cursor; None if none is."""

    @property
    def paper(self) -> Paper:
        """What the lines are written on."""
        return Paper(self.size.width, self.glyphs)

    @property
    def visible_lines(self) -> int:
        """How many lines of the text fit."""
        return self.size.height

    @property
    def span(self) -> tuple[int, int, int]:
        """First and last line in sight, counted from 1, and the number of all lines."""
        total = len(self.lines)
        return min(self.top + 1, total), min(self.top + self.visible_lines, total), total

    def show_lines(self, lines: Sequence[StyledLine]) -> None:
        """Show another text. It stays where it was scrolled to, even if the text above grows: the
        heading before the first line in sight keeps its place. If the text begins with a heading,
        that stays in sight."""
        self._title = next(filter(_is_heading, lines[:2]), None)
        above = [n for n in range(min(self.top + 1, len(self.lines))) if _is_heading(self.lines[n])]
        top = self.top
        if above and self.lines[above[-1]] in lines:
            top += lines.index(self.lines[above[-1]]) - above[-1]
        self.lines = lines
        self.go_to(top)

    def number_at(self, y: int) -> int:
        """Return the number of the line at a row; a title that stays in sight has 0."""
        is_title = y == 0 < self.top and self._title is not None
        return 0 if is_title else self.top + y

    def pieces(self, y: int) -> Iterable[Piece]:
        if self.top + y >= len(self.lines):
            return ()
        if self._title is not None and self.number_at(y) < self.top:
            return self.paper.cut(self._title)
        if self.top + y != self.marked:
            return self.paper.cut(self.lines[self.top + y])
        text = "".join(text for text, _ in self.lines[self.marked])
        sign = self.glyphs.cursor if text[:1] in ("", " ") else text[:1]
        return self.paper.cut([(sign + text[1:], "cursor")])

    def go_to(self, line: int) -> None:
        """Scroll a line to the top, as far as the text goes."""
        self.top = min(max(0, line), max(0, len(self.lines) - self.visible_lines))
        self.repaint_changed()

    def go_to_section(self, text: str) -> None:
        """Scroll to the heading of a section, if there is one; the title is above it."""
        _, heading = title(text)
        if heading in self.lines:
            self.go_to(self.lines.index(heading) - 1)

    def action_move(self, step: int) -> None:
        self.go_to(self.top + step)

    def action_page(self, step: int) -> None:
        self.go_to(self.top + step * max(1, self.visible_lines - 1))

    def action_end(self, last: int) -> None:
        self.go_to(len(self.lines) if last else 0)

    def on_resize(self) -> None:
        super().on_resize()
        self.go_to(self.top)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.go_to(self.top + NOTCH)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.go_to(self.top - NOTCH)


def _is_heading(line: StyledLine) -> bool:
    return len(line) == 1 and line[0][1] == "heading"
