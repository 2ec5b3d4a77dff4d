"""The newest frame of a source, as text for whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import generate_latest

from gputop.errors import GputopError
from gputop.export.prometheus.dcgm import add_dcgm
from gputop.export.prometheus.family import Families
from gputop.export.prometheus.own import add_machine, add_reading
from gputop.model.machine.frame import Frame

_KEPT = 1.0
"""Seconds for which a text is good while no frame comes: ages are in it."""


class ExpositionChoice(NamedTuple):
    """What is wanted."""

    dcgm: bool = False
    """The names of dcgm-exporter instead of gputop's own."""
    processes: bool = False
    """Single processes as well."""


class Exposition:
    """Takes what comes of a source, in one thread, and gives it as text in any other.

    However many ask, a frame is written once a second at most, and the driver is not asked at all.
    """

    def __init__(self, choice: ExpositionChoice, clock: Callable[[], float]) -> None:
        """clock: seconds since the epoch."""
        self._choice, self._clock = choice, clock
        self._lock = threading.Lock()
        self._frame: Frame | None = None
        self._error: GputopError | None = None
        self._count = 0
        self._text = b""
        self._until = 0.0

    def put(self, message: Frame | GputopError) -> None:
        """Take the next frame, or the reason why none comes."""
        with self._lock:
            self._until = 0.0
            if isinstance(message, Frame):
                self._frame, self._error = message, None
                self._count += 1
            else:
                self._error = message

    def text(self) -> bytes:
        """Return Prometheus' text format, version 0.0.4."""
        with self._lock:
            now = self._clock()
            if not self._until - _KEPT <= now < self._until:  # clocks are put back, too
                self._text = self._write(now)
                self._until = now + _KEPT
            return self._text

    def _write(self, now: float) -> bytes:
        out, frame = Families(), self._frame
        is_up = frame is not None and frame.problem is None and self._error is None
        add_reading(out, frame, is_up, now, self._count)
        if frame is not None and is_up:
            if self._choice.dcgm:
                add_dcgm(out, frame)
            else:
                late = max(0.0, now - frame.time)
                add_machine(out, frame, late, self._choice.processes)
        return generate_latest(out)
