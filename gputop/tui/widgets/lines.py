"""The base of what is drawn: lines of (text, role) pieces, redrawn only where they changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip

from gputop.tui import compositor
from gputop.tui.glyphs import UNICODE, Glyphs
from gputop.tui.keys import OnlyBindings
from gputop.tui.pens import Palette, Span
from gputop.tui.themes import ROLES

Piece = tuple[str, str]
"""Text that is harmless to print, and its role: one of `themes.ROLES`, `text` or `cursor`."""


class Lines(OnlyBindings):
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
        self._painted: dict[int, list[Piece]] = {}
        self._ready: dict[int, Strip] = {}
        self._inked: dict[int, list[Span]] = {}
        self._palette: Palette | None = None
        self._inked_width = 0
        self._pens: dict[str, tuple[str, str]] = {}
        self._role_styles: dict[str, Style] = {}
        self._size_of_now: Size | None = None
        """While lines are compared: to find out takes longer than to draw a cell."""

    def pieces(self, y: int) -> Iterable[Piece]:
        """The content of line `y` of the widget."""
        raise NotImplementedError

    def role_style(self, role: str) -> Style:
        """The style of a role in the theme of now; of no role, that of what is left of a line."""
        style = self._role_styles.get(role)
        if style is None:
            style = self.get_component_rich_style(f"lines--{role}") if role else self.rich_style
            self._role_styles[role] = style
        return style

    @property
    def size(self) -> Size:
        """Of all of it: there is neither border nor padding."""
        return self._size_of_now or self.region.size

    def sync(self, lines: Iterable[int] | None = None) -> None:
        """Repaint the lines whose content changed, of all or of these."""
        width, height = self.size
        if not self.is_attached or not width:
            return
        self._size_of_now = self.size
        try:
            changed = [y for y in (range(height) if lines is None else lines) if self._differs(y)]
        finally:
            self._size_of_now = None
        if changed:
            compositor.repaint(self, [Region(0, y, width, 1) for y in changed])

    def spans(self, y: int, width: int, palette: Palette) -> list[Span]:
        """A line of so many cells for a compositor that wants no strips, with pens of its
        palette."""
        if palette is not self._palette or width != self._inked_width:
            self._palette, self._inked_width = palette, width
            self._pens.clear()
            self._inked.clear()
        spans = self._inked.get(y)
        if spans is None:
            pieces = self._content(y)
            left_over = width - width_of(pieces)
            pieces = [*pieces, (" " * left_over, "")] if left_over > 0 else pieces
            spans = [(text, self._pen(role, palette)[text.isspace()]) for text, role in pieces]
            self._inked[y] = spans
        return spans

    def render_line(self, y: int) -> Strip:
        """Textual asks for a line, after a layout perhaps before it tells the new width."""
        strip, width = self._ready.get(y), self.size.width
        if strip is None or strip.cell_length != width:
            segments = [Segment(text, self.role_style(role)) for text, role in self._content(y)]
            strip = Strip(segments).adjust_cell_length(width, self.role_style(""))
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
        for known in (self._painted, self._ready, self._inked, self._pens, self._role_styles):
            known.clear()

    def on_resize(self) -> None:
        """Another width: no line is what it was, also while no frame comes."""
        self.forget()
        self.refresh()

    def _differs(self, y: int) -> bool:
        """Take in a line as it is now; whether it is another one."""
        pieces = self._merged(y)
        if self._painted.get(y) == pieces:
            return False
        self._painted[y] = pieces
        self._ready.pop(y, None)
        self._inked.pop(y, None)
        return True

    def _content(self, y: int) -> list[Piece]:
        """What was painted, or will be."""
        if y not in self._painted:
            self._painted[y] = self._merged(y)
        return self._painted[y]

    def _merged(self, y: int) -> list[Piece]:
        """Neighbours of one role are one piece: fewer to send and to compare."""
        merged: list[Piece] = []
        before = ""
        for text, role in self.pieces(y):
            if role == before:
                merged[-1] = (merged[-1][0] + text, role)
            elif text:
                merged.append((text, role))
                before = role
        return merged

    def _pen(self, role: str, palette: Palette) -> tuple[str, str]:
        pens = self._pens.get(role)
        if pens is None:
            background = self.background_colors[1]
            pens = self._pens[role] = palette.pens(self.role_style(role), background)
        return pens


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
