"""The columns of the process table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gputop.model.grouping import Entry
from gputop.model.metrics import Metric
from gputop.model.process_metrics import COLUMNS, PROCESS, ProcessRow
from gputop.model.text import MISSING, duration, size
from gputop.tui.glyphs import Glyphs
from gputop.tui.themes import user_role
from gputop.tui.widgets.columns import Column, Fitted, fit, sized
from gputop.tui.widgets.lines import Piece

_RANKS = {
    "gpu": 1, "cuda": 2, "pid": 0, "user": 2, "type": 7, "gpu_memory": 1, "sm_utilization": 3,
    "cpu": 4, "rss": 6, "state": 8, "age": 5, "command": 1,
}  # fmt: skip
_LEAST_COMMAND = 16
_WIDE = 100
"""Cells from which there is room for the columns that say least."""
_WIDE_ONLY = {"type", "rss", "state"}
_LONGEST = 16


class ProcessColumns:
    """What stands in each cell of an entry; the commands from a place on, short or whole."""

    def __init__(self, chosen: tuple[str, ...], idle_after: float) -> None:
        self.chosen = chosen
        """Ids in the order of the columns; empty: those that are usual."""
        self._idle_after = idle_after
        self.shift = 0
        self.full_command = False

    def fitted(
        self, width: int, gap: int, longest: Mapping[str, int], sort_id: str, glyphs: Glyphs
    ) -> Fitted[Entry]:
        """The columns for a width, some as wide as the longest text in them; text in the signs of
        the terminal."""
        self._glyphs = glyphs
        columns = [
            self._column(
                metric_id, max(metric.width, min(_LONGEST, longest.get(metric_id, 0))), sort_id
            )
            for metric_id, metric in self._wanted(width)
        ]
        return fit(columns, max(1, width - 1), gap)

    def _wanted(self, width: int) -> Iterator[tuple[str, Metric[ProcessRow]]]:
        """Those that were chosen, however narrow it is; the command is always the last."""
        for metric_id in self.chosen or PROCESS:
            wide_only = not self.chosen and metric_id in _WIDE_ONLY
            if metric_id != "command" and (width >= _WIDE or not wide_only):
                yield metric_id, COLUMNS[metric_id]
        yield "command", COLUMNS["command"]

    def _rank(self, metric_id: str) -> int:
        """Of those that were chosen the last goes first where there is no room."""
        if not self.chosen:
            return _RANKS[metric_id]
        return 1 if metric_id == "command" else self.chosen.index(metric_id)

    def command(self, entry: Entry) -> str:
        """All of the command that can be scrolled to."""
        if self.full_command:
            return entry.row.process.command or ""
        return PROCESS["command"].text(entry.row)

    def across(self, entry: Entry, width: int, role: str) -> list[Piece]:
        """An entry that says more than columns hold, as a sentence."""
        process, gpu = entry.row.process, PROCESS["gpu"].text(entry.row)
        amount = "" if process.gpu_memory is None else f" {size(process.gpu_memory)}"
        who = f" PID {process.pid} {process.user or ''}".rstrip() if process.pid else ""
        text = f"{gpu:>3} {entry.note}{amount}{who}: {process.command or ''}"
        said = self._glyphs.text(text[self.shift :])
        return sized([(said, role)], width, self._glyphs.ellipsis, left=True)

    def _column(self, metric_id: str, width: int, sort_id: str) -> Column[Entry]:
        metric = COLUMNS[metric_id]
        draw: Callable[[Entry, int], Sequence[Piece]]
        label = metric.label
        if metric_id == "command":
            least, most, draw = _LEAST_COMMAND, _LEAST_COMMAND, self._command
            label += f" from {self.shift}" if self.shift else ""
        else:
            least = most = max(width, len(metric.label) + (metric_id == sort_id))
            draw = self._user if metric_id == "user" else self._plain(metric_id)
        return Column(metric_id, label, least, most, self._rank(metric_id), draw, metric.left)

    def _plain(self, metric_id: str) -> Callable[[Entry, int], Sequence[Piece]]:
        metric = COLUMNS[metric_id]

        def draw(entry: Entry, width: int) -> Sequence[Piece]:
            text = metric.text(entry.row)
            if text == MISSING or (metric_id == "pid" and not entry.row.process.pid):
                return [(self._glyphs.not_available, "quiet")]
            return [(text, "quiet" if metric_id == "cuda" and text.isalpha() else "text")]

        return draw

    def _user(self, entry: Entry, width: int) -> Sequence[Piece]:
        user = entry.row.process.user
        if user is None:
            return [(self._glyphs.not_available, "quiet")]
        return [(self._glyphs.text(user), user_role(user))]

    def _command(self, entry: Entry, width: int) -> Sequence[Piece]:
        row, glyphs = entry.row, self._glyphs
        pieces: list[Piece] = []
        if entry.depth:
            branch = glyphs.last_branch if entry.last else glyphs.branch
            pieces.append(("  " * (entry.depth - 1) + f"{branch} ", "track"))
        if entry.note:
            pieces.append((f"{entry.note} ", "notice"))
        if idle := self._idle(entry):
            pieces.append((f"{idle} ", "notice"))
        if row.misspelt is not None:
            pieces.append((f"{glyphs.warning} {glyphs.text(row.misspelt)} ", "notice"))
        if row.process.command is None:
            why = "not in this /proc: another PID namespace, or it just ended"
            if row.process.elsewhere:
                why = "host PID, not visible here"
            return [*pieces, (why, "quiet")]
        return [*pieces, (glyphs.text(self.command(entry)[self.shift :]), "text")]

    def _idle(self, entry: Entry) -> str:
        """Since when it holds memory and does nothing, where that is long."""
        process = entry.row.process
        idle = process.idle_for if entry.kind == "process" and process.gpu_memory else None
        return "" if idle is None or idle < self._idle_after else f"idle {duration(idle)}"


def longest(rows: Iterable[ProcessRow]) -> dict[str, int]:
    """The longest texts of the columns that are as wide as what is in them."""
    place, users, places = COLUMNS["gpu"].text, [0], [0]
    for row in rows:
        users.append(len(row.process.user or ""))
        if row.process.gpu_instance is not None:
            places.append(len(place(row)))
    return {"user": max(users), "gpu": max(places)}
