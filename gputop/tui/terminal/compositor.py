"""Textual's compositor, made to send only the cells that differ from what the terminal shows.

Only for a Textual that is supported (`compatibility.py`); `drawing.py` decides on its use.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from textual._compositor import Compositor, CompositorUpdate
from textual._context import visible_screen_stack
from textual.app import App
from textual.dom import NoScreen
from textual.driver import Driver
from textual.drivers._writer_thread import WriterThread
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from gputop.tui.terminal.cells import Painted
from gputop.tui.terminal.sgr import PLAIN, Span, SpanLines, span

# A frame is at most three chunks (begin, cells, end): if this many wait, the terminal has not even
# taken the previous frame.
STALLED = 3
# Seconds until a picture that was not sent is tried again: soon, since the writer may only have
# been slow to wake up, then ever less often.
FIRST_RETRY = 0.005
LAST_RETRY = 0.1


class _Screenful:
    """What is known of one terminal."""

    def __init__(self) -> None:
        self.painted = Painted()
        self.behind = False
        """Whether a picture was held back and nothing was drawn since."""
        self.retrying = False


# One per terminal and not per screen: a modal is drawn over what the screen below it painted.
_terminals: WeakKeyDictionary[Driver, _Screenful] = WeakKeyDictionary()


def reset() -> None:
    """Assume nothing about what terminals show: the next update draws every line."""
    for terminal in _terminals.values():
        terminal.painted.reset()


def mark(widget: Widget, regions: Collection[Region]) -> bool:
    """Have regions of a widget drawn. The usual way, by the queues of the widget and its screen,
    takes four messages and their tasks; return False if only that way is possible."""
    try:
        screen = widget.screen
        compositor, dirty, timer = screen._compositor, screen._dirty_widgets, screen._update_timer
        ours = isinstance(compositor, DiffCompositor) and screen in compositor
        if not ours or widget._repaint_required or not widget.display:
            return False
        widget._repaint_regions.update(regions)
    except (AttributeError, NoScreen):
        return False
    if not dirty:
        asyncio.get_running_loop().call_soon(_begin, screen, timer)
    dirty.add(widget)
    return True


def _begin(screen: Screen[Any], timer: Timer) -> None:
    """Draw what is marked, unless a layout comes first: it draws the marked regions, too."""
    if _is_layout_due(screen) or screen.app._batch_count or not screen.is_current:
        screen.check_idle()
    else:
        timer.resume()


def _is_layout_due(screen: Screen[Any]) -> bool:
    waits = screen._layout_required or not screen._message_queue.empty()
    return waits or any(widget._layout_required for widget in screen.walk_children(Widget))


class Changes(CompositorUpdate):
    """Lines to draw. They are compared when they are sent, and only then taken as painted."""

    def __init__(self, painted: Painted, lines: Mapping[int, list[Span]], size: Size) -> None:
        self._painted = painted
        self._lines = lines
        self._size = size

    def render_segments(self, console: Console) -> str:
        return self._painted.draw(self._lines.items(), self._size)


class DiffCompositor(Compositor):
    """Sends the cells that changed, and nothing at all while the terminal takes nothing."""

    def render_update(
        self,
        full: bool = False,
        screen_stack: list[Screen[Any]] | None = None,
        simplify: bool = False,
    ) -> RenderableType | None:
        """Return what to send to the terminal now, or None.

        With `full` the picture is not for the terminal but for a screenshot.
        """
        if full or self.root is None:
            return self._screenshot(screen_stack, simplify)
        app = self.root.app
        terminal = _terminal(app)
        if terminal is None:
            return super().render_update(screen_stack=screen_stack)
        if backlog(app) >= STALLED:
            _paint_later(app, terminal)
            return None
        terminal.behind = False
        visible_screen_stack.set([] if screen_stack is None else screen_stack)
        # Textual draws it by `render_segments`, so it need not be anything that Rich can draw.
        return self._changes(terminal.painted)  # type: ignore[return-value]

    def _screenshot(
        self, screen_stack: list[Screen[Any]] | None, simplify: bool
    ) -> RenderableType | None:
        """Return Textual's own picture; what the terminal does not show yet stays dirty."""
        pending = self._dirty_regions.copy()
        try:
            return super().render_update(True, screen_stack, simplify)
        finally:
            self._dirty_regions.update(pending)

    def _changes(self, painted: Painted) -> Changes | None:
        """Return the dirty lines, or all lines if it is not known what the terminal shows."""
        every = range(self.size.height)
        rows = self._dirty_rows() if painted.knows(self.size) else list(every)
        self._dirty_regions.clear()
        if not rows or self.root is None:
            return None
        # Like Textual, which falls back on true colour rather than on none.
        colors = self.root.app.console._color_system or ColorSystem.TRUECOLOR
        own = {row: self._own_spans(row, colors) for row in rows}
        others = self._spans([row for row in rows if own[row] is None], colors)
        lines = {row: others[row] if spans is None else spans for row, spans in own.items()}
        return Changes(painted, lines, self.size)

    def _own_spans(self, row: int, colors: ColorSystem) -> list[Span] | None:
        """Return the spans of a row that one widget of spans fills; None for any other row."""
        for widget, visible, region in self.layers_visible[row][:1]:  # the one in front
            if isinstance(widget, SpanLines) and visible.width == region.width == self.size.width:
                return widget.spans(row - region.y, colors)
        return None

    def _spans(self, rows: Sequence[int], colors: ColorSystem) -> dict[int, list[Span]]:
        """Return the spans of rows that Textual puts together from strips."""
        if not rows:
            return {}
        # Whole lines, as cells are compared by their column. Widgets keep the strips of clean
        # parts, so these cost little.
        crop = Region(0, rows[0], self.size.width, rows[-1] + 1 - rows[0])
        chops = self._render_chops(crop, set(rows).__contains__)
        return {row: _spans(chops[row], colors) for row in rows}

    def _dirty_rows(self) -> list[int]:
        screen = self.size.region
        regions = (region.intersection(screen) for region in self._dirty_regions)
        return sorted({row for region in regions for row in region.line_range})


def _spans(chops: Mapping[int, Strip | None], colors: ColorSystem) -> list[Span]:
    """Return the spans of a line from its strips, by the column that each begins at."""
    spans: list[Span] = []
    end = 0
    for start, strip in chops.items():
        if strip is None:
            continue
        if start > end:
            spans.append((" " * (start - end), PLAIN))
        spans += [span(text, style, colors) for text, style, control in strip if not control]
        end = start + strip.cell_length
    return spans


def _terminal(app: App[Any]) -> _Screenful | None:
    driver = app._driver
    return None if driver is None else _terminals.setdefault(driver, _Screenful())


def backlog(app: App[Any]) -> int:
    """Return how many chunks wait for the terminal; a full queue would block the event loop."""
    writer = getattr(app._driver, "_writer_thread", None)
    return writer._queue.qsize() if isinstance(writer, WriterThread) else 0


def _paint_later(app: App[Any], terminal: _Screenful) -> None:
    """Once the terminal takes output again, draw the picture that is current then."""
    terminal.behind = True
    if not terminal.retrying:
        terminal.retrying = True
        app.set_timer(FIRST_RETRY, lambda: _retry(app, terminal, FIRST_RETRY))


def _retry(app: App[Any], terminal: _Screenful, waited: float) -> None:
    if app.is_running and terminal.behind and backlog(app) >= STALLED:
        wait = min(waited * 2, LAST_RETRY)
        app.set_timer(wait, lambda: _retry(app, terminal, wait))
        return
    terminal.retrying = False
    if app.is_running and terminal.behind:
        app.screen.refresh()
