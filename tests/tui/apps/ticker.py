"""Draws everything anew fifty times a second, and tells a pipe how it fares.

Arguments: the path of a named pipe. Each line there is the tick and the chunks that wait for the
terminal.
"""

import sys
from pathlib import Path
from typing import TextIO

from textual.app import ComposeResult
from textual.widgets import Static

from gputop.tui.terminal.app import TerminalApp, run
from gputop.tui.terminal.compositor import backlog


class Ticker(TerminalApp[None]):
    """See the module."""

    BINDINGS = [("q", "quit", "Quit"), ("p", "pause", "Pause")]

    def __init__(self, reports: TextIO) -> None:
        super().__init__()
        self.reports = reports
        self.ticks = 0

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def on_mount(self) -> None:
        self.interval = self.set_interval(0.02, self.tick)

    def action_pause(self) -> None:
        """Draw nothing more; the last report has -1 for the tick, and the last tick."""
        self.interval.pause()
        print(-1, self.ticks, file=self.reports, flush=True)

    def tick(self) -> None:
        self.ticks += 1
        width, height = self.size
        line = "".join(chr(33 + (self.ticks + column) % 90) for column in range(width - 1))
        self.query_one(Static).update(f"tick {self.ticks}\n" + "\n".join([line] * (height - 1)))
        print(self.ticks, backlog(self), file=self.reports, flush=True)


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w") as reports:
        app = Ticker(reports)
        app.theme = "ansi-dark"
        sys.exit(run(app))
