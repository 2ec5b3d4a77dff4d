"""Frames of this machine, from an agent in a child process."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import encode
from gputop.protocol.messages import Reply, Request, SetInterval, Signal
from gputop.protocol.recent import RecentFrames
from gputop.protocol.versions import SPOKEN
from gputop.sources.agent_process import INTERVAL, SILENCE, AgentProcess, take_early
from gputop.sources.past import Past

_TIDIES_UP = 0.1
"""Seconds of the agent for its end."""
_NOTES = 1.2
"""The same where signals were sent: they are noted in the audit log, if its disk is well."""


class LocalSource:
    """An agent at the other end of a pipe, started when this is made.

    With `interval` None the agent sends one frame and ends. To one that says nothing a
    screen `waits` for ever, and says so; for others it is a DriverError. An agent without `driver`
    leaves that alone, and answers requests.
    """

    host = "localhost"

    def __init__(
        self, interval: float | None = 1.0, waits: bool = False, driver: bool = True
    ) -> None:
        self._interval = interval
        self._options = () if driver else ("--no-driver",)
        self._timeout = None if waits else SILENCE + (interval or 0.0)
        self._closed = self._signalled = False
        self._assembler = Assembler()
        self._remembers = False
        self._read_out: AgentProcess | None = None
        """The agent of which all was read."""
        early = None if interval is None else take_early()
        self._agent = early or self._start()
        if early is not None and interval is not None and interval != INTERVAL:
            self.request(SetInterval(interval))

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`; the frame of an agent that was asked for one is the last."""
        agent = self._agent
        if agent is self._read_out:
            return
        try:
            yield from self._messages(agent, self._assembler)
        except SourceError:
            self._let_go(agent)
            if agent is self._agent and not self._closed:
                raise
            return
        self._let_go(agent)

    def _let_go(self, agent: AgentProcess) -> None:
        self._read_out = agent
        agent.close()

    def _messages(self, agent: AgentProcess, assembler: Assembler) -> Iterator[Frame | Reply]:
        while (line := agent.output.line(self._timeout)).endswith(b"\n"):
            if (message := assembler.read(line)) is not None:
                yield message
                if self._interval is None:
                    return
        raise SourceError(agent.last_words())

    @property
    def past(self) -> Past | None:
        """The last minutes of the agent of now."""
        return self._assembler.recent

    def remember(self, wanted: bool) -> None:
        """See `RememberingSource`."""
        self._remembers = wanted
        self._assembler.recent = RecentFrames() if wanted else None

    def request(self, request: Request) -> None:
        """Send a request; nothing if the agent is gone, `frames` tells that."""
        if isinstance(request, SetInterval):
            self._interval = request.seconds
        if isinstance(request, Signal) and request.number:
            self._signalled = True
        if not self._closed:
            try:
                self._agent.write(encode(request) + b"\n")
            except BrokenPipeError:
                return

    def reconnect(self) -> None:
        """Start another agent: it loads the driver's library anew."""
        before, self._assembler = self._agent, Assembler()
        self.remember(self._remembers)
        self._agent = self._start()
        before.end(self._time_to_end)

    def close(self) -> None:
        """Let the agent tidy up, for a moment, and kill it."""
        if not self._closed:
            self._closed = True
            self._agent.end(self._time_to_end)

    @property
    def _time_to_end(self) -> float:
        return _NOTES if self._signalled else _TIDIES_UP

    def _start(self) -> AgentProcess:
        if self._interval is None:
            return AgentProcess("--once", "--protocol", str(SPOKEN))
        options = ("--interval", str(self._interval), "--protocol", str(SPOKEN), *self._options)
        return AgentProcess(*options)
