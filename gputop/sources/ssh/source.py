"""Frames of another machine: its agent at the end of `ssh HOST`, and in which of three ways it is
read, for `gputop doctor -H HOST`."""

from __future__ import annotations

import math

from gputop.model.fleet.link import HostLink, LinkKind
from gputop.model.machine.finding import Finding
from gputop.protocol.versions import SPOKEN
from gputop.sources.agent_process import ANSWER, SILENCE
from gputop.sources.agent_source import AgentSource
from gputop.sources.ask import TIMEOUT
from gputop.sources.source import Past, is_smi_only
from gputop.sources.ssh.connection import AgentOptions, Connection
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.pacing import PING_INTERVAL
from gputop.sources.ssh.start import Remote

CONNECTION = "connection"
"""The code of the finding."""
_STALL = 20.0
"""Seconds without a line, even a ping's reply, after which a screen starts over."""


class SshSource(AgentSource[Connection]):
    """An agent on another machine, started when its frames are first asked for.

    The arguments are as for LocalSource, but no screen waits for ever: the network may be cut.
    `timeout`: seconds for the login; the agent then has those that a driver may take beyond them.
    None: as long as whoever watches the machine can wait.
    """

    def __init__(
        self,
        host: HostName,
        interval: float | None = 1.0,
        waits: bool = False,
        less: tuple[str, ...] = (),
        timeout: float | None = None,
    ) -> None:
        self.name, self._agent = host, AgentOptions(interval, less)
        usual = _STALL if waits else SILENCE + max(interval or 0.0, PING_INTERVAL)
        self._timeouts = (usual, usual)
        if timeout is not None:
            self._timeouts = (timeout, timeout + TIMEOUT + (interval or 0.0))
        self._whole = math.inf if waits else ANSWER + (interval or 0.0)
        super().__init__(host.requested_name, interval)

    @property
    def link(self) -> HostLink:
        return self._connection.link

    @property
    def past(self) -> Past | None:
        """None also where only nvidia-smi is read: what is remembered are lines of an agent."""
        return None if is_smi_only(self) else super().past

    @property
    def link_finding(self) -> Finding | None:
        """Which of the three ways to read the machine was taken, and why; None before that."""
        kind, remote = self.link.kind, self._connection.remote
        return None if kind is None or remote is None else link_check(kind, remote)

    def _connect(self) -> Connection:
        options = self._agent._replace(interval=self._interval)
        return Connection(self.name, options, self._timeouts, self._whole)


def link_check(kind: LinkKind, remote: Remote) -> Finding:
    """Return the check of a machine that is read in one way; `remote` is what there is."""
    if kind == "installed":
        text = f"the gputop that is installed there answers ({remote.gputop})"
        return Finding("ok", CONNECTION, text).harmless()
    if kind == "carried" and remote.python is not None:
        text = (
            "the agent is carried over ssh and runs in the memory of Python "
            f"3.{remote.python.minor} ({remote.python.path}); signals are in no log there"
        )
        return Finding("ok", CONNECTION, f"{_gputop(remote)}: {text}").harmless()
    text = (
        f"{_gputop(remote)}, and {_pythons(remote)}: only nvidia-smi and /proc are read, so fewer "
        "values, and no signals, mapping or details"
    )
    return Finding("warning", CONNECTION, text, "install gputop or Python 3.9 there").harmless()


def _gputop(remote: Remote) -> str:
    if remote.gputop is None:
        return "gputop is not installed there"
    if remote.spoken is None:
        return f"the gputop there is too old ({remote.gputop})"
    return f"the gputop there speaks protocol {remote.spoken}, this one {SPOKEN} ({remote.gputop})"


def _pythons(remote: Remote) -> str:
    if not remote.old_pythons:
        return "no Python is found there"
    return f"no Python there is 3.9 or newer ({', '.join(remote.old_pythons)})"
