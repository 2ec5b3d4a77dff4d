"""gputop for programs: what `import gputop` gives, over the sources and the model of the commands.

It prints nothing. What runs for it is an agent in a process of its own for each machine, which ends
with the call, with the context, or with this process. What one function alone needs, it imports:
who wants a snapshot does not wait for the rest.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Units
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from gputop.errors import (
    DriverError,
    GputopError,
    LoginError,
    NotEnoughGpusError,
    SourceError,
    UsageError,
)
from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.mapping import Mapping
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.frame import Frame, Host, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.quantity import DURATIONS, MAX_BYTES, SIZES, read_quantity
from gputop.protocol.messages import MAX_INTERVAL, MIN_INTERVAL
from gputop.sources.ask import answers, context_of, is_whole, readable_frame, wait_for_frame
from gputop.sources.child import end_all
from gputop.sources.follow import broken_frame
from gputop.sources.follow_hosts import HostFollower, HostNews
from gputop.sources.opening import TABLE, open_source

if TYPE_CHECKING:
    from gputop.model.cuda.pick import PickRequest
    from gputop.sources.ssh.names import HostName

__all__ = [
    "CudaDevice",
    "DriverError",
    "Gpu",
    "GputopError",
    "Host",
    "LoginError",
    "MachineSnapshot",
    "Mapping",
    "NotEnoughGpusError",
    "Process",
    "SourceError",
    "UsageError",
    "choose",
    "free",
    "mapping",
    "snapshot",
    "watch",
]
_FIRST_FRAMES = 0.25
"""Seconds between frames; the first may be incomplete."""
_LOGIN = "log in by hand, then call watch() again"
_followers: list[HostFollower] = []
_reservations: list[ExitStack] = []


class MachineSnapshot(Frame, frozen=True, kw_only=True, dict=True):
    """A frame for programs and notebooks."""

    def to_json(self) -> str:
        """Return the line that `gputop --json` prints of it, without its end."""
        from gputop.export.json import frame_json

        return frame_json(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what `to_json` writes, as dictionaries, lists and plain values."""
        values: dict[str, Any] = msgspec.json.decode(self.to_json())
        return values

    def _repr_html_(self) -> str:
        """Return what `gputop --once` prints of it, for a notebook."""
        from gputop.export.table import html

        return html(self)


def snapshot_of(frame: Frame) -> MachineSnapshot:
    """Return a frame as programs get it."""
    return MachineSnapshot(**{name: getattr(frame, name) for name in frame.__struct_fields__})


def snapshot(host: str | None = None) -> MachineSnapshot:
    """Return what `gputop --json` prints of this machine, or of a host as `-H` takes it.

    DriverError, SourceError, LoginError, UsageError.
    """
    with closing(open_source(_host_of(host), None)) as source:
        frame = wait_for_frame(source, lambda _: True, 0.0)
    if frame.problem is not None:
        raise DriverError(str(frame.problem))
    return snapshot_of(frame)


@contextmanager
def watch(
    interval: float = 1.0, hosts: str | Sequence[str] | None = None
) -> Iterator[Iterator[MachineSnapshot]]:
    """Give snapshots of this machine, or of hosts as `-H` takes them, every `interval` seconds.

    Who is slow gets the newest one of each machine and misses those before it. A driver that
    cannot be read is its `problem`, as is a host that cannot be reached, which is tried again
    unless ssh needs a person; without such a host left the snapshots end. The agent of this machine
    raises SourceError or DriverError when it ends. Any thread may take them, or close it.
    UsageError.
    """
    if not isinstance(interval, int | float) or not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        words = f"a number of seconds from {MIN_INTERVAL} to {MAX_INTERVAL:.0f}"
        raise UsageError(f"interval {interval!r} is not {words}")
    follower = HostFollower((None,) if hosts is None else _hosts_of(hosts), interval, newest=True)
    _followers.append(follower)
    try:
        yield map(_received, follower)
    finally:
        follower.close()
        _followers.remove(follower)


def _received(host_news: HostNews) -> MachineSnapshot:
    host, news = host_news
    if isinstance(news, Frame):
        return snapshot_of(news)
    if host is None:
        raise news
    name = host.requested_name
    return snapshot_of(broken_frame(Host(name=name, requested_name=name), news, _LOGIN))


def free(
    count: int = 1,
    *,
    min_free: int | str | None = None,
    same_model: bool = False,
    wait: float | str | None = None,
    host: str | None = None,
) -> list[Gpu]:
    """Return GPUs for a new job, as `gputop free` picks them: in the order of their PCI bus ids.
    Where it picks MIG devices, the GPU of each.

    `min_free`: bytes, or a size as "20GiB" (None: nothing is in use); `wait`: seconds, or a time as
    "2h", to wait for enough. NotEnoughGpusError, DriverError, SourceError, UsageError.
    """
    from gputop.allocation.gpu_watch import Watch, not_enough

    request = _request(count, min_free, same_model, elsewhere=host is not None)
    picked = Watch(request, _seconds(wait), host=_host_of(host)).watch()
    if picked.pick.gpus is None:
        raise not_enough(picked, request)
    return list(picked.pick.gpus)


