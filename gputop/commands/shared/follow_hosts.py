"""Frames of machines as they arrive, for commands that run until they are stopped."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from queue import Queue
from typing import TypeAlias

from gputop.commands.shared.hosts import complain_of
from gputop.errors import GputopError
from gputop.model.machine.frame import Frame
from gputop.settings import session_of
from gputop.sources.ask import frames_of
from gputop.sources.feed import close_all
from gputop.sources.follow import follow
from gputop.sources.opening import open_source
from gputop.sources.source import Source
from gputop.sources.ssh.names import HostName

HostNews: TypeAlias = tuple[HostName | None, Frame | GputopError]
"""A host, None for this machine, and its next frame or the reason why there is none."""


def watch(options: Namespace, put: Callable[[HostName | None, Frame | GputopError], None]) -> int:
    """Give `put` each frame or error of all hosts until no host is left to try again, and return
    the exit status. Each new error of a host is also written to standard error, once. Without hosts
    it is this machine's frames, and GputopErrors are raised."""
    interval = session_of(options).interval
    if not options.hosts:
        with closing(open_source(None, interval, demo=options.demo)) as source:
            for frame in frames_of(source):
                put(None, frame)
        return 0
    said: dict[HostName | None, str] = {}
    for host, message in follow_hosts(options.hosts, interval, options.demo):
        if not isinstance(message, GputopError):
            said.pop(host, None)
        elif said.get(host) != str(message):  # only once, not at every new try
            said[host] = str(message)
            complain_of(host, message)
        put(host, message)
    return 1


def follow_hosts(
    hosts: Sequence[HostName | None], interval: float, demo: bool = False
) -> Iterator[HostNews]:
    """Yield frames and errors of machines until none is left to try again. A machine is not tried
    again if ssh needs a person. The sources are closed at the end."""
    news: Queue[HostNews | None] = Queue(len(hosts))
    sources = {host: open_source(host, interval, demo=demo) for host in hosts}
    for host, source in sources.items():
        threading.Thread(target=_hand_over, args=(host, source, news), daemon=True).start()
    try:
        left = len(hosts)
        while left:
            message = news.get()
            if message is None:
                left -= 1
            else:
                yield message
    finally:
        close_all(list(sources.values()))


def _hand_over(host: HostName | None, source: Source, news: Queue[HostNews | None]) -> None:
    """Put the frames and errors of one source into `news`, and None at its end."""
    follow(source, frames_of, lambda message: news.put((host, message)))
    news.put(None)
