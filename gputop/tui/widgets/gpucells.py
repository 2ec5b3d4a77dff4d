"""The lines of the GPU pane: GPUs with their MIG devices, and the cells that both have."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from gputop.model import summary
from gputop.model.activity import BY_UTILIZATION
from gputop.model.frame import Frame
from gputop.model.gpu import Gpu, MigDevice
from gputop.model.text import GIB, MISSING, percent, three_digits
from gputop.tui.glyphs import Glyphs
from gputop.tui.themes import user_role
from gputop.tui.widgets.columns import Column, Fitted
from gputop.tui.widgets.lines import Piece

_TO_MEND = ("waiting for input", "tensor unused")
_Draw = Callable[["Line", MigDevice, int], Sequence[Piece]]


class Line(NamedTuple):
    """A GPU, or one of its MIG devices."""

    gpu: Gpu
    device: MigDevice | None = None
    last: bool = True
    """Of the devices of its GPU."""

    @property
    def key(self) -> Hashable:
        """Identity."""
        if self.device is None:
            return self.gpu.key
        return self.device.uuid or (self.gpu.key, self.device.place)


def lines_of(frame: Frame) -> list[Line]:
    """GPUs in their order, each with its MIG devices after it."""
    found: list[Line] = []
    for gpu in frame.gpus:
        parts = gpu.mig or ()
        found.append(Line(gpu))
        found += [Line(gpu, device, device is parts[-1]) for device in parts]
    return found


def value(text: str, glyphs: Glyphs, role: str = "text") -> Piece:
    """A value; what is unknown is quiet and has a sign of its own."""
    return (glyphs.not_available, "quiet") if text == MISSING else (text, role)


def ratio(share: float | None, glyphs: Glyphs) -> Sequence[Piece]:
    """In percent."""
    return [value(MISSING if share is None else f"{percent(share)}%", glyphs)]


def bar(share: float | None, width: int, role: str, glyphs: Glyphs) -> Sequence[Piece]:
    """A bar."""
    if share is None:
        return [(glyphs.not_available, "quiet")]
    filled = glyphs.fill(share, width)
    return [(filled, role), (glyphs.bar_empty * (width - len(filled)), "track")]


def used_share(one: Gpu | MigDevice) -> float | None:
    """How full its memory is."""
    if one.memory_used is None or not one.memory_total:
        return None
    return min(1.0, one.memory_used / one.memory_total)


def memory(one: Gpu | MigDevice, glyphs: Glyphs, full: float) -> Sequence[Piece]:
    """What is in use, and of how much; from a share of `full` on it stands out."""
    if one.memory_used is None or one.memory_total is None:
        return [value(MISSING, glyphs)]
    total = one.memory_total / GIB
    role = "notice" if one.memory_used / GIB >= total * full else "text"
    return [(f"{one.memory_used / GIB:.1f}", role), (f"/{three_digits(total)}G", "quiet")]


def doing(one: Gpu | MigDevice, glyphs: Glyphs) -> Sequence[Piece]:
    """What the last half minute looks like."""
    said = one.activity.verdict if one.activity else None
    if said is None:
        coming = one.activity or (isinstance(one, Gpu) and one.utilization is not None)
        return [(glyphs.pending if coming else glyphs.not_available, "quiet")]
    word, by, _ = said.partition(BY_UTILIZATION)
    return [(word, "notice" if word in _TO_MEND else "text"), (by, "quiet")]


def names(frame: Frame, gpu: Gpu, glyphs: Glyphs) -> list[Piece]:
    """Who computes on a GPU."""
    pieces: list[Piece] = []
    for user in summary.users(frame, gpu):
        pieces.append((" " if pieces else "", "text"))
        pieces.append((glyphs.text(user), user_role(user)))
    unseen = summary.strangers(frame, gpu)
    if unseen:
        pieces.append((f"{' ' if pieces else ''}{unseen} not in /proc", "notice"))
    return pieces


class PartCells:
    """What the columns of a GPU say of its MIG devices in one frame: power and the like are the
    whole GPU's and stay blank."""

    def __init__(self, frame: Frame, glyphs: Glyphs, full: float) -> None:
        self._frame, self._glyphs, self._full = frame, glyphs, full
        self._processes = summary.by_instance(frame)

    def columns(self, fitted: Fitted[Gpu]) -> Fitted[Line]:
        """The same columns for MIG devices."""
        draws = self._draws()
        return [
            (Column(one.id, one.label, one.least, one.most, one.rank,
                    partial(_drawn, draws.get(one.id)), one.left), width)
            for one, width in fitted
        ]  # fmt: skip

    def _draws(self) -> dict[str, _Draw]:
        glyphs = self._glyphs
        return {
            "index": lambda _, one, __: [(f"{one.gi}/{one.ci}", "quiet")],
            "name": self._profile,
            "bar": lambda _, one, width: bar(used_share(one), width, "memory", glyphs),
            "memory": lambda _, one, __: memory(one, glyphs, self._full),
            "share": lambda _, one, __: ratio(used_share(one), glyphs),
            "load": lambda _, one, width: bar(_active(one, "graphics"), width, "load", glyphs),
            "utilization": lambda _, one, __: ratio(_active(one, "graphics"), glyphs),
            "doing": lambda _, one, __: doing(one, glyphs),
            "sm": lambda _, one, __: ratio(_active(one, "sm"), glyphs),
            "tensor": lambda _, one, __: ratio(_active(one, "tensor"), glyphs),
            "dram": lambda _, one, __: ratio(_active(one, "dram"), glyphs),
            "who": self._who,
        }

    def _profile(self, line: Line, one: MigDevice, width: int) -> Sequence[Piece]:
        branch = self._glyphs.last_branch if line.last else self._glyphs.branch
        return [(branch, "track"), (self._glyphs.text(one.profile or "MIG"), "text")]

    def _who(self, line: Line, one: MigDevice, width: int) -> Sequence[Piece]:
        here = self._processes.get((line.gpu.uuid, *one.place), [])
        found = names(replace(self._frame, processes=tuple(here)), line.gpu, self._glyphs)
        if found:
            return found
        unsure = line.gpu.processes_known is False or line.gpu.stale_for is not None
        if unsure or one.memory_used is None:
            return [(self._glyphs.not_available, "quiet")]
        free = summary.has_room(one.memory_used)
        return [("free", "good") if free else ("no process", "quiet")]


def _drawn(draw: _Draw | None, line: Line, width: int) -> Sequence[Piece]:
    return draw(line, line.device, width) if draw and line.device else ()


def _active(one: MigDevice, name: str) -> float | None:
    found: float | None = getattr(one.activity, name, None)
    return found
