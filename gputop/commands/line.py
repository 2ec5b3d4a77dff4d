"""`gputop --line`: one line for a status bar, once or every interval."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from gputop.commands.hosts import complain_of
from gputop.commands.snapshot import followed, frame_of
from gputop.errors import GputopError
from gputop.export.line import DEFAULT, DEFAULT_HOSTS, LineView, format_line
from gputop.output import write
from gputop.sources.ask import frames_of
from gputop.sources.opening import open_source

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from gputop.model.machine.frame import Frame
    from gputop.sources.ssh.names import HostName


def print_line(options: Namespace) -> int:
    """Write the line of this machine, or of all hosts; the exit status. DriverError, UsageError."""
    line = _format(options)
    ask = partial(frame_of, demo=options.demo, writer="gputop.export.line")
    if not options.hosts:
        write(line(LineView((ask(None),))) + "\n")
        return 0
    frames, status = _ask_hosts(options, ask)
    if frames:
        write(line(LineView(frames, len(options.hosts))) + "\n")
    return status


def _ask_hosts(options: Namespace, ask: Callable[[HostName], Frame]) -> tuple[list[Frame], int]:
    """Return the frames of the hosts that answer, and the exit status."""
    from gputop.sources.many import ask_hosts, in_order

    frames, status = [], 0
    for host, answer in in_order(options.hosts, ask_hosts(options.hosts, ask)):
        if isinstance(answer, GputopError):
            complain_of(host, answer)
            status = 1
        else:
            frames.append(answer)
    return frames, status


def watch_line(options: Namespace, interval: float) -> int:
    """Write the line every interval; the exit status, should it end."""
    line = _format(options)
    if options.hosts:
        rounds = _Rounds(options.hosts, line)
        for host, message in followed(options.hosts, interval, options.demo):
            rounds.take(host, message)
        return 1
    with closing(open_source(None, interval, demo=options.demo)) as source:
        for frame in frames_of(source):
            write(line(LineView((frame,))) + "\n")
    return 0


class _Rounds:
    """A line of several hosts whenever each of them has sent a frame, or one has sent two."""

    def __init__(self, hosts: Sequence[HostName], line: Callable[[LineView], str]) -> None:
        self._hosts, self._line = hosts, line
        self._frames: dict[HostName | None, Frame] = {}
        self._fresh: set[HostName | None] = set()

    def take(self, host: HostName | None, message: Frame | GputopError) -> None:
        """Take what came of a host; one that broke is left out of the line from now on."""
        if host in self._fresh:
            self._write()
        if isinstance(message, GputopError):
            self._frames.pop(host, None)
        else:
            self._frames[host] = message
        self._fresh.add(host)
        if len(self._fresh) == len(self._hosts):
            self._write()

    def _write(self) -> None:
        frames = [self._frames[host] for host in self._hosts if host in self._frames]
        write(self._line(LineView(frames, len(self._hosts))) + "\n")
        self._fresh.clear()


def _format(options: Namespace) -> Callable[[LineView], str]:
    return format_line(options.format or (DEFAULT_HOSTS if len(options.hosts) > 1 else DEFAULT))
