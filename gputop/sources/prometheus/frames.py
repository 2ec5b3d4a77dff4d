"""Frames of machines as a Prometheus server knows them now, their GPUs without processes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from gputop.model.health.findings import HUNG
from gputop.model.machine.frame import Frame, GpuReport, Host
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.grouped import grouped
from gputop.protocol.assemble import MAX_GPUS
from gputop.protocol.harmless import harmless
from gputop.sources.prometheus.client import Series
from gputop.sources.prometheus.exporters import Site
from gputop.sources.prometheus.queries import ClusterQueries, host_of, number_of
from gputop.sources.prometheus.reports import report_queries, reports_of

INTERVAL = 10.0
"""Seconds between two frames of a machine that is open."""
_AT_ONCE = 100
"""Machines that are asked about together: the answers have a bound."""
_WHOLE = ("memory_used", "memory_total")
_VERSIONS = ("driver_version", "cuda_version")
VALUES = ("utilization", *_WHOLE, "temperature", "power")
"""Fields of `Gpu`, and the properties of `Exporter` that are their expressions."""


def all_frames(queries: ClusterQueries) -> Iterator[Frame]:
    """Yield a frame of each machine whose GPUs are known now, in the order of their names, with the
    time at which they were read. SourceError."""
    hosts = queries.hosts()
    for first in range(0, len(hosts), _AT_ONCE):
        page = hosts[first : first + _AT_ONCE]
        ages = grouped(queries.ask({"age": queries.site.age(_pattern(page))})["age"], host_of)
        for host, frame in frames_now(queries, page).items():
            age = number_of(ages.get(host, ()))
            yield replace(frame, time=frame.time - (age or 0.0), interval=None)


def frames_now(queries: ClusterQueries, hosts: Sequence[str]) -> dict[str, Frame]:
    """Return a frame of each of these machines whose GPUs are known, by the label that names it.
    SourceError."""
    site, pattern = queries.site, _pattern(hosts)
    wanted = {
        "there": site.of(lambda exporter: exporter.facts(pattern)),
        "number": site.each(lambda exporter: exporter.number_metric, pattern),
        "versions": site.each(lambda exporter: exporter.host_info, pattern, *_VERSIONS),
        **value_queries(site, pattern),
        **report_queries(site, pattern),
    }
    answers = {name: grouped(answer, host_of) for name, answer in queries.ask(wanted).items()}
    return {
        host: _frame_now(host, {name: answer.get(host, []) for name, answer in answers.items()})
        for host in hosts
        if host in answers["there"]
    }


def _pattern(hosts: Sequence[str]) -> str:
    return "|".join(map(re.escape, hosts))


def _frame_now(host: str, answers: Mapping[str, Sequence[Series]]) -> Frame:
    at = answers["there"][0].points[-1][0]
    gpus = _gpus(answers)
    frame = frame_at(host, at, gpus, reports_of(gpus, answers, at))
    if versions := answers["versions"]:
        return replace(frame, **{name: versions[0].text(name) or None for name in _VERSIONS})
    return frame


def frame_at(
    host: str, at: float, gpus: tuple[Gpu, ...], reports: dict[str, GpuReport] | None = None
) -> Frame:
    """Return a frame of a machine at a time in seconds since the epoch."""
    return harmless(
        Frame(
            host=Host(name=host, requested_name=host),
            time=at,
            interval=INTERVAL,
            gpus=gpus,
            reported_by="Prometheus",
            reports=reports or {},
        )
    )


def value_queries(site: Site, hosts: str) -> dict[str, str]:
    """Return the expressions of what `Gpu` has, by its fields. `hosts`: a pattern of machines."""
    return {name: site.each(attrgetter(name), hosts) for name in VALUES}


def _gpus(answers: Mapping[str, Sequence[Series]]) -> tuple[Gpu, ...]:
    values: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name in VALUES:
        for series in answers[name]:
            values[uuid_of(series)][name] = rounded(name, number_of([series]))
    ages = {uuid_of(series): number_of([series]) for series in answers["ages"]}
    for uuid in (uuid_of(series) for series in answers["codes"] if series.text("code") == HUNG):
        values[uuid] |= {"state": "silent", "stale_for": ages.get(uuid)}
    indices = _indices(answers)
    names = {uuid_of(series): series.labels for series in answers["there"]}
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


def _indices(answers: Mapping[str, Sequence[Series]]) -> dict[str, int]:
    """Return the index of each GPU; GPUs that report none come last."""
    indices: dict[str, int] = {}
    for series in answers["there"]:
        text = series.labels.get("gpu", "")
        if text.isascii() and text.isdigit() and len(text) < 6:
            indices[uuid_of(series)] = int(text)
    for series in answers["number"]:
        indices[uuid_of(series)] = int(number_of([series]) or 0)
    free = count(max(indices.values(), default=-1) + 1)
    for uuid in map(uuid_of, answers["there"]):
        if uuid not in indices:
            indices[uuid] = next(free)
    return indices


def uuid_of(series: Series) -> str:
    return series.labels.get("uuid", "")


def rounded(name: str, value: float | None) -> float | None:
    """Return a value in its field's type: bytes are integers."""
    return round(value) if value is not None and name in _WHOLE else value
