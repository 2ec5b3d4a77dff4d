"""The content of cells in the rows of GPUs and MIG devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputop.model.health.activity import BY_UTILIZATION
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.text import GIB, MISSING, percent, three_digits
from gputop.model.metrics import graph
from gputop.model.metrics.metric import Metric
from gputop.settings import Thresholds
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.lines import Piece, width_of

_NOTABLE = ("tensor unused",)
_LEAST_BAR = 4
"""The least width of a bar, in cells: a shorter one says less than its number."""


def value(text: str, glyphs: GlyphSet, role: str = "text") -> Piece:
    """Return a value; an unknown one (MISSING) becomes a quiet sign."""
    return glyphs.value(text), "quiet" if text == MISSING else role


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


def percent_piece(share: float | None, glyphs: GlyphSet, role: str = "text") -> Piece:
    return value(MISSING if share is None else f"{percent(share)}%", glyphs, role)


def bar(share: float | None, width: int, role: str, glyphs: GlyphSet) -> Sequence[Piece]:
    """Return a bar of a share (0 to 1); blank if the share is not known."""
    if share is None:
        return [(" " * width, "text")]
    filled = glyphs.fill(share, width)
    return [(filled, role), (glyphs.bar_empty * (width - len(filled)), "track")]


def metered(
    share: float | None, role: str, number: Sequence[Piece], width: int, digits: int,
    glyphs: GlyphSet,
) -> Sequence[Piece]:  # fmt: skip
    """Return a number in the last `digits` of `width` cells. A bar of the share fills the cells
    before it, unless they are too few."""
    room = width - digits - 1
    padding = (" " * (digits - width_of(number)), "text")
    if room < _LEAST_BAR:
        return [(" " * (width - digits), "text"), padding, *number]
    return [*bar(share, room, role, glyphs), (" ", "text"), padding, *number]


def used_share(device: Gpu | MigDevice) -> float | None:
    """Return the share of the memory that is in use (0 to 1); None if it is not known."""
    if device.memory_used is None or not device.memory_total:
        return None
    return min(1.0, device.memory_used / device.memory_total)


def memory_pieces(device: Gpu | MigDevice, role: str, glyphs: GlyphSet) -> Sequence[Piece]:
    if device.memory_used is None or device.memory_total is None:
        return [value(MISSING, glyphs)]
    total = three_digits(device.memory_total / GIB)
    return [(f"{device.memory_used / GIB:.1f}", role), (f"/{total}G", "quiet")]


def doing_piece(device: Gpu | MigDevice, glyphs: GlyphSet) -> Piece:
    """Return what the device has been doing in the last half minute."""
    doing = device.activity.doing if device.activity else None
    if doing is None:
        coming = device.activity or (isinstance(device, Gpu) and device.utilization is not None)
        return (glyphs.pending if coming else glyphs.not_available, "quiet")
    word = doing.removesuffix(BY_UTILIZATION)
    return (word, "notice" if doing in _NOTABLE else "quiet" if word == "idle" else "text")


def level_role(share: float, thresholds: Thresholds) -> str:
    """Return the role of a load (0 to 1) in a sparkline, where no load is a line."""
    return load_role(share, thresholds) if share > 0 else "track"
