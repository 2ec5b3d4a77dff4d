"""A terminal that notes when each piece of output came.

What the pieces show is worked out afterwards: emulating a terminal takes longer than the times that
are measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.terminal import Terminal


class Recorder(Terminal):
    """A terminal that emulates nothing while it records: its screen is empty until `replay`."""

    def __init__(self, argv: list[str], cols: int, rows: int, env: dict[str, str]) -> None:
        self.pieces: list[tuple[float, int]] = []
        """For each piece, its time (monotonic) and the length of all output with it."""
        self.started = time.monotonic()
        super().__init__(argv, cols=cols, rows=rows, env=dict(env))

    def _feed(self) -> None:
        self.pieces.append((time.monotonic(), len(self.raw)))

    def listen(self, seconds: float) -> None:
        """Record output for this long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.pump(left) and not self._open:
                return

    def replay(self) -> Iterator[float]:
        """Yield the time of each piece not replayed yet, with the screen as it was then."""
        whole, self.raw = bytes(self.raw), self.raw[: self._fed]
        for at, length in self.pieces:
            self.raw += whole[len(self.raw) : length]
            super()._feed()
            yield at
        self.pieces.clear()

    def marked(self) -> Iterator[str]:
        """Yield lines drawn in reverse or on another background, as the cursor's line is."""
        screen = self._screen
        for row in range(screen.lines):
            cells = [screen.buffer[row][column] for column in range(screen.columns)]
            if sum(cell.reverse or cell.bg != "default" for cell in cells) > len(cells) // 2:
                yield "".join(cell.data for cell in cells)
