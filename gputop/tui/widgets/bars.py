"""The heading, and the line of keys."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gputop.model import summary
from gputop.model.frame import Frame
from gputop.model.health import in_alarm
from gputop.model.text import MISSING, percent, size
from gputop.tui.widgets.columns import cut
from gputop.tui.widgets.lines import Lines, Piece, spread, width_of


class Heading(Lines):
    """The machine in one line: name, versions, how many GPUs are free, the time of the frame."""

    def __init__(self, note: str = "", *, id: str | None = None) -> None:  # noqa: A002
        """`note`: something to say first."""
        super().__init__(id=id)
        self.note = note
        self._frame: Frame | None = None
        self._interval = 1.0
        self._paused = False

    def show_frame(self, frame: Frame | None, interval: float, paused: bool) -> None:
        """Another frame, interval or state."""
        self._frame, self._interval, self._paused = frame, interval, paused
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        """What fits: facts go from the right as the line gets short."""
        frame = self._frame
        right: list[Piece] = []
        if self._paused:
            right.append(("PAUSED  ", "notice"))
        if frame is not None:
            right.append((time.strftime("%H:%M:%S", time.localtime(frame.time)), "text"))
        right.append((f"  {self._interval:g}s ", "quiet"))
        left: list[Piece] = [(" gputop  ", "heading")]
        if self.note:
            left.append((f"{self.note}  ", "notice"))
        if frame is None:
            return spread([*left, ("waiting for the driver", "quiet")], right, self.size.width)
        if frame.demo:
            wide = self.size.width >= 110
            left.append(("DEMO, an invented machine" if wide else "DEMO", "notice"))
        else:
            host = self.glyphs.text(frame.host.name)
            left.append((cut(host, max(12, self.size.width // 3), self.glyphs.ellipsis), "text"))
        room = self.size.width - width_of([*left, *right]) - 1
        for fact, role in self._facts(frame):
            text = f" {self.glyphs.separator} {fact}"
            if len(text) > room:
                break
            left.append((text, role))
            room -= len(text)
        return spread(left, right, self.size.width)

    def _facts(self, frame: Frame) -> Iterable[Piece]:
        wide = self.size.width >= 110
        driver, cuda = frame.driver_version or MISSING, frame.cuda_version or MISSING
        total, free = len(frame.gpus), len(summary.free_gpus(frame))
        who = len(summary.users(frame))
        if alarms := len(in_alarm(frame)):
            yield f"{alarms} alarm{'s' * (alarms != 1)} (H)", "alarm"
        yield (f"driver {driver}" if wide else driver), "quiet"
        yield f"CUDA {cuda}", "quiet"
        plural = "s" * (total != 1)
        gpus = f"{total} GPU{plural}, {free} free" if wide else f"{free} of {total} free"
        yield gpus, "good" if free else "text"
        yield f"{who} user{'s' * (who != 1)}", "text"
        host = frame.host
        if wide and host.cpu is not None:
            yield f"CPU {percent(host.cpu)}%", "quiet"
        if wide and host.memory_used is not None:
            yield f"RAM {size(host.memory_used)}/{size(host.memory_total)}", "quiet"


class KeyLine(Lines):
    """What the keys do, as many as fit."""

    def __init__(self, keys: Iterable[tuple[str, str]], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._keys = list(keys)

    def pieces(self, y: int) -> Iterable[Piece]:
        """Key and word, key and word."""
        pieces = self._state()
        room = self.size.width - width_of(pieces)
        for key, word in self._keys:
            room -= len(key) + len(word) + 3
            if room < -2:
                break
            pieces += [(key, "key"), (f" {word}  ", "quiet")]
        return pieces

    def _state(self) -> list[Piece]:
        """What is said before them."""
        return [(" ", "text")]


class PageKeys(KeyLine):
    """Below a page, which has no heading to say that all stands still."""

    def on_mount(self) -> None:
        """Follow the state of the app."""
        if hasattr(self.app, "paused"):
            self.watch(self.app, "paused", lambda: self.sync())

    def _state(self) -> list[Piece]:
        paused = getattr(self.app, "paused", False)
        return [(" PAUSED  ", "notice")] if paused else super()._state()
