"""A terminal that notes when each piece of output came.

What the pieces show is found out afterwards: to emulate a terminal takes longer than what is
measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.terminal import Terminal


class Recorder(Terminal):
    """The program must read and write nothing else; its screen is empty until it is replayed."""

    def __init__(self, argv: list[str], cols: int, rows: int, env: dict[str, str]) -> None:
        self.pieces: list[tuple[float, int]] = []
        """When (monotonic), and the length of all output by then."""
        self.started = time.monotonic()
        super().__init__(argv, cols=cols, rows=rows, env=dict(env))

    def _feed(self) -> None:
        self.pieces.append((time.monotonic(), len(self.raw)))

    def listen(self, seconds: float) -> None:
        """Take what comes for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.pump(left) and not self._open:
                return

    def replay(self) -> Iterator[float]:
        """The times of the pieces that have not been replayed; the screen is that of then."""
        whole, self.raw = bytes(self.raw), self.raw[: self._fed]
        for at, length in self.pieces:
            self.raw += whole[len(self.raw) : length]
            super()._feed()
            yield at
        self.pieces.clear()

    def marked(self) -> Iterator[str]:
        """Lines that are drawn in reverse, or on another background, as the one with the cursor."""
        screen = self._screen
        for row in range(screen.lines):
            cells = [screen.buffer[row][column] for column in range(screen.columns)]
            if sum(cell.reverse or cell.bg != "default" for cell in cells) > len(cells) // 2:
                yield "".join(cell.data for cell in cells)
