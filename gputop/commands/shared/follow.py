"""Frames of machines as they arrive, for commands that run until they are stopped."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from contextlib import closing

from gputop.commands.shared.hosts import complain_of
from gputop.errors import GputopError
from gputop.model.machine.frame import Frame
from gputop.settings import session_of
from gputop.sources.follow_hosts import HostFollower
from gputop.sources.ssh.names import HostName


def watch(options: Namespace, put: Callable[[HostName | None, Frame | GputopError], None]) -> int:
    """Give `put` each frame or error of all hosts until no host is left to try again, and return
    the exit status. Each new error of a host is also written to standard error, once. Without hosts
    it is this machine's frames, and GputopErrors are raised."""
    interval = session_of(options).interval
    said: dict[HostName | None, str] = {}
    with closing(HostFollower(options.hosts or (None,), interval, options.demo)) as follower:
        for host, message in follower:
            if not isinstance(message, GputopError):
                said.pop(host, None)
            elif host is None:
                raise message
            elif said.get(host) != str(message):  # only once, not at every new try
                said[host] = str(message)
                complain_of(host, message)
            put(host, message)
    return 1
