"""Frames of machines as they come, for commands that go on."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from queue import Queue
from typing import TypeAlias

from gputop.commands.hosts import complain_of
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
"""What comes of a host, None for this machine."""


def watch(options: Namespace, put: Callable[[HostName | None, Frame | GputopError], None]) -> int:
    """Hand over what comes of all hosts every interval, until none is left that can be tried again,
    and return the exit status of that end. Why nothing comes is written to standard error as well,
    once. Without hosts it is this machine's frames, and GputopErrors are the caller's."""
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
        elif said.get(host) != str(message):  # and not again whenever it is tried
            said[host] = str(message)
            complain_of(host, message)
        put(host, message)
    return 1


def follow_hosts(
    hosts: Sequence[HostName | None], interval: float, demo: bool = False
) -> Iterator[HostNews]:
    """Yield the frames of machines, and why there are none, until none is left that can be tried
    again: one where ssh would have to ask somebody is not. The sources end with this."""
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
    """Put what comes of one source, and None where nothing more will."""
    follow(source, frames_of, lambda message: news.put((host, message)))
    news.put(None)
