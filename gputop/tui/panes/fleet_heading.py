"""The fleet in a line, and what is free in another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.model.fleet.fleet import FleetTotals
from gputop.tui.panes.heading import HeadingLine
from gputop.tui.panes.lines import Lines, Piece, spread, width_of


class FleetHeading(HeadingLine):
    """How many hosts, GPUs and users there are, and what needs attention."""

    def __init__(self, note: str = "", *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.note = note
        self._totals: FleetTotals | None = None
        self._order, self._interval, self._demo = "", 1.0, False

    def show_totals(self, totals: FleetTotals, order: str, interval: float, demo: bool) -> None:
        """Show other sums. `order` says how hosts are sorted."""
        self._totals, self._order, self._interval, self._demo = totals, order, interval, demo
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        """Return what fits: facts go from the right as the line gets short."""
        pieces = self.start()
        if self._demo:
            pieces.append(("DEMO  ", "notice"))
        right: list[Piece] = [(f"  {self._interval:g}s ", "quiet")]
        if self._totals is None:
            return spread(pieces, right, self.size.width)
        return self.filled(pieces, self._facts(self._totals), f"  {self._order}", right)

    def _facts(self, totals: FleetTotals) -> Iterable[list[Piece]]:
        """Return what is known, in the order of its weight."""
        between: Piece = (f" {self.glyphs.separator} ", "quiet")
        hosts, seen = totals.hosts, totals.seen
        yield [(f"{_count(hosts, 'host')}" + (f", {seen} seen" if seen < hosts else ""), "text")]
        if totals.alarms:
            yield [between, (f"{_count(totals.alarms, 'alarm')}", "alarm")]
        if not seen:
            return
        gpus, role = _count(totals.gpus, "GPU"), "good" if totals.free else "text"
        if totals.free is None:
            yield [between, (gpus, "text")]
        else:
            yield [between, (f"{gpus}, ", "text"), (f"{totals.free} free", role)]
        users = "users unknown" if totals.users is None else _count(totals.users, "user")
        yield [between, (users, "text")]


class FreeLine(Lines):
    """The free GPUs as `host:index`, as many as there is room for."""

    _free: Sequence[tuple[str, str]] = ()
    _is_known = False

    def show_free(self, free: Sequence[tuple[str, str]], is_known: bool) -> None:
        """Show the hosts with free GPUs, each with their indices; where there are none, whether
        that is known."""
        self._free, self._is_known = free, is_known
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        pieces: list[Piece] = [(" free  ", "quiet")]
        if not self._free:
            return [*pieces, ("none" if self._is_known else "unknown", "text")]
        room = self.size.width - width_of(pieces)
        for number, (host, indices) in enumerate(self._free):
            left = len(self._free) - number - 1
            more = f"+{_count(left, 'host')}" if left else ""
            piece = f"{self.glyphs.text(host)}:{indices}  "
            if width_of([(piece, "")]) + len(more) > room:
                return [*pieces, (f"+{_count(left + 1, 'host')}", "quiet")]
            pieces.append((piece, "good"))
            room -= width_of(pieces[-1:])
        return pieces


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
