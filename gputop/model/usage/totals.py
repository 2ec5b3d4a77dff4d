"""The rows of a usage table, added up from what is counted of each host."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.machine.text import printable
from gputop.model.usage.count import UnknownReason, UsageCount, UsageRow
from gputop.model.usage.grouping import COLUMNS, MAX_CELL, OTHERS, VIEWS, UsageKey, columns_of
from gputop.model.usage.spans import Coverage, FrameTime

MAX_ROWS = 20_000
"""Further rows are added up in one."""


class UsageTotals:
    """Grows with the counts of each host."""

    def __init__(self, by: str, since: float, until: float) -> None:
        """`by`: words of --by, as `user,host`. KeyError for any other word."""
        self.by, self.columns = by, columns_of(by)
        self.since, self.until = since, until
        self.rows: dict[UsageKey, UsageRow] = {}
        self.total = UsageRow()
        """All rows together, but each GPU counts once."""
        self.unheld = self.unheld_energy = 0.0
        """As in UsageCount."""
        self.unknown: dict[UnknownReason, float] = {}
        self.coverages: dict[str, Coverage] = {}
        """How much is recorded, by host name."""
        self.losses: dict[str, None] = {}
        self._view = tuple(name for name in COLUMNS if name in self.columns)

    def add(self, host: str, counts: Iterable[UsageCount]) -> None:
        """Add the counts of one more host, which come in the order of time."""
        coverage = self.coverages[host] = Coverage()
        last: FrameTime | None = None
        for count in counts:
            coverage.merge(count.coverage)
            if last is None and count.first is not None:
                early = count.first.time - self.since
                if early > count.first.longest:
                    coverage.add_gap(early)
            last = count.last or last
            for cells, row in count.rows(self._view).items():
                self._row(host, cells).merge(row)
            for row in count.rows(VIEWS[0]).values():
                self.total.merge(row)
            self.unheld += count.unheld
            self.unheld_energy += count.unheld_energy
            for reason, seconds in count.unknown.items():
                self.unknown[reason] = self.unknown.get(reason, 0.0) + seconds
            self.losses |= dict.fromkeys(map(printable, count.losses))
        if last is None:
            coverage.add_gap(self.until - self.since)
        elif self.until - last.time > last.longest:
            coverage.add_gap(self.until - last.time)

    def _row(self, host: str, cells: UsageKey) -> UsageRow:
        named = dict(zip(self._view, cells, strict=True), host=host)
        key: UsageKey = tuple([_harmless(named[name]) for name in self.columns])
        if len(self.rows) >= MAX_ROWS and key not in self.rows:
            key = (OTHERS,) * len(self.columns)
        return self.rows.setdefault(key, UsageRow())


def _harmless(cell: str | None) -> str | None:
    return cell and printable(cell, MAX_CELL)
