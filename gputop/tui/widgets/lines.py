"""The base of what is drawn: lines of (text, role) pieces, redrawn only where they changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.tui.glyphs import UNICODE, Glyphs
from gputop.tui.themes import ROLES

Piece = tuple[str, str]
"""Text that is harmless to print, and its role: one of `themes.ROLES`, `text` or `cursor`."""


class Lines(Widget):
    """A widget that is asked for pieces and paints lines.

    A subclass gives `pieces(y)`; `sync()` compares every visible line with what was painted and
    repaints those that differ.
    """

    COMPONENT_CLASSES = {f"lines--{role}" for role in (*ROLES, "text", "cursor")}

    DEFAULT_CSS = (
        """
    Lines { height: 1; background: $background; }
    Lines .lines--text { color: $foreground; }
    Lines .lines--cursor { color: $foreground; text-style: reverse; }
    """
        + "\n".join(f"Lines .lines--{role} {{ color: $gp-{role}; }}" for role in ROLES)
        + """
    Lines .lines--heading { text-style: bold; }
    Lines .lines--notice { text-style: bold; }
    Lines .lines--alarm { text-style: bold; }
    Lines:ansi .lines--quiet { text-style: dim; }
    Lines:nocolor .lines--alarm { text-style: bold underline; }
    """
    )

    glyphs: Glyphs = UNICODE

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._painted: dict[int, list[Segment]] = {}
        self._ready: dict[int, Strip] = {}
        self._role_styles: dict[str, Style] = {}

    def pieces(self, y: int) -> Iterable[Piece]:
        """The content of line `y` of the widget."""
        raise NotImplementedError

    def role_style(self, role: str) -> Style:
        """The style of a role in the theme of now."""
        style = self._role_styles.get(role)
        if style is None:
            style = self._role_styles[role] = self.get_component_rich_style(f"lines--{role}")
        return style

    def sync(self, lines: Iterable[int] | None = None) -> None:
        """Repaint the lines whose content changed, of all or of these."""
        if not self.is_attached or not self.size.width:
            return
        width = self.size.width
        changed = []
        for y in range(self.size.height) if lines is None else lines:
            segments = self._segments(y)
            if self._painted.get(y) != segments:
                self._painted[y] = segments
                self._ready.pop(y, None)
                changed.append(Region(0, y, width, 1))
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Textual asks for a line."""
        strip = self._ready.get(y)
        if strip is None:
            if y not in self._painted:
                self._painted[y] = self._segments(y)
            blank = self._role_styles.get("")
            if blank is None:
                blank = self._role_styles[""] = self.rich_style
            strip = Strip(self._painted[y]).adjust_cell_length(self.size.width, blank)
            self._ready[y] = strip
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """As Textual's, but for borders, padding and opacity, which lines have not."""
        strips = [self.render_line(y) for y in crop.line_range]
        for line_filter in self.app.get_line_filters():
            background = self.background_colors[1]
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        if crop.column_span != (0, self.size.width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def notify_style_update(self) -> None:
        """Another theme: no line is what it was."""
        self.forget()
        super().notify_style_update()

    def forget(self) -> None:
        """All lines are drawn anew."""
        self._painted.clear()
        self._ready.clear()
        self._role_styles.clear()

    def on_resize(self) -> None:
        """Another width: no line is what it was, also while no frame comes."""
        self.forget()
        self.refresh()

    def _segments(self, y: int) -> list[Segment]:
        """Neighbours of one role are one segment: fewer to send and to compare."""
        merged: list[list[str]] = []
        for text, role in self.pieces(y):
            if merged and merged[-1][1] == role:
                merged[-1][0] += text
            elif text:
                merged.append([text, role])
        return [Segment(text, self.role_style(role)) for text, role in merged]


def width_of(pieces: Iterable[Piece]) -> int:
    """How many cells pieces take; most are ASCII, a cell a letter, which is soon told."""
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in pieces)


def spread(
    left: Sequence[Piece], right: Sequence[Piece], width: int, fill: str = " "
) -> list[Piece]:
    """Pieces at both ends of a line; what is at the right gives way if there is no room."""
    taken, wanted = width_of(left), width_of(right)
    if taken + wanted > width:
        return [*left, (fill * max(0, width - taken), "quiet")]
    return [*left, (fill * (width - taken - wanted), "quiet"), *right]
