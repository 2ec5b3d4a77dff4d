"""The columns of the GPU pane."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from rich.cells import cell_len

from gputop.model.health.activity import BY_UTILIZATION
from gputop.model.health.free import is_free
from gputop.model.health.throttle import word as throttle_word
from gputop.model.machine import summary
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, GpuPart, PartKey, parts_of
from gputop.model.machine.limits import is_unified
from gputop.model.machine.text import GIB, MISSING, short_name, three_digits
from gputop.model.metrics.gpu import GPU
from gputop.settings import Session
from gputop.tui.panes.columns import Column, Fitted, fit, row
from gputop.tui.panes.gpu_cells import (
    load_piece,
    load_role,
    metered,
    percent_piece,
    used_share,
    value,
)
from gputop.tui.panes.gpu_who import Occupants, silence
from gputop.tui.panes.lines import Lines, Piece
from gputop.tui.panes.short_history import ShortHistory

_Draw = Callable[[GpuPart, int], Sequence[Piece]]

_MAX_NAME = 24
_MAX_PROFILE = 12
_NARROW, _WIDE, _WIDER, _WIDEST = 60, 150, 180, 220
"""Widths in cells: below the first there are no bars, from each of the others on more numbers."""
_MEMORY, _LOAD = 10, 4
"""The widths of the numbers beside the bars, in cells: `140.6/141G`, `100%`."""
_DOING = "waiting for input"
_PLAIN_ROLES = frozenset({"text", "light", "moderate", "heavy"})


class GpuColumns:
    """The cells of the GPUs of one frame, and of their MIG devices: `fit` before `row`."""

    def __init__(
        self, frame: Frame, history: ShortHistory, settings: Session,
        was_full: Collection[PartKey] = (),
    ) -> None:  # fmt: skip
        """`history` is what the last column shows; `was_full`: `full` of the frame before."""
        self._frame, self._history = frame, history
        self._thresholds = settings.thresholds
        shares = {line.key: used_share(line.subject) for line in parts_of(frame.gpus)}
        self.full = {
            key for key, share in shares.items()
            if share is not None and summary.is_full(share, key in was_full, self._thresholds.full)
        }  # fmt: skip
        """The keys of the GPUs and MIG devices whose memory is full."""
        self._occupants = Occupants(frame, settings.processes.idle_after)
        self._columns: Fitted[GpuPart] = []
        self._width = self._gap = 0

    def fit(self, width: int, gap: int) -> Fitted[GpuPart]:
        """Choose the columns that fit a width in cells, with a gap between them; return them."""
        self._width, self._gap = width, gap
        gpus = self._frame.gpus
        columns = [*self._identity(gpus), *self._numbers(gpus), *self._activity(gpus)]
        rank, draw = 2 if self._history.is_chosen else 8, self._gpu_only(self._history.draw)
        columns.append(Column("history", "", 12, 12, rank, draw, left=True))
        self._columns = fit(columns, max(1, width - 1), gap)
        column, cells = self._columns[-1]
        if column.id == "history":
            self._columns[-1] = replace(column, label=self._history.fit(cells)), cells
        return self._columns

    def row(self, line: GpuPart) -> Sequence[Piece]:
        """Return the pieces of a row, without load colours if the GPU is free or its values old."""
        if line.device is None and silence(line.gpu):
            pieces = self._silent(line)
        else:
            pieces = row(self._columns, line, self._gap, Lines.glyphs.ellipsis)
        if line.gpu.state != "answers" or is_free(self._frame, line.gpu, line.device):
            pieces = [(text, "quiet" if role in _PLAIN_ROLES else role) for text, role in pieces]
        return pieces

    def _silent(self, line: GpuPart) -> list[Piece]:
        """Return the row of a GPU without current values: who is on it, its memory if known, and a
        sentence instead of numbers."""
        kept = ["index", "name", "who", "history"]
        if used_share(line.gpu) is not None:
            kept.append("memory")
        fitted = [(column, cells) for column, cells in self._columns if column.id in kept]
        if widths := [cells for column, cells in self._columns if column.id not in kept]:
            room = sum(widths) + self._gap * (len(widths) - 1)
            draw = self._gpu_only(self._occupants.sentence)
            sentence = Column("", "", room, room, 0, draw, left=True)
            fitted.insert(len(fitted) - (fitted[-1][0].id == "history"), (sentence, room))
        return row(fitted, line, self._gap, Lines.glyphs.ellipsis)

    # Which columns there are.

    def _identity(self, gpus: Sequence[Gpu]) -> Iterable[Column[GpuPart]]:
        divided = any(gpu.mig for gpu in gpus)
        index = max([3, *(len(part.number) for part in parts_of(gpus))])
        longest = max((cell_len(short_name(gpu.name)) for gpu in gpus), default=4)
        name = min(_MAX_NAME, max(_MAX_PROFILE if divided else 4, longest))
        frame = self._frame
        shared = any(
            summary.pending_reservation(frame, gpu) is not None
            or summary.pending_job(frame, gpu) is not None
            or len(summary.users(frame, gpu)) + (summary.count_without_user(frame, gpu) > 0) > 1
            for gpu in gpus
        )
        who = 24 if shared and self._width >= _WIDER else 16
        yield Column("index", "GPU", index, index, 0, self._index)
        yield Column("name", "NAME", min(name, 14), name, 6, self._name, left=True)
        yield Column("who", "WHO", 12, who, 1, self._occupants.who, left=True)

    def _numbers(self, gpus: Sequence[Gpu]) -> Iterable[Column[GpuPart]]:
        bars = self._width >= _NARROW
        memory, load_ = (_MEMORY + 7, _LOAD + 6) if bars else (_MEMORY, _LOAD)
        longest_memory, longest_load = (_MEMORY + 16, _LOAD + 12) if bars else (_MEMORY, _LOAD)
        limit = max((gpu.power_limit or 0.0 for gpu in gpus), default=0.0)
        last, first = (4, 3) if bars else (1, 1)
        yield Column("memory", "MEM", memory, longest_memory, last, self._memory, left=bars)
        yield Column("utilization", "UTIL", load_, longest_load, first, self._load, left=bars)
        yield self._plain("temperature", 5, 2, self._temperature)
        yield self._plain("power", 5, 3, self._power, most=2 + 2 * len(f"{limit:.0f}"))
        if any(gpu.fan is not None for gpu in gpus):
            yield self._plain("fan", 4, 9, lambda gpu, _: [percent_piece(gpu.fan)])
        if self._width >= _WIDER:
            yield self._plain("sm_clock", 5, 9)
        if self._width >= _WIDE and len({gpu.pstate for gpu in gpus}) > 1:
            yield self._plain("pstate", 4, 10)
        if self._width >= _WIDEST:
            for id_ in ("thermal.margin", "thermal.memory"):
                if any(GPU[id_].read(gpu) is not None for gpu in gpus):
                    yield self._plain(id_, 8, 12)

    def _activity(self, gpus: Sequence[Gpu]) -> Iterable[Column[GpuPart]]:
        """Return the columns of activity: what the GPU does, what holds its clocks back, and how
        much of the chip is active if GPM reports it."""
        activities = [gpu.activity for gpu in gpus]
        activities += [device.activity for gpu in gpus for device in gpu.mig or ()]
        words = [activity.doing for activity in activities if activity and activity.doing]
        by_utilization = words and all(text.endswith(BY_UTILIZATION) for text in words)
        label = GPU["activity.doing"].label + (BY_UTILIZATION if by_utilization else "")
        yield Column("doing", label, len(_DOING), len(_DOING), 7, self._doing, left=True)
        if self._width < _WIDER:
            return
        if any(gpu.throttle and gpu.throttle.reasons for gpu in gpus):
            draw = self._gpu_only(self._throttled)
            yield Column("throttle", GPU["throttle.reasons"].label, 14, 14, 10, draw, left=True)
        if any(activity is not None and activity.sm is not None for activity in activities):
            for name in ("sm", "tensor", "dram"):
                label = GPU[f"activity.{name}"].label
                yield Column(name, label, 6, 6, 11, partial(self._active, name))

    def _plain(
        self, id_: str, width: int, rank: int,
        draw: Callable[[Gpu, int], Sequence[Piece]] | None = None, most: int = 0,
    ) -> Column[GpuPart]:  # fmt: skip
        metric = GPU[id_]
        draw = draw or (lambda gpu, _: [value(metric.text(gpu))])
        return Column(id_, metric.label, width, max(width, most), rank, self._gpu_only(draw))

    # What their cells say.

    def _gpu_only(self, draw: Callable[[Gpu, int], Sequence[Piece]]) -> _Draw:
        """Leave the cell of a MIG device blank: power and the like belong to the whole GPU."""
        return lambda line, width: () if line.device else draw(line.gpu, width)

    def _active(self, name: str, line: GpuPart, width: int) -> Sequence[Piece]:
        return [percent_piece(getattr(line.subject.activity, name, None))]

    def _index(self, line: GpuPart, width: int) -> Sequence[Piece]:
        role = "text" if line.device is None else "quiet"
        return [(line.number, "good" if is_free(self._frame, line.gpu, line.device) else role)]

    def _name(self, line: GpuPart, width: int) -> Sequence[Piece]:
        if line.device is None:
            return [value(Lines.glyphs.text(short_name(line.gpu.name)))]
        is_last = line.device is (line.gpu.mig or (None,))[-1]
        branch = Lines.glyphs.last_branch if is_last else Lines.glyphs.branch
        return [(branch, "track"), (Lines.glyphs.text(line.device.profile or "MIG"), "text")]

    def _memory(self, line: GpuPart, width: int) -> Sequence[Piece]:
        share, part = used_share(line.subject), line.subject
        role = "text" if share is None else load_role(share, self._thresholds)
        number = [value(MISSING)]
        if part.memory_used is not None and part.memory_total is not None:
            total = three_digits(part.memory_total / GIB)
            number = [(f"{part.memory_used / GIB:.1f}", role), (f"/{total}G", "quiet")]
        if line.device is None and is_unified(line.gpu) and line.gpu.memory_total is None:
            number = [("unified", "quiet")]
        if line.key in self.full:
            number = [(number[0][0], "notice"), *number[1:]]
        return metered(share, role, number, width, _MEMORY)

    def _load(self, line: GpuPart, width: int) -> Sequence[Piece]:
        number = load_piece(line.subject.utilization, self._thresholds)
        return metered(line.subject.utilization, number[1], [number], width, _LOAD)

    def _doing(self, line: GpuPart, width: int) -> Sequence[Piece]:
        """Return what the GPU or MIG device has been doing in the last half minute."""
        activity = line.subject.activity
        if activity is None or activity.doing is None:
            is_coming = activity or (line.device is None and line.gpu.utilization is not None)
            return [(Lines.glyphs.pending if is_coming else Lines.glyphs.not_available, "quiet")]
        word = activity.doing.removesuffix(BY_UTILIZATION)
        # Without GPM a display's few percent look like work.
        if word == "idle" or is_free(self._frame, line.gpu, line.device):
            return [("idle", "quiet")]
        return [(word, "notice" if word == "tensor unused" else "text")]

    def _throttled(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        reasons = gpu.throttle.reasons if gpu.throttle else ()
        if not reasons:
            return ()
        others = f" +{len(reasons) - 1}" if len(reasons) > 1 else ""
        role = "alarm" if reasons[0].startswith("hw_") else "text"
        return [(throttle_word(reasons[0]), role), (others, "quiet")]

    def _temperature(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if gpu.temperature is None:
            return [value(MISSING)]
        role = "alarm" if gpu.temperature >= self._thresholds.hot else "text"
        return [(f"{gpu.temperature:.0f}", role), (f"{Lines.glyphs.degree}C".strip(), "quiet")]

    def _power(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if gpu.power is None:
            return [value(MISSING)]
        watts = f"{gpu.power:.0f}"
        limit = "W" if gpu.power_limit is None else f"/{gpu.power_limit:.0f}W"
        has_room = width >= 2 * len(limit) - 2  # for any power up to the limit
        return [(watts, "text"), (limit if has_room else "W", "quiet")]
