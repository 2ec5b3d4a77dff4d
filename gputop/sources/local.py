"""Frames of this machine, from an agent in a child process."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.protocol.codec import encode
from gputop.protocol.messages import Reply, Request, SetInterval, Signal
from gputop.protocol.versions import SPOKEN
from gputop.sources.agent_process import INTERVAL, SILENCE, AgentProcess, take_early
from gputop.sources.agent_source import AgentConnection, AgentSource
from gputop.sources.child import TIDIES_UP

_NOTES = 1.2
"""Seconds for the agent to end after signals: it notes them in the audit log, if its disk works."""


class AgentPipe(AgentConnection):
    """The pipes to an agent of this machine."""

    def __init__(self, agent: AgentProcess, timeout: float | None) -> None:
        """`timeout`: seconds for each line; DriverError after them."""
        super().__init__()
        self._agent, self._timeout = agent, timeout
        self._time_to_end = TIDIES_UP

    def messages(self) -> Iterator[Frame | Reply]:
        while (line := self._agent.line(self._timeout)).endswith(b"\n"):
            if (message := self.take(line)) is not None:
                yield message
        raise SourceError(self._agent.exit_message())

    def request(self, request: Request) -> bool:
        if isinstance(request, Signal) and request.number:
            self._time_to_end = _NOTES
        try:
            return self._agent.write(encode(request) + b"\n")
        except BrokenPipeError:
            return True

    def stop(self) -> None:
        """Let the agent tidy up for a moment, then kill it."""
        self._agent.end(self._time_to_end)

    def free(self) -> None:
        self._agent.close()


class LocalSource(AgentSource[AgentPipe]):
    """An agent at the other end of a pipe.

    A screen `waits` for a silent agent for ever, and shows that; otherwise it is a DriverError.
    """

    def __init__(
        self, interval: float | None = 1.0, waits: bool = False, less: tuple[str, ...] = ()
    ) -> None:
        """`less`: as for `open_source`."""
        self._less = less
        self._timeout = None if waits else SILENCE + (interval or 0.0)
        super().__init__("localhost", interval)

    def _connect(self) -> AgentPipe:
        pace = ("--once",) if self._interval is None else ("--interval", str(self._interval))
        early = None if self._interval is None else take_early()
        agent = early or AgentProcess(*pace, "--protocol", str(SPOKEN), *self._less)
        pipe = AgentPipe(agent, self._timeout)
        if early is not None and self._interval not in (None, INTERVAL):
            pipe.request(SetInterval(self._interval))
        return pipe
