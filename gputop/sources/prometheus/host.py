"""Frames of one machine as a Prometheus server knows it, its GPUs without processes; or of the
machine itself, if it can be reached over ssh."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.model.fleet.link import HostLink
from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.gpu_report import GpuReport
from gputop.model.machine.text import printable
from gputop.protocol.assemble import MAX_GPUS
from gputop.protocol.harmless import harmless
from gputop.protocol.messages import AnsweredRequest, Reply, Request
from gputop.sources.agentless import AgentlessSource
from gputop.sources.prometheus.client import Series
from gputop.sources.prometheus.exporters import Exporter
from gputop.sources.prometheus.queries import LONGEST, ClusterQueries, number_of
from gputop.sources.prometheus.reports import report_queries, reports_of, silenced
from gputop.sources.source import Source
from gputop.sources.ssh.names import plain_host
from gputop.sources.ssh.source import SshSource

_INTERVAL = 10.0
_PAST, _STEP = 900.0, 15.0
"""Seconds of the past that are read at first, and between two frames of them."""
_STEPS = int(_PAST / _STEP)
"""The most frames of them, however many the server knows."""
_REFUSED = "this host is read from Prometheus, which cannot answer this"
_MAX_ERROR_CHARS = 120
"""Characters of ssh's error that are shown."""
_WHOLE = ("memory_used", "memory_total")


class PrometheusSource(AgentlessSource):
    """A machine by the values of its exporter; `link` shows how the server is reached."""

    def __init__(self, queries: ClusterQueries, host: str) -> None:
        """`host`: the value of the label that names machines."""
        super().__init__(host)
        self._queries, self._pattern = queries, re.escape(host)
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
            goes_on = yield from self._pause(events, _INTERVAL)

    def _answer(self, request: AnsweredRequest) -> Reply:
        return Reply(request=request.id, error=_REFUSED)

    def now(self) -> Frame:
        """Return what the server knows now. SourceError if it knows nothing, or fails."""
        site = self._queries.site
        there = site.of(lambda exporter: exporter.facts(self._pattern))
        number = site.each(lambda exporter: exporter.number_metric, self._pattern)
        wanted = {
            "there": there,
            "number": number,
            **self._values(),
            **report_queries(site, self._pattern),
        }
        answers = self._queries.ask(wanted)
        if not answers["there"]:
            name = printable(self.host, LONGEST)
            why = {node.host: f": {node.problem}" for node in self._queries.down}.get(name, "")
            raise SourceError(f"Prometheus knows of no GPUs of {name} now{why}")
        at = answers["there"][0].points[-1][0]
        gpus = self._gpus(answers)
        reports = reports_of(gpus, answers, at)
        return self._frame(at, silenced(gpus, reports, answers), reports)

    def _values(self) -> dict[str, str]:
        values: dict[str, Callable[[Exporter], str]] = {
            "utilization": lambda exporter: exporter.utilization,
            "memory_used": lambda exporter: exporter.memory_used,
            "memory_total": lambda exporter: exporter.memory_total,
            "temperature": lambda exporter: exporter.temperature,
            "power": lambda exporter: exporter.power,
        }
        each = self._queries.site.each
        return {name: each(value, self._pattern) for name, value in values.items()}

    def _past(self, now: Frame) -> Iterator[Frame]:
        """Yield past frames, with the GPUs of `now`."""
        by_time: defaultdict[float, dict[str, dict[str, Any]]] = defaultdict(dict)
        for name, expression in self._values().items():
            start, end = now.time - _PAST, now.time - _STEP
            for series in self._queries.client.query_range(expression, start, end, _STEP):
                uuid = _uuid_of(series)
                for at, value in series.points:
                    number = number_of([Series({}, ((at, value),))])
                    by_time[at].setdefault(uuid, {})[name] = _rounded(name, number)
        for at in sorted(by_time)[-_STEPS:]:
            values, unknown = by_time[at], dict.fromkeys(self._values())
            gpus = tuple(
                replace(gpu, **{**unknown, **values.get(gpu.uuid or "", {})}) for gpu in now.gpus
            )
            yield self._frame(at, gpus)

    def _gpus(self, answers: Mapping[str, Sequence[Series]]) -> tuple[Gpu, ...]:
        values: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for name in self._values():
            for series in answers[name]:
                values[_uuid_of(series)][name] = _rounded(name, number_of([series]))
        indices = self._indices(answers)
        names = {_uuid_of(series): series.labels for series in answers["there"]}
        gpus = [
            Gpu(
                index=indices[uuid],
                uuid=uuid or None,
                name=labels.get("model"),
                listed="none",
                **values[uuid],
            )
            for uuid, labels in names.items()
        ]
        return tuple(sorted(gpus, key=lambda gpu: gpu.index)[:MAX_GPUS])

    def _indices(self, answers: Mapping[str, Sequence[Series]]) -> dict[str, int]:
        """Return the index of each GPU; GPUs that report none come last."""
        indices: dict[str, int] = {}
        for series in answers["there"]:
            text = series.labels.get("gpu", "")
            if text.isascii() and text.isdigit() and len(text) < 6:
                indices[_uuid_of(series)] = int(text)
        for series in answers["number"]:
            indices[_uuid_of(series)] = int(number_of([series]) or 0)
        free = count(max(indices.values(), default=-1) + 1)
        for uuid in map(_uuid_of, answers["there"]):
            if uuid not in indices:
                indices[uuid] = next(free)
        return indices

    def _frame(
        self, at: float, gpus: tuple[Gpu, ...], reports: dict[str, GpuReport] | None = None
    ) -> Frame:
        name = self.host
        host = Host(name=name, requested_name=name)
        return harmless(
            Frame(
                host=host,
                time=at,
                interval=_INTERVAL,
                gpus=gpus,
                reported_by="Prometheus",
                reports=reports or {},
            )
        )


def _uuid_of(series: Series) -> str:
    return series.labels.get("uuid", "")


def _rounded(name: str, value: float | None) -> float | None:
    """Return a value in its field's type: bytes are integers."""
    return round(value) if value is not None and name in _WHOLE else value


class FallbackSource(Source):
    """Frames over ssh, or from Prometheus if ssh fails; `link` shows which."""

    def __init__(self, host: str, interval: float, make: Callable[[], PrometheusSource]) -> None:
        """`host`: the label that names the machine; only a plain name is one for ssh. `make` makes
        the source that reads Prometheus."""
        self.host = host
        name = plain_host(host)
        self._ssh = None if name is None else SshSource(name, interval, waits=True)
        self._make = make
        self._known: PrometheusSource | None = None
        self._why = "ssh does not take its name"
        self._is_closed = False

    @property
    def link(self) -> HostLink:
        if self._known is not None:
            return self._known.link._replace(words=self._why)
        return (self._ssh and self._ssh.link) or HostLink("connecting")

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`. SourceError, with both reasons, if neither knows anything."""
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
                self._why = printable(str(error), _MAX_ERROR_CHARS)
        fallback = self._known = self._make()
        try:
            yield from fallback.frames()
        except SourceError as error:
            raise SourceError(f"{error}; and over ssh: {self._why}") from None

    def request(self, request: Request) -> Reply | None:
        source = self._known or self._ssh
        return None if source is None else source.request(request)

    def reconnect(self) -> None:
        """Start over, with ssh."""
        fallback, self._known = self._known, None
        if fallback is not None:
            fallback.close()
        if self._ssh is not None:
            self._ssh.reconnect()

    def close(self) -> None:
        """Close both, without waiting."""
        self._is_closed = True
        if self._known is not None:
            self._known.close()
        if self._ssh is not None:
            self._ssh.close()
