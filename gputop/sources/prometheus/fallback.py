"""A machine over ssh, or, where that fails before its first frame, as Prometheus knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gputop.errors import SourceError
from gputop.model.fleet.link import Link
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.protocol.messages import Reply, Request
from gputop.sources.prometheus.host import PrometheusSource
from gputop.sources.source import Source
from gputop.sources.ssh.names import plain_host
from gputop.sources.ssh.source import SshSource

_LONGEST = 120
"""Characters of why ssh fails."""


class FallbackSource(Source):
    """The one or the other; which of them is told by `link`."""

    def __init__(self, host: str, interval: float, known: Callable[[], PrometheusSource]) -> None:
        """host: the label that names the machine, which is ssh's only if it is a plain name;
        `known` makes the source that Prometheus is."""
        self.host = host
        name = plain_host(host)
        self._ssh = None if name is None else SshSource(name, interval, waits=True)
        self._make = known
        self._known: PrometheusSource | None = None
        self._why = "its name is none for ssh"
        self._is_closed = False

    @property
    def link(self) -> Link:
        """That of the source whose frames come."""
        if self._known is not None:
            return self._known.link._replace(words=self._why)
        return (self._ssh and self._ssh.link) or Link("connecting")

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`. SourceError where neither knows anything; it says both reasons."""
        if self._ssh is not None and self._known is None:
            is_seen = False
            try:
                for message in self._ssh.frames():
                    is_seen = is_seen or isinstance(message, Frame)
                    yield message
                return
            except SourceError as error:
                if is_seen or self._is_closed:
                    raise
                self._why = printable(str(error), _LONGEST)
        known = self._known = self._make()
        try:
            yield from known.frames()
        except SourceError as error:
            raise SourceError(f"{error}; and over ssh: {self._why}") from None

    def request(self, request: Request) -> None:
        """Send a request to the one that answers."""
        source = self._known or self._ssh
        if source is not None:
            source.request(request)

    def reconnect(self) -> None:
        """Begin anew, with ssh."""
        known, self._known = self._known, None
        if known is not None:
            known.close()
        if self._ssh is not None:
            self._ssh.reconnect()

    def close(self) -> None:
        """End both; waits for nothing."""
        self._is_closed = True
        if self._known is not None:
            self._known.close()
        if self._ssh is not None:
            self._ssh.close()
