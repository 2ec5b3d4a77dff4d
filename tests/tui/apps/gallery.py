"""Much of what can happen on a screen, each thing at the press of a key, always the same way.

Argument: a theme.
"""

import sys

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Footer, Input, Static

from gputop.tui.terminal.app import TerminalApp, run

INK = [Style(color=name) for name in ("red", "green", "blue", "default")]
ODD = [
    "日本語テキスト  mixed 한국어",
    "e\u0301a\u0308 combining n\u0303",
    "🚀 emoji ⚡ symbols ✅ done",
    "█▉▊▋▌▍▎▏ ⣿⡇ ░▒▓",
]


class Gauges(Widget):
    """Lines of which few cells change with every tick."""

    DEFAULT_CSS = "Gauges { height: 8; }"
    tick = 0

    def render_line(self, y: int) -> Strip:
        filled = (self.tick * 3 + y * 7) % 40
        segments = [
            Segment(f" {y} H200  ", Style(bold=True)),
            Segment("█" * filled, INK[(y + self.tick) % 4]),
            Segment("░" * (40 - filled), Style(dim=True)),
            Segment(f" {filled * 2.5:5.1f}%  ", Style()),
            Segment(ODD[(y + self.tick) % 4] if y > 5 else f"user{y}", INK[y % 4]),
        ]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)


class Rows(ScrollView, can_focus=True):
    """A table with a cursor row."""

    DEFAULT_CSS = "Rows { height: 1fr; }"
    BINDINGS = [
        Binding("j,down", "move(1)"),
        Binding("k,up", "move(-1)"),
        Binding("pagedown", "move(15)"),
    ]
    cursor = 0
    tick = 0

    class Moved(Message):
        """The cursor moved."""

    def on_mount(self) -> None:
        self.virtual_size = Size(60, 120)

    def action_move(self, by: int) -> None:
        self.cursor = min(max(self.cursor + by, 0), 119)
        self.scroll_to(y=max(0, self.cursor - self.size.height + 2), animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        row = y + self.scroll_offset.y
        style = Style(reverse=True) if row == self.cursor else self.rich_style
        value = (row * 37 + self.tick * 11) % 100
        text = f" {row:4d}  user{row % 5}  {value:3d}  " + (ODD[row % 4] if row % 3 else "train.py")
        segments = [Segment(text, style)]
        return Strip(segments).adjust_cell_length(self.size.width, style)


class Dialog(ModalScreen[None]):
    """A modal over a screen that is dimmed."""

    CSS = "Dialog { align: center middle; } Dialog Static { width: 30; height: 5; border: round; }"
    BINDINGS = [Binding("x", "dismiss")]

    def compose(self) -> ComposeResult:
        yield Static("a dialog 日本 over it")


class Page(Screen[None]):
    """Another screen, with an input and text that scrolls."""

    BINDINGS = [Binding("escape", "dismiss", priority=True)]

    def compose(self) -> ComposeResult:
        yield Input(value="a page", select_on_focus=False)
        with VerticalScroll():
            yield Static("\n".join(f"[b]{n}[/b] {ODD[n % 4]} [u]under[/u]" for n in range(80)))

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False


class Gallery(TerminalApp[None]):
    """See the module."""

    BINDINGS = [
        Binding("t", "tick", "Tick"),
        Binding("m", "dialog", "Dialog"),
        Binding("f", "page", "Page"),
        Binding("n", "note", "Note"),
        Binding("c", "clear_notifications", "Clear"),
        Binding("w", "theme", "Theme"),
        Binding("ctrl+l", "repaint", "Repaint"),
        Binding("ctrl+z", "suspend_process", "Suspend"),
        Binding("s", "screenshot_unseen", "Screenshot"),
        Binding("q", "quit", "Quit"),
    ]
    ticks = 0

    def compose(self) -> ComposeResult:
        yield Static(id="count")
        yield Gauges()
        yield Rows()
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Rows).focus()
        self.count()

    def on_rows_moved(self) -> None:
        self.count()

    def on_resize(self) -> None:
        self.call_after_refresh(self.count)

    def count(self) -> None:
        """Say what has been done, for who waits for it."""
        cursor = self.query_one(Rows).cursor
        done = f"tick {self.ticks} row {cursor} {self.theme} {self.size.width}x{self.size.height}"
        self.query_one("#count", Static).update(done)

    def action_tick(self) -> None:
        self.ticks += 1
        for line in self.query(Gauges):
            line.tick = self.ticks
            line.refresh()
        rows = self.query_one(Rows)
        rows.tick = self.ticks // 2
        rows.refresh()
        self.count()

    def action_dialog(self) -> None:
        self.push_screen(Dialog())

    def action_page(self) -> None:
        self.push_screen(Page())

    def action_note(self) -> None:
        self.notify("a note", timeout=1000)

    def action_clear_notifications(self) -> None:
        self.clear_notifications()

    def action_theme(self) -> None:
        self.theme = "textual-light"
        self.count()

    def action_screenshot_unseen(self) -> None:
        """Change something and take a screenshot before the terminal has seen it."""
        self.action_tick()
        self.export_screenshot()


def main(theme: str) -> int:
    app = Gallery()
    app.theme = theme
    return run(app)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
