"""The GPU rows: one line a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.model import summary
from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.gpu_metrics import GPU
from gputop.model.graph import ceiling
from gputop.model.history import History
from gputop.model.text import GIB, MISSING, duration, percent, short_name, three_digits
from gputop.tui.glyphs import spark
from gputop.tui.themes import user_role
from gputop.tui.widgets.columns import Column, fit, heading, row, sized
from gputop.tui.widgets.lines import Piece
from gputop.tui.widgets.table import Table

Draw = Callable[[Gpu, int], Sequence[Piece]]

_HISTORY_LABELS = {
    "utilization": "UTIL",
    "memory_used": "MEMORY",
    "power": "POWER",
    "temperature": "TEMP",
    "sm_clock": "CLOCK",
    "activity.sm": "SM-ACTIVITY",
    "activity.tensor": "TENSOR",
    "activity.dram": "DRAM",
    "pcie.rx": "PCIE-RX",
    "nvlink.rx": "NVLINK-RX",
}
HISTORIES = tuple(_HISTORY_LABELS)
"""What the short history can show."""
_HOT = 85.0
_NEARLY_FULL = 0.95
_MAX_NAME = 24


class GpuPane(Table[Gpu]):
    """All GPUs; `head_lines` is 0 where lines are scarce."""

    HELP = "One line a GPU. Columns appear as the terminal has room for them."

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "This GPU", id="gpus.choose", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """Its page is wanted."""

        key: str

    def __init__(self, idle_after: float, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._idle_after = idle_after
        self._frame: Frame | None = None
        self._history = History()
        self.history_id = HISTORIES[0]
        """The metric that the short history shows."""
        self._columns: list[tuple[Column[Gpu], int]] = []

    def show_frame(self, frame: Frame, history: History) -> None:
        """Another frame."""
        self._frame, self._history = frame, history
        self._fit()
        self.show(frame.gpus, [gpu.key for gpu in frame.gpus])

    def on_resize(self) -> None:
        """Another width: other columns."""
        self._fit()
        super().on_resize()

    def action_choose(self) -> None:
        """The GPU under the cursor; of none, the first in sight is selected."""
        if self.current is None:
            self.action_move(0)
        else:
            self.post_message(self.Chosen(self.current.key))

    def next_history(self) -> None:
        """Another metric in the short history: the next of those that some GPU has."""
        gpus = self._frame.gpus if self._frame else ()
        known = [id_ for id_ in HISTORIES
                 if any(self._history.knows(gpu.key, id_) for gpu in gpus)]  # fmt: skip
        if known:
            at = known.index(self.history_id) if self.history_id in known else -1
            self.history_id = known[(at + 1) % len(known)]
        self._fit()
        self.sync()

    @property
    def unsaid(self) -> str:
        """Which GPUs are in sight, where not all of them are; what the short history shows, where
        there are no labels."""
        first, last, total = self.span
        said = []
        if last - first + 1 < total:
            said = [f"GPU {self._rows[first - 1].index}-{self._rows[last - 1].index} of {total}"]
        if not self.head_lines and self.history_id != HISTORIES[0]:
            said.append(f"history: {_HISTORY_LABELS[self.history_id]}")
        return ", ".join(said)

    def head(self, y: int) -> Iterable[Piece]:
        """The labels."""
        return [(" ", "quiet"), *heading(self._columns, self._gap)]

    def row_pieces(self, row_: Gpu, selected: bool) -> Iterable[Piece]:
        """One GPU: its values, or what it says instead of them."""
        role = "cursor" if selected else None
        if row_.error is not None or row_.name is None:
            return self._silent(row_, role)
        if row_.stale_for is not None and role is None:
            return [
                (text, own if own in ("alarm", "track") else "quiet")
                for text, own in self._cells(row_, None)
            ]
        return self._cells(row_, role)

    @property
    def _gap(self) -> int:
        return 2 if self.size.width >= 110 else 1

    def _cells(self, gpu: Gpu, role: str | None) -> list[Piece]:
        pieces = row(self._columns, gpu, self._gap, self.glyphs.ellipsis, role)
        return [(" ", role or "text"), *pieces]

    def _silent(self, gpu: Gpu, role: str | None) -> list[Piece]:
        """A GPU without values: why, across the line."""
        name = self.glyphs.text(short_name(gpu.name))
        reason = gpu.error or "has not answered yet"
        if gpu.stale_for is not None:
            reason = f"{self.glyphs.stale} no answer for {duration(gpu.stale_for)}"
        pieces = [(f" {gpu.index:>3} {name}  ", role or "text"), (reason, role or "alarm")]
        return sized(pieces, self.size.width, self.glyphs.ellipsis, left=True)

    def _fit(self) -> None:
        gpus = self._frame.gpus if self._frame else ()
        self._columns = fit(self._all_columns(gpus), max(1, self.size.width - 1), self._gap)

    def _all_columns(self, gpus: Sequence[Gpu]) -> list[Column[Gpu]]:
        name = max((cell_len(short_name(gpu.name)) for gpu in gpus), default=4)
        name = min(_MAX_NAME, max(4, name))
        columns = [
            Column("index", "GPU", 3, 3, 0, self._plain("index")),
            Column("name", "NAME", min(name, 14), name, 4, self._product, left=True),
            Column("bar", "MEM", 8, 24, 5, self._memory_bar, left=True),
            Column("memory", "GiB", 11, 11, 3, self._memory),
            Column("share", "%", 4, 4, 10, self._memory_share),
            Column("load", "UTIL", 8, 16, 11, self._load_bar, left=True),
            Column("utilization", "%", 4, 4, 1, self._load),
            Column("history", _HISTORY_LABELS[self.history_id], 4, 12, 6, self._spark),
            Column("temperature", "TEMP", 4, 4, 2, self._temperature),
            Column("power", "POWER", 5, 8, 4, self._power),
            Column("clock", "CLOCK", 5, 5, 8, self._plain("sm_clock")),
            Column("pstate", "PERF", 4, 4, 7, self._plain("pstate")),
            Column("who", "WHO", 10, 20, 3, self._who, left=True),
        ]
        if any(gpu.fan is not None for gpu in gpus):
            columns.insert(-1, Column("fan", "FAN%", 4, 4, 7, self._plain("fan")))
        return columns

    def _plain(self, id_: str) -> Draw:
        metric = GPU[id_]

        def draw(gpu: Gpu, width: int) -> Sequence[Piece]:
            return [self._value(metric.text(gpu))]

        return draw

    def _value(self, text: str, role: str = "text") -> Piece:
        """A value; what is unknown is quiet and has a sign of its own."""
        return (self.glyphs.not_available, "quiet") if text == MISSING else (text, role)

    def _product(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return [(self.glyphs.text(short_name(gpu.name)), "text")]

    def _memory_bar(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return self._bar(_used_share(gpu), width, "memory")

    def _load_bar(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return self._bar(gpu.utilization, width, "load")

    def _bar(self, ratio: float | None, width: int, role: str) -> Sequence[Piece]:
        if ratio is None:
            return [(self.glyphs.not_available, "quiet")]
        filled = self.glyphs.fill(ratio, width)
        return [(filled, role), (self.glyphs.bar_empty * (width - len(filled)), "track")]

    def _memory(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if gpu.memory_used is None or gpu.memory_total is None:
            return [self._value(MISSING)]
        total = gpu.memory_total / GIB
        role = "notice" if gpu.memory_used / GIB >= total * _NEARLY_FULL else "text"
        return [(f"{gpu.memory_used / GIB:.1f}", role), (f"/{three_digits(total)}G", "quiet")]

    def _memory_share(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        share = _used_share(gpu)
        return [self._value(MISSING if share is None else f"{percent(share)}%")]

    def _load(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if gpu.utilization is None:
            return [self._value(MISSING)]
        return [(f"{percent(gpu.utilization)}%", "text")]

    def _spark(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        id_ = self.history_id
        past = self._history.recent(gpu, id_, width)
        top = ceiling([gpu], id_, max((value for value in past if value is not None), default=0.0))
        ratios = [value if value is None else value / (top or 1.0) for value in past]
        return [(spark(ratios, width, self.glyphs), "memory" if id_ == "memory_used" else "load")]

    def _temperature(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if gpu.temperature is None:
            return [self._value(MISSING)]
        role = "alarm" if gpu.temperature >= _HOT else "text"
        return [(f"{gpu.temperature:.0f}", role), (f"{self.glyphs.degree}C".strip(), "quiet")]

    def _power(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if gpu.power is None:
            return [self._value(MISSING)]
        if width < 8 or gpu.power_limit is None:
            return [(f"{gpu.power:.0f}", "text"), ("W", "quiet")]
        return [(f"{gpu.power:.0f}", "text"), (f"/{gpu.power_limit:.0f}W", "quiet")]

    def _who(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        pieces: list[Piece] = []
        if gpu.stale_for is not None:
            pieces.append((f"{self.glyphs.stale} stale {duration(gpu.stale_for)} ", "alarm"))
        pieces += self._holders(gpu)
        idle = gpu.idle_for is not None and gpu.idle_for >= self._idle_after
        if idle and gpu.stale_for is None and self._frame and not summary.is_free(self._frame, gpu):
            pieces.append((f" idle {duration(gpu.idle_for)}", "notice"))
        return pieces

    def _holders(self, gpu: Gpu) -> list[Piece]:
        frame = self._frame
        if frame is None:
            return []
        pieces: list[Piece] = []
        for user in summary.users(frame, gpu):
            pieces.append((" " if pieces else "", "text"))
            pieces.append((self.glyphs.text(user), user_role(user)))
        unseen = summary.strangers(frame, gpu)
        if unseen:
            pieces.append((f"{' ' if pieces else ''}{unseen} not in /proc", "notice"))
        if pieces:
            return pieces
        if gpu.processes_known is False:
            return [("processes not listed", "notice")]
        if summary.is_free(frame, gpu):
            return [("free", "good")]
        if gpu.mig_mode and gpu.mig is not None:
            return [(f"{len(gpu.mig)} MIG", "quiet")]
        if gpu.memory_used is None or gpu.stale_for is not None:
            return [(self.glyphs.not_available, "quiet")]
        return [(summary.only_display(frame, gpu) or "no process", "quiet")]


def _used_share(gpu: Gpu) -> float | None:
    if gpu.memory_used is None or not gpu.memory_total:
        return None
    return min(1.0, gpu.memory_used / gpu.memory_total)
