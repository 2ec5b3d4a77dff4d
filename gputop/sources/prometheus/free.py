"""Finds a machine of a cluster with free GPUs, by what its server knows."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from gputop.errors import GputopError
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import printable, short_name
from gputop.sources.prometheus.client import Series
from gputop.sources.prometheus.host import PrometheusSource
from gputop.sources.prometheus.queries import ClusterQueries, age_of, number_of, selector_of
from gputop.sources.ssh.names import HostName, plain_host

_MOST = 20
"""Machines that are considered: the labels of some may be no host names."""


class FreeHost(NamedTuple):
    """A machine with enough free GPUs of one model."""

    host: HostName
    gpus: tuple[Gpu, ...]
    """As many GPUs as were wanted."""
    age: float | None
    """Seconds since they were read."""


def find_free(queries: ClusterQueries, model: str, count: int) -> FreeHost:
    """Return the machine with the fewest free GPUs that are enough, so that large jobs find room
    elsewhere. They are of one model, with `model` in its name. GputopError if there is none."""
    free = _free(queries, model)
    host, name = queries.exporter.host, queries.exporter.model
    counted = f"count by ({host}, {name}) ({free})"
    counts = queries.client.query(f"bottomk({_MOST}, {counted} >= {count})")
    for series in sorted(counts, key=lambda series: (series.value, series.labels.get(host, ""))):
        label = series.labels.get(host, "")
        plain = plain_host(label)
        if plain is None:
            continue
        gpus = _gpus_of(queries, label, series.labels.get(name, ""), free)
        if len(gpus) >= count:
            return FreeHost(plain, gpus[:count], _age_of(queries, label))
    wanted = f"{count} free GPUs of one model" + (f" with {model!r} in its name" if model else "")
    best = queries.client.query(f"topk(1, {counted})")
    if not best:
        of = f" with {model!r} in its model's name" if model else ""
        raise GputopError(f"no host has a free GPU{printable(of, 200)}")
    raise GputopError(f"no host has {printable(wanted, 200)}: {_most(queries, best[0])}")


def _free(queries: ClusterQueries, model: str) -> str:
    """Return the expression of the free GPUs, with their models."""
    exporter = queries.exporter
    pattern = json.dumps(f"(?is).*{re.escape(model)}.*", ensure_ascii=False)
    return f"({exporter.with_model(exporter.free_gpus(), f'{exporter.model}=~{pattern}')} == 1)"


def _gpus_of(queries: ClusterQueries, host: str, model: str, free: str) -> tuple[Gpu, ...]:
    """Return the free GPUs of a machine, in the order of their indices."""
    exporter = queries.exporter
    of_host = queries.client.query(
        f"{free} and on ({exporter.key}) {exporter.present}{{{selector_of(exporter.host, host)}}}"
    )
    uuids = {
        series.labels.get(exporter.uuid) for series in of_host
        if series.labels.get(exporter.model, "") == model
    }  # fmt: skip
    return tuple(gpu for gpu in PrometheusSource(queries, host).now().gpus if gpu.uuid in uuids)


def _age_of(queries: ClusterQueries, host: str) -> float | None:
    ages = queries.exporter.ages(selector_of(queries.exporter.host, host))
    answers = queries.ask({name: f"max({age})" for name, age in ages.items()})
    return age_of({name: number_of(series) for name, series in answers.items()})


def _most(queries: ClusterQueries, best: Series) -> str:
    """Say which machine has most of them."""
    host = printable(best.labels.get(queries.exporter.host, ""), 64)
    model = short_name(printable(best.labels.get(queries.exporter.model, ""), 64))
    return f"the most are {best.value:.0f} {model} on {host}"
