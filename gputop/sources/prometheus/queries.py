"""The queries of the cluster screen: sums that the server works out, details of one page alone.

Where gputop's recording rules are there (`gputop export --rules`), their results are read instead.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from gputop.errors import SourceError
from gputop.model.fleet.cluster import Cluster, ModelCount, Node, NodeOrder
from gputop.model.machine.text import printable
from gputop.sources.prometheus.client import PrometheusClient, Series
from gputop.sources.prometheus.exporters import DCGM, EXPORTERS, GPUTOP, Exporter

_AT_ONCE = 4
"""Queries: a server answers some at a time, and others ask it as well."""
_LONGEST = 64
_MOST_DOWN = 50
_MOST_USERS = 20
RECORDS = {
    "count": "instance:gputop_gpu:count",
    "free": "instance:gputop_gpu_free:sum",
    "utilization": "instance:gputop_gpu_utilization_ratio:avg",
    "findings": "instance:gputop_gpu_findings:worst",
    "models": "model:gputop_gpu:count",
    "models_free": "model:gputop_gpu_free:sum",
    "users": "gputop:user:count",
    "quantiles": "gputop:gpu_utilization_ratio:quantile",
}
"""Those of gputop's recording rules that are read."""


class ClusterQueries:
    """Asks a server for the machines of one exporter."""

    def __init__(
        self, client: PrometheusClient, exporter: Exporter, records: frozenset[str]
    ) -> None:
        self.client, self.exporter = client, exporter
        self._records = records if exporter is GPUTOP else frozenset()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "query")

    def cluster(self, order: NodeOrder, count: int, matching: str = "") -> Cluster:
        """Return all of it in sums, with the first `count` nodes whose name has `matching` in it.

        SourceError.
        """
        selector = (
            "" if not matching else _selector(self.exporter.host, f".*{re.escape(matching)}.*")
        )
        wanted = {
            **self._sums(),
            "page": self._ordered(order, count, selector),
            "jobs": f"count by (job) ({self.exporter.present})",
        }
        found = self._ask(wanted)
        hosts = list(dict.fromkeys(filter(None, (self._host_of(one) for one in found["page"]))))
        details = self._ask(self._details(hosts)) if hosts else {}
        down = self._down(found["jobs"], matching)
        return self._assemble(found, details, hosts, down)

    def _sums(self) -> dict[str, str]:
        exporter = self.exporter
        gpus = exporter.of_gpus(f"{exporter.present}{{%s}}")
        count = self._record("count", f"count by ({exporter.host}) ({gpus})")
        free = self._record("free", f"sum by ({exporter.host}) ({exporter.free_gpus()})")
        wanted = {
            "gpus": f"sum({count})",
            "hosts": f"count({count})",
            "free": f"sum({free})",
            "models": self._record(
                "models", f"sum by ({exporter.model}) ({exporter.with_model(f'{gpus} * 0 + 1')})"
            ),
            "models_free": self._record(
                "models_free",
                f"sum by ({exporter.model}) ({exporter.with_model(exporter.free_gpus())})",
            ),
        }
        utilization = exporter.of_gpus(exporter.utilization)
        if RECORDS["quantiles"] in self._records:
            wanted["quantiles"] = RECORDS["quantiles"]
        else:
            wanted.update(
                (f"quantile {share}", f"quantile({share}, {utilization})")
                for share in ("0.1", "0.5", "0.9")
            )
        if exporter.findings is not None:
            wanted["alarms"] = f"count({self._findings('')} == 2)"
        if exporter.users is not None:
            users = f"count(count by (user) ({exporter.users.replace('%s', '')}))"
            wanted["users"] = self._record("users", users)
        return wanted

    def _details(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return what is wanted of the machines of a page."""
        exporter, host = self.exporter, self.exporter.host
        selector = _selector(host, "|".join(map(re.escape, hosts)))
        gpus = exporter.of_gpus(f"{exporter.present}{{%s}}", selector)
        wanted = {
            "gpus": f"count by ({host}) ({gpus})",
            "free": f"sum by ({host}) ({exporter.free_gpus(selector)})",
            "utilization": f"avg by ({host}) ({exporter.of_gpus(exporter.utilization, selector)})",
            "used": f"sum by ({host}) ({exporter.of_gpus(exporter.memory_used, selector)})",
            "total": f"sum by ({host}) ({exporter.of_gpus(exporter.memory_total, selector)})",
            "age": f"max by ({host}) (time() - timestamp({exporter.present}{{{selector}}}))",
        }
        if exporter.findings is not None:
            wanted["level"] = self._findings(selector)
        if exporter.users is not None:
            wanted["who"] = f"count by ({host}, user) ({exporter.users.replace('%s', selector)})"
        if exporter.reading_age is not None:
            age = exporter.reading_age.replace("%s", selector)
            wanted["reading"] = f"max by ({host}) ({age})"
        return wanted

    def _ordered(self, order: NodeOrder, count: int, selector: str) -> str:
        """Return the machines that stand first, with what they stand by. What is equal is put in
        order by the load, so that it stays in its place."""
        exporter, host = self.exporter, self.exporter.host
        load = self._record(
            "utilization",
            f"avg by ({host}) ({exporter.of_gpus(exporter.utilization, selector)})",
            selector,
        )
        load = f"max by ({host}) ({load})"
        if order == "free":
            free = f"sum by ({host}) ({exporter.free_gpus(selector)})"
            load = f"max by ({host}) ({self._record('free', free, selector)}) - {load} / 10"
        elif order == "worst" and exporter.findings is not None:
            load = f"({self._findings(selector)} + on ({host}) {load} / 10) or {load} / 10"
        return f"topk({count}, {load})"

    def _findings(self, selector: str) -> str:
        """Return the worst finding of each machine."""
        host = self.exporter.host
        raw = f"({self.exporter.findings or ''})".replace("%s", selector)
        recorded = self._record("findings", raw, selector)
        return f"max by ({host}) ({recorded})"

    def _record(self, name: str, expression: str, selector: str = "") -> str:
        """Return the result of a recording rule where there is one, else the expression."""
        record = RECORDS[name]
        return f"{record}{{{selector}}}" if record in self._records else expression

    def _ask(self, wanted: Mapping[str, str]) -> dict[str, list[Series]]:
        answers = self._pool.map(self.client.query, wanted.values())
        return dict(zip(wanted, answers, strict=True))

    def _down(self, jobs: Sequence[Series], matching: str) -> tuple[list[Node], int | None]:
        """Return machines whose exporter does not answer, and how many these are; None where the
        server does not scrape itself, as behind a remote write."""
        names = [job.labels.get("job", "") for job in jobs]
        selector = _selector("job", "|".join(map(re.escape, filter(None, names))))
        if not any(names) or not self.client.query(f"count(up{{{selector}}})"):
            return [], None
        count = _number(self.client.query(f"count(up{{{selector}}} == 0)"))
        if not count:
            return [], 0
        matched = f",{_selector('instance', f'.*{re.escape(matching)}.*')}" if matching else ""
        down = self.client.query(f"topk({_MOST_DOWN}, up{{{selector}{matched}}} == 0)")
        hosts = sorted(printable(series.labels.get("instance", ""), _LONGEST) for series in down)
        return [Node(host, up=False) for host in hosts], int(count)

    def _assemble(
        self,
        found: Mapping[str, list[Series]],
        details: Mapping[str, list[Series]],
        hosts: Sequence[str],
        down: tuple[list[Node], int | None],
    ) -> Cluster:
        free = _number(found["free"])
        nodes = [self._node(host, details) for host in hosts]
        return Cluster(
            exporter=self.exporter.name,
            time=found["gpus"][0].points[-1][0] if found["gpus"] else math.nan,
            gpus=int(_number(found["gpus"]) or 0),
            hosts=int(_number(found["hosts"]) or 0),
            down=down[1],
            free=None if free is None else int(free),
            users=_count(found, "users"),
            alarms=_count(found, "alarms"),
            quantiles=_quantiles(found),
            models=self._models(found),
            nodes=(*down[0], *nodes),
        )

    def _models(self, found: Mapping[str, list[Series]]) -> tuple[ModelCount, ...]:
        label = self.exporter.model
        free = {series.labels.get(label): int(series.value) for series in found["models_free"]}
        models = [
            ModelCount(
                printable(series.labels.get(label, ""), _LONGEST),
                int(series.value),
                free.get(series.labels.get(label)),
            )
            for series in found["models"]
        ]
        return tuple(sorted(models, key=lambda model: (-model.gpus, model.model)))

    def _node(self, host: str, details: Mapping[str, list[Series]]) -> Node:
        """Return a machine of the page."""
        mine = {
            name: [series for series in answer if self._host_of(series) == host]
            for name, answer in details.items()
        }
        numbers = {name: _number(series) for name, series in mine.items()}
        who = sorted(mine.get("who", ()), key=lambda series: -series.value)
        users = [printable(series.labels.get("user", ""), _LONGEST) for series in who]
        gpus, free, age = numbers["gpus"], numbers["free"], numbers["age"]
        level: dict[float | None, Literal["alarm", "notice"]] = {2: "alarm", 1: "notice"}
        return Node(
            host=printable(host, _LONGEST),
            up=True,
            gpus=None if gpus is None else int(gpus),
            free=None if free is None else int(free),
            utilization=numbers["utilization"],
            memory_used=numbers["used"],
            memory_total=numbers["total"],
            users=tuple(users[:_MOST_USERS]),
            level=level.get(numbers.get("level")),
            age=None if age is None else age + (numbers.get("reading") or 0),
        )

    def _host_of(self, series: Series) -> str:
        return series.labels.get(self.exporter.host, "")


def find_exporter(client: PrometheusClient) -> ClusterQueries:
    """Return the queries for the exporter that tells of most GPUs there. SourceError."""
    names = client.names(f'{{__name__=~"{"|".join([*RECORDS.values(), *_presence()])}"}}')
    counts = {}
    for exporter in EXPORTERS:
        if exporter.present in names:
            counts[exporter] = _number(client.query(f"count({exporter.present})")) or 0
    if not any(counts.values()):
        raise SourceError(
            f"{printable(client.url, 100)} knows of no GPUs: it should scrape gputop export, "
            "dcgm-exporter, nvidia_gpu_exporter or nvitop-exporter"
        )
    best = max(counts, key=lambda exporter: counts[exporter])
    if best is DCGM and "hostname" not in client.label_names(DCGM.present):
        best = DCGM._replace(host="Hostname")
    return ClusterQueries(client, best, frozenset(names))


def _presence() -> Iterable[str]:
    return (exporter.present for exporter in EXPORTERS)


def _selector(label: str, pattern: str) -> str:
    """Return a selector of the series whose label matches all of an RE2 pattern."""
    return f"{label}=~{json.dumps(pattern, ensure_ascii=False)}"


def _number(series: Sequence[Series]) -> float | None:
    """Return the one value of an answer; None where there is none."""
    value = series[0].value if series else math.nan
    return value if math.isfinite(value) else None


def _count(found: Mapping[str, list[Series]], name: str) -> int | None:
    """Return what was counted: of nothing Prometheus gives no answer; None where nobody asked."""
    return None if name not in found else int(_number(found[name]) or 0)


def _quantiles(found: Mapping[str, list[Series]]) -> tuple[float, float, float] | None:
    if "quantiles" in found:
        by_share = {series.labels.get("quantile"): series.value for series in found["quantiles"]}
        values = [by_share.get(share) for share in ("0.1", "0.5", "0.9")]
    else:
        values = [_number(found[f"quantile {share}"]) for share in ("0.1", "0.5", "0.9")]
    low, middle, high = values
    if low is None or middle is None or high is None:
        return None
    return low, middle, high
