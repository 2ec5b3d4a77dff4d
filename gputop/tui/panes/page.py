"""A text to scroll, which may change with every tick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.events import MouseScrollDown, MouseScrollUp

from gputop.tui.panes.lines import MOVES, NOTCH, Lines, Piece, StyledLine
from gputop.tui.panes.paper import Paper, title


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


class Page(Lines, can_focus=True):
    """Lines that the keys of a table and the wheel scroll."""

    BINDINGS = MOVES

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.text = ScrolledText()
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

    def show_lines(self, lines: Sequence[StyledLine]) -> None:
        """Show another text, scrolled as the one before; see `ScrolledText`. If it begins with a
        heading, that stays in sight."""
        self._title = next(filter(_is_heading, lines[:2]), None)
        self.text.show(lines, self.visible_lines)
        self.repaint_changed()

    def number_at(self, y: int) -> int:
        """Return the number of the line at a row; a title that stays in sight has 0."""
        is_title = y == 0 < self.text.top and self._title is not None
        return 0 if is_title else self.text.top + y

    def pieces(self, y: int) -> Iterable[Piece]:
        line = self.text.line_at(y)
        if line is None:
            return ()
        if self._title is not None and self.number_at(y) < self.text.top:
            return self.paper.cut(self._title)
        if self.text.top + y != self.marked:
            return self.paper.cut(line)
        text = "".join(text for text, _ in line)
        sign = self.glyphs.cursor if text[:1] in ("", " ") else text[:1]
        return self.paper.cut([(sign + text[1:], "cursor")])

    def go_to(self, line: int) -> None:
        """Scroll a line to the top, as far as the text goes."""
        self.text.scroll(line, self.visible_lines)
        self.repaint_changed()

    def go_to_section(self, text: str) -> None:
        """Scroll to the heading of a section, if there is one; the title is above it."""
        _, heading = title(text)
        if heading in self.text.lines:
            self.go_to(self.text.lines.index(heading) - 1)

    def action_move(self, step: int) -> None:
        self._scroll(step)

    def action_page(self, step: int) -> None:
        self._scroll(step * max(1, self.visible_lines - 1))

    def action_end(self, last: int) -> None:
        self.go_to(len(self.text.lines) if last else 0)

    def on_resize(self) -> None:
        super().on_resize()
        self.text.scroll(self.text.top, self.visible_lines)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self._scroll(NOTCH)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self._scroll(-NOTCH)

    def _scroll(self, lines: int) -> None:
        self.go_to(self.text.top + lines)


def _is_heading(line: StyledLine) -> bool:
    return len(line) == 1 and line[0][1] == "heading"
