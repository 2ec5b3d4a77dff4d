"""The content of cells in the rows of GPUs and MIG devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.text import MISSING, percent
from gputop.model.metrics import graph
from gputop.model.metrics.metric import Metric
from gputop.settings import Thresholds
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.lines import Lines, Piece, width_of

_LEAST_BAR = 4
"""The least width of a bar, in cells: a shorter one says less than its number."""


def value(text: str, role: str = "text") -> Piece:
    """Return a value; an unknown one (MISSING) becomes a quiet sign."""
    return Lines.glyphs.value(text), "quiet" if text == MISSING else role


def worded(metric: Metric[Gpu], value: Any, glyphs: GlyphSet) -> str:
    """Return a value of a metric with its unit; an unknown one is a sign."""
    if value is None:
        return glyphs.not_available
    return glyphs.text(graph.with_unit(metric, value, glyphs.degree))


def load_role(share: float, thresholds: Thresholds) -> str:
    """Return the role of a load (0 to 1), in steps; no load is quiet."""
    if share >= thresholds.heavy:
        return "heavy"
    if share >= thresholds.moderate:
        return "moderate"
    return "light" if share > 0 else "quiet"


def percent_piece(share: float | None, role: str = "text") -> Piece:
    return value(MISSING if share is None else f"{percent(share)}%", role)


def load_piece(share: float | None, thresholds: Thresholds) -> Piece:
    """Return a load (0 to 1) in percent, in its role."""
    return percent_piece(share, "quiet" if share is None else load_role(share, thresholds))


def bar(share: float | None, width: int, role: str) -> Sequence[Piece]:
    """Return a bar of a share (0 to 1); blank if the share is not known."""
    if share is None:
        return [(" " * width, "text")]
    filled = Lines.glyphs.fill(share, width)
    return [(filled, role), (Lines.glyphs.bar_empty * (width - len(filled)), "track")]


def metered(
    share: float | None, role: str, number: Sequence[Piece], width: int, digits: int
) -> Sequence[Piece]:
    """Return a number in the last `digits` of `width` cells. A bar of the share fills the cells
    before it, unless they are too few."""
    room = width - digits - 1
    padding = (" " * (digits - width_of(number)), "text")
    if room < _LEAST_BAR:
        return [(" " * (width - digits), "text"), padding, *number]
    return [*bar(share, room, role), (" ", "text"), padding, *number]


def used_share(device: Gpu | MigDevice) -> float | None:
    """Return the share of the memory that is in use (0 to 1); None if it is not known."""
    if device.memory_used is None or not device.memory_total:
        return None
    return min(1.0, device.memory_used / device.memory_total)
