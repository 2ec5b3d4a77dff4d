"""The base of all panes: lines of (text, role) pieces, redrawn only if they changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.strip import Strip

from gputop.tui.glyphs import UNICODE, GlyphSet
from gputop.tui.terminal import drawing
from gputop.tui.terminal.key_queue import KeyBindingsOnly
from gputop.tui.terminal.sgr import Span, SpanLines, sgrs
from gputop.tui.themes import ROLES, USER_ROLES

Piece = tuple[str, str]
"""Text that is harmless to print, and its role: one of `themes.ROLES`, `text` or `cursor`."""
StyledLine = list[Piece]
MOVES: list[BindingType] = [
    Binding("down,j", "move(1)", "Down", id="table.down", show=False),
    Binding("up,k", "move(-1)", "Up", id="table.up", show=False),
    Binding("pagedown,ctrl+f", "page(1)", "Page down", id="table.page-down", show=False),
    Binding("pageup,ctrl+b", "page(-1)", "Page up", id="table.page-up", show=False),
    Binding("home", "end(0)", "First", id="table.first", show=False),
    Binding("end", "end(1)", "Last", id="table.last", show=False),
]
"""The keys of tables and of pages that are scrolled."""
NOTCH = 3
"""Lines by which a notch of the wheel scrolls."""


class Lines(KeyBindingsOnly, SpanLines):
    """A widget that paints lines of pieces.

    A subclass defines `pieces(y)`; `repaint_changed()` compares every visible line with what
    was painted and repaints those that differ.
    """

    COMPONENT_CLASSES = drawing.components(f"lines--{role}" for role in (*ROLES, "text", "cursor"))

    DEFAULT_CSS = (
        """
    Lines { height: 1; background: $background; }
    Lines .lines--text { color: $foreground; }
    Lines .lines--cursor { color: $foreground; text-style: reverse; }
    """
        + "\n".join(f"Lines .lines--{role} {{ color: $gp-{role}; }}" for role in ROLES)
        + "\n".join(
            f"Lines .lines--{role} {{ text-style: $gp-{role}-style; }}"
            f" Lines:nocolor .lines--{role} {{ text-style: none; }}"
            for role in USER_ROLES
        )
        + """
    Lines .lines--heading { text-style: bold; }
    Lines .lines--good { text-style: bold; }
    Lines .lines--notice { text-style: bold; }
    Lines .lines--alarm { text-style: bold; }
    Lines:ansi .lines--quiet { text-style: dim; }
    Lines:nocolor .lines--alarm { text-style: bold underline; }
    """
    )

    glyphs: GlyphSet = UNICODE

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._painted: dict[int, list[Piece]] = {}
        self._ready: dict[int, Strip] = {}
        self._role_styles: dict[str, Style] = {}
        self._role_sgrs: dict[tuple[str, ColorSystem], tuple[str, str]] = {}
        self._size_of_now: Size | None = None
        """The size while lines are compared: working it out takes longer than drawing a cell."""

    def pieces(self, y: int) -> Iterable[Piece]:
        """Return the content of line `y` of the widget."""
        raise NotImplementedError

    def role_style(self, role: str) -> Style:
        """Return the style of a role in the current theme; without one, of the rest of a line."""
        style = self._role_styles.get(role)
        if style is None:
            style = drawing.component_style(self, f"lines--{role}") if role else self.rich_style
            self._role_styles[role] = style
        return style

    @property
    def size(self) -> Size:
        """The size of the widget, which has neither border nor padding."""
        return self._size_of_now or self.region.size

    def repaint_changed(self, lines: Iterable[int] | None = None) -> None:
        """Repaint those of `lines` whose content changed; None means all lines."""
        width, height = self.size
        if not self.is_attached or not width:
            return
        self._size_of_now = self.size
        try:
            changed = [y for y in (range(height) if lines is None else lines) if self._differs(y)]
        finally:
            self._size_of_now = None
        if changed:
            drawing.repaint(self, list(_regions(changed, width)))

    def render_line(self, y: int) -> Strip:
        return self._strip(y, self.size.width)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return strips as Textual would, without borders, padding and opacity: there are none."""
        width = self.size.width
        strips = [self._filtered(self._strip(y, width)) for y in crop.line_range]
        if crop.column_span != (0, width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def spans(self, y: int, colors: ColorSystem) -> list[Span] | None:
        pieces = self._content(y)
        blanks = self.size.width - width_of(pieces)
        if blanks < 0:
            return None
        spans: list[Span] = []
        for text, role in (*pieces, (" " * blanks, "")) if blanks else pieces:
            ink, blank = self._role_sgrs.get((role, colors)) or self._sgrs(role, colors)
            spans.append((text, blank if text.isspace() else ink))
        return spans

    def _sgrs(self, role: str, colors: ColorSystem) -> tuple[str, str]:
        """Return the sgr of a role, and that of its blanks, as Textual's filters have its style."""
        [segment] = self._filtered(Strip([Segment(" ", self.role_style(role))], 1))
        self._role_sgrs[role, colors] = both = sgrs(segment.style, colors)
        return both

    def _filtered(self, strip: Strip) -> Strip:
        for line_filter in self.app.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        return strip

    def notify_style_update(self) -> None:
        self.reset()
        super().notify_style_update()

    def reset(self) -> None:
        """Forget what was drawn."""
        for drawn in (self._painted, self._ready, self._role_styles, self._role_sgrs):
            drawn.clear()

    def on_resize(self) -> None:
        self.reset()
        self.refresh()

    def _differs(self, y: int) -> bool:
        """Take in the current content of a line; return whether it has changed."""
        pieces = merged(self.pieces(y))
        if self._painted.get(y) == pieces:
            return False
        self._painted[y] = pieces
        self._ready.pop(y, None)
        return True

    def _strip(self, y: int, width: int) -> Strip:
        """Return a line; after a layout, Textual may ask for it before it reports the new width."""
        strip = self._ready.get(y)
        if strip is None or strip.cell_length != width:
            pieces = self._content(y)
            segments = [Segment(text, self.role_style(role)) for text, role in pieces]
            strip = Strip(segments, width_of(pieces))
            strip = self._ready[y] = strip.adjust_cell_length(width, self.role_style(""))
        return strip

    def _content(self, y: int) -> list[Piece]:
        """Return the pieces of a line as they were painted, or will be."""
        if y not in self._painted:
            self._painted[y] = merged(self.pieces(y))
        return self._painted[y]


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces, neighbours of one role merged: fewer to compare and to send."""
    runs: list[Piece] = []
    texts: list[str] = []
    before = ""
    for text, role in pieces:
        if role == before:
            texts.append(text)
        elif text:
            if texts:
                runs.append(("".join(texts), before))
            texts, before = [text], role
    if texts:
        runs.append(("".join(texts), before))
    return runs


def _regions(lines: Iterable[int], width: int) -> Iterator[Region]:
    """Yield the regions of lines: one for all that follow each other."""
    for _, run in groupby(enumerate(sorted(lines)), lambda numbered: numbered[1] - numbered[0]):
        first, *others = (y for _, y in run)
        yield Region(0, first, width, 1 + len(others))


def width_of(pieces: Iterable[Piece]) -> int:
    """Return how many cells pieces take. Most are ASCII, which takes as many as it is long."""
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in pieces)


def spread(
    left: Sequence[Piece], right: Sequence[Piece], width: int, fill: Piece = (" ", "quiet")
) -> list[Piece]:
    """Put pieces at both ends of a line; those at the right are left out if there is no room."""
    room = width - width_of(left)
    wanted = width_of(right)
    if wanted > room:
        right, wanted = (), 0
    return [*left, (fill[0] * (room - wanted), fill[1]), *right]
