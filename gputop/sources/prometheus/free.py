"""Finds a machine of a cluster with free GPUs, by what its server knows."""

from __future__ import annotations

import re
from typing import NamedTuple

from gputop.errors import GputopError
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import counted, printable, short_name
from gputop.protocol.harmless import harmless
from gputop.sources.prometheus.client import Series
from gputop.sources.prometheus.exporters import Exporter
from gputop.sources.prometheus.host import PrometheusSource
from gputop.sources.prometheus.queries import ClusterQueries, host_of, number_of
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
    exporter: Exporter
    """What reports them."""


def find_free(queries: ClusterQueries, model: str, count: int) -> FreeHost:
    """Return the machine with the fewest free GPUs that are enough, so that large jobs find room
    elsewhere. They are of one model, with `model` in its name. GputopError if there is none."""
    free = _free(queries, f"(?is).*{re.escape(model)}.*" if model else "")
    counts = f"count by (host, model, exporter) ({free})"
    exporters = {exporter.name: exporter for exporter in queries.site.exporters}
    enough = queries.client.query(f"bottomk({_MOST}, {counts} >= {count})")
    for series in sorted(enough, key=lambda series: (series.value, host_of(series))):
        label = host_of(series)
        plain = plain_host(label)
        exporter = exporters.get(series.labels.get("exporter", ""))
        if plain is None or exporter is None:
            continue
        gpus = _gpus_of(queries, series)
        if len(gpus) >= count:
            age = number_of(queries.client.query(queries.site.age(re.escape(label))))
            return FreeHost(plain, gpus[:count], age, exporter)
    wanted = f"{counted(count, 'free GPU')} of one model"
    wanted += f" with {model!r} in its name" if model else ""
    best = queries.client.query(f"topk(1, {counts})")
    if not best:
        of = f" with {model!r} in its model's name" if model else ""
        raise GputopError(f"no host has a free GPU{printable(of, 200)}")
    no_host = "no host with a name that ssh takes" if best[0].value >= count else "no host"
    raise GputopError(f"{no_host} has {printable(wanted, 200)}: {_most(best[0])}")


def _free(queries: ClusterQueries, model: str) -> str:
    """Return the expression of the free GPUs, with their models and the names of exporters."""

    def free(exporter: Exporter) -> str:
        text = f"{exporter.free_by_model(model)} == 1"
        return f'label_replace({text}, "exporter", "{exporter.name}", "", "")'

    return queries.site.of(free)


def _gpus_of(queries: ClusterQueries, counted: Series) -> tuple[Gpu, ...]:
    """Return the free GPUs of a machine, in the order of their indices."""
    frame = PrometheusSource(queries, host_of(counted)).now()
    free = {uuid for uuid, report in frame.reports.items() if report.free}
    model = harmless(counted.labels.get("model"))
    return tuple(gpu for gpu in frame.gpus if gpu.uuid in free and gpu.name == model)


def _most(best: Series) -> str:
    """Say which machine has most of them."""
    return f"the most are {best.value:.0f} {short_name(best.text('model'))} on {best.text('host')}"
