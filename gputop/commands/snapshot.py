"""`gputop --once` and `gputop --json`: what there is to see of this machine or of every host."""

from __future__ import annotations

from contextlib import closing
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from gputop.commands.hosts import complain_of, for_each
from gputop.errors import DriverError, GputopError
from gputop.output import write
from gputop.sources.opening import open_source

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from gputop.commands.following import News
    from gputop.model.machine.frame import Frame
    from gputop.sources.ssh.names import HostName

_TEXT, _JSON = "gputop.export.table", "gputop.export.json"
"""What writes a frame, loaded while the source makes it."""


def print_once(options: Namespace) -> int:
    """Write a snapshot as text, of each host with a blank line between; the exit status."""

    @cache
    def idle_after() -> float:
        from gputop.settings import session_of

        return session_of(options).processes.idle_after

    def show(_: HostName | None, frame: Frame) -> int:
        from gputop.export.table import table

        begun.append(frame)
        # The setting is read only where it matters.
        timed = any(gpu.idle_for for gpu in frame.gpus)
        timed = timed or any(process.idle_for for process in frame.processes)
        text = table(frame, idle_after() if timed else float("inf"))
        write(f"\n{text}" if len(begun) > 1 else text)
        return 0

    begun: list[Frame] = []
    return for_each(options.hosts, partial(frame_of, demo=options.demo, writer=_TEXT), show)


def print_json(options: Namespace) -> int:
    """Write a snapshot as a line of JSON for each host; the exit status."""
    ask = partial(frame_of, demo=options.demo, writer=_JSON)
    return for_each(options.hosts, ask, _write_json)


def watch_json(options: Namespace, interval: float) -> int:
    """Write a line of JSON every interval, for each host; the exit status, should it end."""
    if options.hosts:
        for host, message in followed(options.hosts, interval, options.demo):
            if not isinstance(message, GputopError):
                _write_json(host, message)
        return 1
    from gputop.sources.ask import frames_of

    with closing(open_source(None, interval, demo=options.demo)) as source:
        for frame in frames_of(source):
            _write_json(None, frame)
    return 0


def _write_json(_: HostName | None, frame: Frame) -> int:
    from gputop.export.json import frame_json

    write(frame_json(frame) + "\n", "utf-8")
    return 0


def frame_of(host: HostName | None, demo: bool, writer: str) -> Frame:
    """Return the one frame of a snapshot; `writer`: the module that will write it, loaded
    meanwhile. DriverError, SourceError."""
    with closing(open_source(host, None, demo=demo)) as source:
        import_module(writer)
        from gputop.sources.ask import frames_of

        frame = next(frames_of(source))
    if frame.problem is not None:
        raise DriverError(str(frame.problem))
    return frame


def followed(hosts: Sequence[HostName], interval: float, demo: bool) -> Iterator[News]:
    """Yield what comes of any host, until none is left that can be tried again. Why nothing comes
    is written to standard error as well, once."""
    from gputop.commands.following import follow_hosts

    said: dict[HostName | None, str] = {}
    for host, message in follow_hosts(hosts, interval, demo):
        if not isinstance(message, GputopError):
            said.pop(host, None)
        elif said.get(host) != str(message):  # and not again whenever it is tried
            said[host] = str(message)
            complain_of(host, message)
        yield host, message
