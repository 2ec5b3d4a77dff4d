"""Frames of several machines as they come, for commands that go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from queue import Queue
from typing import TypeAlias

from gputop.errors import GputopError
from gputop.model.machine.frame import Frame
from gputop.sources.ask import frames_of
from gputop.sources.feed import close_all
from gputop.sources.follow import follow
from gputop.sources.opening import open_source
from gputop.sources.source import Source
from gputop.sources.ssh.names import HostName

News: TypeAlias = tuple[HostName | None, Frame | GputopError]
"""What comes of a host, None for this machine."""


def follow_hosts(
    hosts: Sequence[HostName | None], interval: float, demo: bool = False
) -> Iterator[News]:
    """Yield the frames of machines, and why there are none, until none is left that can be tried
    again: one where ssh would have to ask somebody is not. The sources end with this."""
    news: Queue[News | None] = Queue(len(hosts))
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


def _hand_over(host: HostName | None, source: Source, news: Queue[News | None]) -> None:
    """Put what comes of one source, and None where nothing more will."""
    follow(source, frames_of, lambda message: news.put((host, message)))
    news.put(None)
