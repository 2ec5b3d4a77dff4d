"""`gputop --line`: one line for a status bar, once or at every interval."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.commands.shared.hosts import answers_of, watch
from gputop.commands.snapshot import frame_of
from gputop.errors import GputopError
from gputop.export.line import DEFAULT, DEFAULT_HOSTS, LineView, format_line
from gputop.output import write

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from gputop.model.machine.frame import Frame
    from gputop.sources.ssh.names import HostName


def run(options: Namespace) -> int:
    """Write the line of this machine, or of all hosts, once or every interval."""
    several = len(options.hosts) > 1 or options.prometheus is not None
    line = format_line(options.format or (DEFAULT_HOSTS if several else DEFAULT))
    if options.prometheus is not None:
        from gputop.commands.shared.cluster import clusters

        asked: int | None = None
        for frames, down in clusters(options):
            asked = asked if "" in down else len(frames) + len(down)
            write(line(LineView(frames, asked)) + "\n")
        return int(bool(down))
    if options.watch:
        return watch(options, Rounds(options.hosts or (None,), line).receive)
    answers = answers_of(options.hosts, partial(frame_of, options=options))
    frames = [frame for _, frame in answers]
    if frames:
        write(line(LineView(frames, len(options.hosts) or 1)) + "\n")
    return int(len(frames) < len(options.hosts))


class Rounds:
    """Writes a line of all hosts as soon as each has sent a frame, or one has sent two."""

    def __init__(self, hosts: Sequence[HostName | None], line: Callable[[LineView], str]) -> None:
        self._hosts, self._line = hosts, line
        self._frames: dict[HostName | None, Frame] = {}
        self._fresh: set[HostName | None] = set()

    def receive(self, host: HostName | None, message: Frame | GputopError) -> None:
        """Take the frame or the error of a host; after an error its old frame is left out."""
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
