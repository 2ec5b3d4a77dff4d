"""Frames of another machine: its agent at the end of `ssh HOST`."""

from __future__ import annotations

import math

from gputop.model.fleet.link import Link
from gputop.model.machine.finding import Finding
from gputop.sources.agent_process import ANSWER, SILENCE
from gputop.sources.agent_source import AgentSource
from gputop.sources.ssh.client import allow_many_files
from gputop.sources.ssh.connection import AgentOptions, Connection
from gputop.sources.ssh.crowd import BEAT
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.ways import ways_check

_STALL = 20.0
"""Seconds without a line, even a ping's reply, after which a screen starts over."""


class SshSource(AgentSource[Connection]):
    """An agent on another machine, started when its frames are first asked for.

    The arguments are as for LocalSource, but no screen waits for ever: the network may be cut.
    """

    def __init__(
        self,
        host: HostName,
        interval: float | None = 1.0,
        waits: bool = False,
        driver: bool = True,
        less: tuple[str, ...] = (),
    ) -> None:
        allow_many_files()
        self.name, self._agent = host, AgentOptions(interval, driver, less)
        self._timeout = _STALL if waits else SILENCE + max(interval or 0.0, BEAT)
        self._whole = math.inf if waits else ANSWER + (interval or 0.0)
        super().__init__(host.asked, interval)

    @property
    def link(self) -> Link:
        return self._connection.link

    @property
    def way(self) -> Finding | None:
        """Which of the three ways to read the machine was taken, and why; None before that."""
        how, remote = self.link.how, self._connection.remote
        return None if how is None or remote is None else ways_check(how, remote)

    def _connect(self) -> Connection:
        options = self._agent._replace(interval=self._interval)
        return Connection(self.name, options, self._timeout, self._whole)
