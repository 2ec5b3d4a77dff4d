"""Frames of one machine as a Prometheus server knows it, its GPUs without processes; or of the
machine itself, if it can be reached over ssh."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.model.fleet.link import HostLink
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.protocol.messages import AnsweredRequest, Reply, Request
from gputop.sources.agentless import AgentlessSource
from gputop.sources.prometheus.client import LONGEST, Series
from gputop.sources.prometheus.frames import (
    INTERVAL,
    VALUES,
    frame_at,
    frames_now,
    rounded,
    uuid_of,
    value_queries,
)
from gputop.sources.prometheus.queries import ClusterQueries, number_of
from gputop.sources.source import Past, Source
from gputop.sources.ssh.names import plain_host
from gputop.sources.ssh.source import SshSource

_PAST, _STEP = 900.0, 15.0
"""Seconds of the past that are read at first, and between two frames of them."""
_STEPS = int(_PAST / _STEP)
"""The most frames of them, however many the server knows."""
_REFUSED = "this host is read from Prometheus, which cannot answer this"
_MAX_ERROR_CHARS = 120
"""Characters of ssh's error that are shown."""


class PrometheusSource(AgentlessSource):
    """A machine by the values of its exporter; `link` shows how the server is reached."""

    def __init__(self, queries: ClusterQueries, host: str) -> None:
        """`host`: the value of the label that names machines."""
        super().__init__(host)
        self._queries = queries
        self._came: float | None = None

    @property
    def link(self) -> HostLink:
        age = None if self._came is None else time.monotonic() - self._came
        return HostLink("connected", "prometheus", age=age)

    def frames(self) -> Iterator[Frame | Reply]:
        """Yield frames of the last quarter of an hour, then new ones until `close`. SourceError if
        the server knows nothing of its GPUs, or does not answer."""
        events, goes_on = self._events, True
        yield from self._past(self.now())
        while goes_on:
            yield self.now()
            self._came = time.monotonic()
            goes_on = yield from self._pause(events, INTERVAL)

    def _answer(self, request: AnsweredRequest) -> Reply:
        return Reply(request=request.id, error=_REFUSED)

    def now(self) -> Frame:
        """Return what the server knows now. SourceError if it knows nothing, or fails."""
        frame = frames_now(self._queries, [self.host]).get(self.host)
        if frame is None:
            name = printable(self.host, LONGEST)
            down = {node.host: f": {node.problem}" for node in self._queries.down_now()}
            raise SourceError(f"Prometheus knows of no GPUs of {name} now{down.get(name, '')}")
        return frame

    def _past(self, now: Frame) -> Iterator[Frame]:
        """Yield past frames, with the GPUs of `now`."""
        by_time: defaultdict[float, dict[str, dict[str, Any]]] = defaultdict(dict)
        queries = value_queries(self._queries.site, re.escape(self.host))
        for name, expression in queries.items():
            start, end = now.time - _PAST, now.time - _STEP
            for series in self._queries.client.query_range(expression, start, end, _STEP):
                uuid = uuid_of(series)
                for at, value in series.points:
                    number = number_of([Series({}, ((at, value),))])
                    by_time[at].setdefault(uuid, {})[name] = rounded(name, number)
        for at in sorted(by_time)[-_STEPS:]:
            values, unknown = by_time[at], dict.fromkeys(VALUES)
            gpus = tuple(
                replace(gpu, **{**unknown, **values.get(gpu.uuid or "", {})}) for gpu in now.gpus
            )
            yield frame_at(self.host, at, gpus)


class FallbackSource(Source):
    """Frames over ssh, or from Prometheus if ssh fails; `link` shows which."""

    def __init__(self, fallback: PrometheusSource, interval: float, ssh: bool = True) -> None:
        """`ssh`: whether that is tried before, where the label of the machine is a plain name."""
        self.host, self._fallback = fallback.host, fallback
        name = plain_host(self.host) if ssh else None
        self._ssh = None if name is None else SshSource(name, interval, waits=True)
        self._has_fallen = False
        self._why = "ssh does not take its name" if ssh else "without ssh in a browser"

    @property
    def link(self) -> HostLink:
        if self._has_fallen:
            return self._fallback.link._replace(words=self._why)
        return (self._ssh and self._ssh.link) or HostLink("connecting")

    @property
    def past(self) -> Past | None:
        """What ssh brought; of what Prometheus knows there is none."""
        return None if self._ssh is None or self._has_fallen else self._ssh.past

    def remember(self, wanted: bool) -> None:
        if self._ssh is not None:
            self._ssh.remember(wanted)

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`. SourceError, with both reasons, if neither knows anything."""
        if self._ssh is not None and not self._has_fallen:
            is_seen = False
            try:
                for message in self._ssh.frames():
                    is_seen = is_seen or isinstance(message, Frame)
                    yield message
                return
            except SourceError as error:
                if is_seen:
                    raise
                self._why = printable(str(error), _MAX_ERROR_CHARS)
        self._has_fallen = True
        try:
            yield from self._fallback.frames()
        except SourceError as error:
            raise SourceError(f"{error}; and over ssh: {self._why}") from None

    def request(self, request: Request) -> Reply | None:
        source = self._fallback if self._has_fallen else self._ssh
        return None if source is None else source.request(request)

    def reconnect(self) -> None:
        """Start over, with ssh."""
        self._has_fallen = False
        self._fallback.reconnect()
        if self._ssh is not None:
            self._ssh.reconnect()

    def close(self) -> None:
        """Close both, without waiting."""
        self._fallback.close()
        if self._ssh is not None:
            self._ssh.close()
