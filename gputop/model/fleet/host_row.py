"""A row of a host: what is seen of it, or why nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from gputop.model.fleet.host_summary import HostSummary
from gputop.model.fleet.link import HostLink
from gputop.model.health.free import FreeSlices
from gputop.model.machine.finding import Level
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import duration

HostOrder = Literal["worst", "free", "given"]
ORDERS: dict[HostOrder, str] = {
    "worst": "sorted by attention",
    "free": "sorted by free GPUs",
    "given": "in the order given",
}
"""The orders of hosts, in words."""

_LATE = 3
"""The age of a late frame in seconds, or twice the interval if that is more."""


class HostState(NamedTuple):
    """A host that is watched: its newest frame, and how it is reached."""

    host: str
    """The name by which it was asked for."""
    frame: Frame | None
    link: HostLink
    retry_in: float | None = None
    """Seconds to the next attempt to connect; None if none is planned."""
    failure: str = ""
    """Why the last connection ended; empty once there is a new one."""
    rebooted: float | None = None
    """Seconds since gputop noticed a reboot."""
    interval: float = 1.0
    """Seconds between two frames, as it is asked for them now."""


class HostRow(NamedTuple):
    """A line of the fleet."""

    host: str
    link: HostLink
    summary: HostSummary | None
    """What its frame says; None without a usable frame."""
    level: Level | None
    remark: str
    """What needs attention, or why there is no data."""
    late: bool = False
    """It is connected, but its frame is old: whether a GPU is free now is not known."""
    same_machine_as: str | None = None
    """Another host that claims to be the same machine. At most one of them is right, or both are
    names of it: their GPUs do not count as free."""
    is_first: bool = True
    """Whether no earlier row is for the same machine: its GPUs count only there."""

    @property
    def free_indices(self) -> tuple[int, ...]:
        """The indices of the GPUs to offer."""
        if self.summary is None or self.late or self.same_machine_as is not None:
            return ()
        return self.summary.free_indices

    @property
    def slices(self) -> FreeSlices:
        """The slices to offer."""
        if self.summary is None or self.late or self.same_machine_as is not None:
            return FreeSlices()
        return self.summary.slices

    @property
    def free(self) -> int | None:
        """How many GPUs are free now; None if that is not known."""
        return None if self.summary is None or self.late else self.summary.free


def host_row(
    state: HostState, summary: HostSummary | None, claimants: Sequence[str] = ()
) -> HostRow:
    """Return the row of a host; `summary` is that of its frame, None without a usable one;
    `claimants` are the hosts that claim to be its machine, with itself."""
    if summary is None or summary.frame.problem is not None:
        return HostRow(state.host, state.link, None, *_absence(state, summary))
    other = next((host for host in claimants if host != state.host), None)
    is_first = not claimants or claimants[0] == state.host
    age, interval = state.link.age, max(summary.frame.interval or 1.0, state.interval)
    late = age is not None and age >= max(_LATE, 2 * interval)
    level, remark = None, state.link.words
    if summary.worst is not None:
        level, remark = summary.worst.level, summary.worst.text
    if late:
        level, remark = "error", f"no answer for {duration(age)}"
    elif level != "error" and other is not None:
        level = "warning"
        remark = f"{other} claims to be this machine" if is_first else f"claims to be {other}"
    elif level != "error" and state.rebooted is not None:
        level, remark = "warning", f"rebooted {duration(state.rebooted)} ago"
    return HostRow(state.host, state.link, summary, level, remark, late, other, is_first)


def _absence(state: HostState, summary: HostSummary | None) -> tuple[Level | None, str]:
    """Return the level and the reason of a host without data."""
    link = state.link
    if summary is not None and summary.frame.problem is not None:
        return "error", summary.frame.problem.text
    if link.state == "ended":
        again = ""
        if state.retry_in is not None:
            again = f"; again in {duration(max(1.0, state.retry_in))}"
        return "error", f"{link.words or 'the connection ended'}{again}"
    if link.state == "login":
        why = link.words.removeprefix("login wanted: ")
        return "warning", f"log in with L: {why}" if why else "log in with L"
    if link.state == "connected" and link.age is not None and link.age >= _LATE:
        return "error", f"no answer for {duration(link.age)}"
    if state.failure:
        return "error", f"{state.failure}; connecting"
    usual = {"waiting": "waiting for its turn", "connected": "waiting for the driver"}
    return None, link.words or usual.get(link.state, link.state)


def ordered(rows: list[HostRow], order: HostOrder) -> list[HostRow]:
    if order == "worst":
        return sorted(rows, key=_soundness)
    if order == "free":
        return sorted(rows, key=lambda row: (-len(row.free_indices), -(row.slices.free or 0)))
    return rows


def _soundness(row: HostRow) -> int:
    """Return a rank: the greater, the less attention a host needs."""
    if row.level == "error":
        return 0 if row.summary is not None else 1
    if row.link.state == "login":
        return 2
    if row.summary is None:
        return 6
    if row.level == "warning":
        return 3
    return 4 if "idle" in row.summary.lamps else 5
