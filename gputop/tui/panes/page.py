"""A text to scroll, which may change with every tick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.events import MouseScrollDown, MouseScrollUp

from gputop.tui.panes.lines import MOVES, NOTCH, Lines, Piece, StyledLine
from gputop.tui.panes.paper import Paper, title
from gputop.tui.panes.scrolled_text import ScrolledText


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
        begin = (line for line in lines[:2] if len(line) == 1 and line[0][1] == "heading")
        self._title = next(begin, None)
        self.text.show(lines, self.visible_lines)
        self.repaint_changed()

    def pieces(self, y: int) -> Iterable[Piece]:
        line = self.text.line_at(y)
        if line is None:
            return ()
        if y == 0 and self.text.top > 0 and self._title is not None:
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
        self.go_to(self.text.top + step)

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.visible_lines - 1))

    def action_end(self, last: int) -> None:
        self.go_to(len(self.text.lines) if last else 0)

    def on_resize(self) -> None:
        super().on_resize()
        self.text.scroll(self.text.top, self.visible_lines)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.action_move(NOTCH)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.action_move(-NOTCH)
