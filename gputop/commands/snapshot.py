"""`gputop --once` and `gputop --json`: one frame of this machine or of each host."""

from __future__ import annotations

from contextlib import closing
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from gputop.commands.shared.hosts import answers_of, timeout_of, watch
from gputop.errors import DriverError, GputopError
from gputop.output import write
from gputop.settings import session_of
from gputop.sources.opening import TABLE, open_source

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from gputop.model.machine.frame import Frame
    from gputop.sources.ssh.names import HostName


def run(options: Namespace) -> int:
    """Write a snapshot of this machine or of each host, or a line of JSON every interval."""
    idle_after = cache(lambda: session_of(options).processes.idle_after)

    def put(count: int, frame: Frame) -> None:
        if options.json:
            _write_json(None, frame)
        else:
            write("\n" * bool(count) + _text(frame, idle_after))

    if options.prometheus is not None:
        from gputop.commands.shared.cluster import clusters

        for frames, down in clusters(options):
            for count, frame in enumerate(frames):
                put(count, frame)
            status = int(bool(down))
        return status
    if options.watch:
        return watch(options, _write_json)
    ask = partial(frame_of, options=options)
    count = 0
    for _, frame in answers_of(options.hosts, ask, ordered=not options.json):
        put(count, frame)
        count += 1
    return int(count < len(options.hosts))


def _text(frame: Frame, idle_after: Callable[[], float]) -> str:
    """Return the frame as text. `idle_after` reads the settings, which is slow."""
    from gputop.export.table import table

    matters = any(gpu.idle_for for gpu in frame.gpus)
    matters = matters or any(process.idle_for for process in frame.processes)
    return table(frame, idle_after() if matters else float("inf"))


def _write_json(_: HostName | None, message: Frame | GputopError) -> None:
    from gputop.export.json import frame_json

    if not isinstance(message, GputopError):
        write(frame_json(message) + "\n", "utf-8")


def frame_of(host: HostName | None, options: Namespace) -> Frame:
    """Return the frame of a snapshot. What will write it is loaded meanwhile. DriverError,
    SourceError."""
    writer = "json" if options.json else "line" if options.line else "table"
    less, timeout = () if options.json else TABLE, timeout_of(options)
    with closing(open_source(host, None, demo=options.demo, less=less, timeout=timeout)) as source:
        import_module(f"gputop.export.{writer}")
        from gputop.sources.ask import frames_of

        frame = next(frames_of(source))
    if frame.problem is not None:
        raise DriverError(str(frame.problem))
    return frame