def choose(
    count: int = 1,
    *,
    min_free: int | str | None = None,
    same_model: bool = False,
    wait: float | str | None = None,
    uuid: bool = False,
    reserve: bool = False,
) -> list[Gpu]:
    """Pick GPUs as `free` does, and have this process and its children see these alone: the first
    is cuda:0. It sets CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES in `os.environ`, to indices or
    with `uuid` to UUIDs. With `reserve` the GPUs are reserved until this process has ended, and
    GPUTOP_RESERVATION tells gputop in its children that they may use them.

    GputopError if CUDA has been started in this process, or nothing can be reserved; otherwise as
    `free`. After an error the variables are as they were.
    """
    from gputop.allocation.gpu_watch import Watch, take
    from gputop.allocation.own import HELD, with_our_hold
    from gputop.allocation.reserve_watch import command_text, reserved

    request, seconds = _request(count, min_free, same_model), _seconds(wait)
    _require_no_cuda()
    with ExitStack() as stack:
        variables: dict[str, str] = {}
        if reserve:
            command = command_text(sys.orig_argv)
            taken, _ = stack.enter_context(reserved(request, seconds, command, uuid))
            variables[HELD] = with_our_hold(os.environ)
        else:
            taken = take(Watch(request, seconds).watch(), request, uuid)
        _require_no_cuda()
        os.environ.update(variables | taken.variables)
        _reservations.append(stack.pop_all())
    return list(taken.gpus)


def mapping(value: str | None = None, *, pid: int | None = None) -> Mapping:
    """Return what a CUDA_VISIBLE_DEVICES means on this machine, under the CUDA_DEVICE_ORDER of this
    process: by default this process's own, with `pid` that of a running process.

    DriverError, SourceError, UsageError.
    """
    from gputop.model.cuda.inventory import frame_inventory
    from gputop.model.cuda.logical_names import LogicalNames
    from gputop.model.cuda.mapping_query import result_of

    if value is not None and pid is not None:
        raise UsageError("give a value or a pid, not both")
    if not isinstance(value, str | None) or not isinstance(pid, int | None):
        raise UsageError("a value is text, as '0,1', and a pid is a number")
    with closing(open_source(None, _FIRST_FRAMES, less=TABLE)) as source:
        if pid is not None:
            frame = readable_frame(source, is_whole)
            return LogicalNames(frame).of(pid, context_of(source, pid)).mapping
        frame = readable_frame(source, answers)
    text = os.environ.get(NAME) if value is None else value
    return result_of(text, os.environ.get(ORDER), frame_inventory(frame)).mapping


# What the arguments stand for


def _request(
    count: int, min_free: int | str | None, same_model: bool, elsewhere: bool = False
) -> PickRequest:
    from gputop.model.cuda.pick import PickRequest
    from gputop.model.health.free import AT_WORK

    if not isinstance(count, int) or count < 1:
        raise UsageError(f"count {count!r} is not a number of GPUs")
    least = _quantity("min_free", min_free, SIZES, MAX_BYTES, "a size, as '20GiB' or bytes")
    return PickRequest(
        count=count,
        min_free=None if least is None else int(least),
        max_utilization=AT_WORK,
        same_model=same_model,
        value=None if elsewhere else os.environ.get(NAME),
        order=None if elsewhere else os.environ.get(ORDER),
    )


def _seconds(wait: float | str | None) -> float:
    return _quantity("wait", wait, DURATIONS, float("inf"), "a time, as '2h' or seconds") or 0.0


def _quantity(
    name: str, value: float | str | None, units: Units[str, float], most: float, example: str
) -> float | None:
    amount = read_quantity(value, units) if isinstance(value, str) else value
    if value is not None and not (isinstance(amount, int | float) and 0 <= amount <= most):
        raise UsageError(f"{name} {value!r} is not {example}")
    return amount


def _host_of(host: str | None) -> HostName | None:
    if host is None:
        return None
    hosts = _hosts_of(host)
    if len(hosts) > 1:
        raise UsageError(f"{host!r} names {len(hosts)} hosts: give one")
    return hosts[0]


def _hosts_of(hosts: str | Sequence[str]) -> tuple[HostName, ...]:
    from gputop.settings import from_file, settings_path
    from gputop.sources.ssh.names import parse_hosts

    words = [hosts] if isinstance(hosts, str) else [*hosts]
    if not all(isinstance(word, str) for word in words):
        raise UsageError(f"hosts are names, not {words!r:.100}")
    named = any("@" in word for word in words)
    groups = from_file(settings_path(), ("groups",)).groups if named else {}
    return parse_hosts(words, groups, os.environ, None)


# This process


def _require_no_cuda() -> None:
    from gputop.allocation.cuda_started import cuda_started

    if (sign := cuda_started()) is not None:
        raise GputopError(
            f"CUDA has been started in this process ({sign}), and read CUDA_VISIBLE_DEVICES then: "
            "call gputop.choose() before anything that starts it"
        )


@atexit.register
def _end() -> None:
    """End what is still open when Python ends: none of it is left behind."""
    for follower in [*_followers]:
        follower.close()
    for reservation in _reservations:
        reservation.close()
    end_all()
