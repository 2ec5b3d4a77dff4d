"""The rows of the GPU pane, GPUs with their MIG devices, and what their cells say."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from math import inf
from typing import NamedTuple

from gputop.model.health.activity import BY_UTILIZATION
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.text import GIB, MISSING, percent, three_digits
from gputop.settings import Thresholds
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.lines import Piece, width_of

_TO_MEND = ("waiting for input", "tensor unused")
_LEAST_BAR = 4
"""Cells under which a bar says less than its number."""


class GpuLine(NamedTuple):
    """A GPU, or one of its MIG devices."""

    gpu: Gpu
    device: MigDevice | None = None
    last: bool = True
    """Of the devices of its GPU."""

    @property
    def subject(self) -> Gpu | MigDevice:
        """What the row is about."""
        return self.device or self.gpu

    @property
    def key(self) -> Hashable:
        """The identity of the row."""
        if self.device is None:
            return self.gpu.key
        return self.device.uuid or (self.gpu.key, self.device.instance_ids)


def lines_of(frame: Frame) -> list[GpuLine]:
    """Return the GPUs in their order, each with its MIG devices after it."""
    lines: list[GpuLine] = []
    for gpu in frame.gpus:
        parts = gpu.mig or ()
        lines.append(GpuLine(gpu))
        lines += [GpuLine(gpu, device, device is parts[-1]) for device in parts]
    return lines


def value(text: str, glyphs: GlyphSet, role: str = "text") -> Piece:
    """Return a value; what is unknown is quiet and has a sign of its own."""
    return (glyphs.not_available, "quiet") if text == MISSING else (text, role)


def load_role(share: float, thresholds: Thresholds) -> str:
    """Return the role of a load, in steps; of none it is quiet."""
    if share >= thresholds.heavy:
        return "heavy"
    if share >= thresholds.moderate:
        return "moderate"
    return "light" if share > 0 else "quiet"


def ratio(share: float | None, glyphs: GlyphSet, role: str = "text") -> Piece:
    return value(MISSING if share is None else f"{percent(share)}%", glyphs, role)


def bar(share: float | None, width: int, role: str, glyphs: GlyphSet) -> Sequence[Piece]:
    """Return a bar; blank where the share is not known."""
    if share is None:
        return [(" " * width, "text")]
    filled = glyphs.fill(share, width)
    return [(filled, role), (glyphs.bar_empty * (width - len(filled)), "track")]


def metered(
    share: float | None, role: str, number: Sequence[Piece], width: int, digits: int,
    glyphs: GlyphSet,
) -> Sequence[Piece]:  # fmt: skip
    """Return a number in `digits` cells at the end of `width`, and before it a bar of a share, as
    long as there is room for."""
    room = width - digits - 1
    padding = (" " * (digits - width_of(number)), "text")
    if room < _LEAST_BAR:
        return [(" " * (width - digits), "text"), padding, *number]
    return [*bar(share, room, role, glyphs), (" ", "text"), padding, *number]


def load(subject: Gpu | MigDevice) -> float | None:
    """Return the share of the last sample, of a MIG device of its graphics engine, with work."""
    if isinstance(subject, Gpu):
        return subject.utilization
    return subject.activity.graphics if subject.activity else None


def used_share(device: Gpu | MigDevice) -> float | None:
    """Return the share of the memory that is in use."""
    if device.memory_used is None or not device.memory_total:
        return None
    return min(1.0, device.memory_used / device.memory_total)


def memory(device: Gpu | MigDevice, role: str, glyphs: GlyphSet) -> Sequence[Piece]:
    if device.memory_used is None or device.memory_total is None:
        return [value(MISSING, glyphs)]
    total = three_digits(device.memory_total / GIB)
    return [(f"{device.memory_used / GIB:.1f}", role), (f"/{total}G", "quiet")]


def doing(device: Gpu | MigDevice, glyphs: GlyphSet) -> Piece:
    """Return what it has been doing in the last half minute."""
    verdict = device.activity.verdict if device.activity else None
    if verdict is None:
        coming = device.activity or (isinstance(device, Gpu) and device.utilization is not None)
        return (glyphs.pending if coming else glyphs.not_available, "quiet")
    word = verdict.removesuffix(BY_UTILIZATION)
    return (word, "notice" if verdict in _TO_MEND else "quiet" if word == "idle" else "text")


def levels(
    values: Sequence[float], top: float, thresholds: Thresholds, glyphs: GlyphSet
) -> Iterable[Piece]:
    """Return values from 0 to `top` as heights, in the colours of loads; minus infinity is a gap,
    and 0 a line."""
    signs, most = glyphs.levels, len(glyphs.levels) - 1
    cells = []
    for number in values:
        if number == -inf:
            cells.append((glyphs.no_sample, "text"))
        else:
            share = number / top
            role = "track" if number <= 0 else load_role(share, thresholds)
            cells.append((signs[round(min(max(share, 0.0), 1.0) * most)], role))
    for role, run in groupby(cells, lambda cell: cell[1]):
        yield "".join(sign for sign, _ in run), role
