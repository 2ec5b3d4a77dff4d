"""Frames of another machine: its agent at the end of `ssh HOST`."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from gputop.errors import LoginError, SourceError
from gputop.model.fleet.link import Link
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import encode
from gputop.protocol.messages import Reply, Request, SetInterval
from gputop.protocol.versions import SPOKEN
from gputop.sources.agent_process import SILENCE, AgentProcess
from gputop.sources.ssh.client import ssh_environment, stream_command
from gputop.sources.ssh.names import HostName

_LEAST_PAUSE = 1.0
_MOST_PAUSE = 30.0


def backoff(attempt: int) -> float:
    """Return the seconds before an attempt, 1 and up, is followed by the next: 1 to 30, never
    quite the same, so that machines that went down together do not come back at once."""
    whole = min(_MOST_PAUSE, _LEAST_PAUSE * 2.0 ** min(attempt - 1, 8))
    return max(_LEAST_PAUSE, whole * random.uniform(0.5, 1.0))


class SshSource:
    """An agent on another machine, started when its frames are first asked for.

    Arguments as for LocalSource. LoginError where ssh wants to ask somebody.
    """

    def __init__(
        self,
        host: HostName,
        interval: float | None = 1.0,
        waits: bool = False,
        driver: bool = True,
    ) -> None:
        self.host = host.asked
        self._name = host
        self._interval = interval
        self._driver = driver
        self._timeout = None if waits else SILENCE + (interval or 0.0)
        self._agent: AgentProcess | None = None
        self._closed = False
        self._queued: list[bytes] = []
        self._link = Link("waiting")
        self._heard: float | None = None

    @property
    def link(self) -> Link:
        """How the machine is reached just now; for any thread."""
        age = None if self._heard is None else time.monotonic() - self._heard
        return self._link._replace(age=age)

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`."""
        self._link = Link("connecting")
        agent = self._agent = self._start()
        try:
            yield from self._messages(agent)
        except SourceError as error:
            if agent is self._agent and not self._closed:
                login = isinstance(error, LoginError)
                self._link = Link("login" if login else "ended", words=str(error))
                raise
        finally:
            agent.end()
            agent.close()

    def _messages(self, agent: AgentProcess) -> Iterator[Frame | Reply]:
        assembler = Assembler()
        for data in self._queued:
            agent.write(data)
        while (line := agent.output.line(self._timeout)).endswith(b"\n"):
            self._heard = time.monotonic()
            message = assembler.read(line)
            self._link = Link("connected", "installed")
            if message is not None:
                yield message
                if self._interval is None and isinstance(message, Frame):
                    return
        words = printable(agent.last_words(), 200)
        raise (LoginError if "Permission denied" in words else SourceError)(words)

    def request(self, request: Request) -> None:
        """Send a request; what is asked before there is a connection waits for it."""
        if isinstance(request, SetInterval):
            self._interval = request.seconds
        data = encode(request) + b"\n"
        if self._agent is None:
            self._queued.append(data)
            return
        try:
            self._agent.write(data)
        except BrokenPipeError:
            return

    def reconnect(self) -> None:
        """Begin anew."""
        before, self._agent = self._agent, None
        self._queued = []
        if before is not None:
            before.end()

    def close(self) -> None:
        """End it, here and there."""
        self._closed = True
        if self._agent is not None:
            self._agent.end()

    def _start(self) -> AgentProcess:
        words = ["gputop", "agent", "--protocol", str(SPOKEN)]
        words += ["--once"] if self._interval is None else ["--interval", str(self._interval)]
        words += [] if self._driver else ["--no-driver"]
        command = stream_command(self._name, " ".join(["exec", *words]))
        return AgentProcess(command=command, environ=ssh_environment())
