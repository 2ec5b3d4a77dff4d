"""Queries for the cluster screen: sums that the server works out, and details of one page.

If the server has gputop's recording rules (`gputop export --rules`), their results are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property, partial
from threading import BoundedSemaphore

from gputop.deadline import Call, wait_for_all
from gputop.errors import SourceError
from gputop.model.fleet.cluster import Cluster, ClusterNode, ModelCount, NodeOrder, Quantiles
from gputop.model.machine.finding import Level
from gputop.model.machine.grouped import grouped
from gputop.model.machine.text import printable
from gputop.sources.prometheus.client import LONGEST, PrometheusClient, Series
from gputop.sources.prometheus.down import hosts_down
from gputop.sources.prometheus.exporters import (
    EXPORTERS,
    GPUTOP,
    UP,
    Exporter,
    Site,
    renamed,
    selector,
)

_AT_ONCE = 4
"""Queries at a time: a server answers only some at once, and others ask it as well."""
_TIMEOUT = 30.0
"""Seconds for all queries of a refresh."""
_MOST_HANGING = 16
_MOST_LABELS = 1 << 18
"""Labels and series in all answers of a refresh: what they take is kept at the same time."""
_MOST_DOWN = 50
_MOST_USERS = 20
_QUANTILES = ("0.1", "0.5", "0.9")
_NUMBER = 1e15
"""Larger values are dropped: no sum of ours comes near."""
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
"""The recording rules of gputop that are read."""


class ClusterQueries:
    """Asks a server for the machines of a site, as long as its exporters stay the same."""

    def __init__(
        self, client: PrometheusClient, site: Site, records: frozenset[str] = frozenset()
    ) -> None:
        """`records`: the recording rules that have results now; they are gputop's alone."""
        self.client, self.site = client, site
        self._records = records if site.exporters == (GPUTOP,) else frozenset()
        self._turns = BoundedSemaphore(_AT_ONCE)
        self._hanging: list[Call[list[Series]]] = []

    @cached_property
    def down(self) -> list[ClusterNode]:
        """The machines that nothing is known of, when that was first asked. SourceError."""
        return self.down_now()

    def down_now(self) -> list[ClusterNode]:
        """Return the machines that nothing is known of. SourceError."""
        return hosts_down(self.site, self.client, self.ask)

    def sums(self) -> Cluster:
        """Return the sums of the cluster, without nodes. SourceError."""
        answers = self.ask(self._sums())
        if not answers["gpus"] and self._records:
            self._records = frozenset()  # the rules are gone, or their server is
            answers = self.ask(self._sums())
        return self._cluster(answers, len(self.down))

    def hosts(self) -> list[str]:
        """Return the labels of all machines whose GPUs are known now, sorted. SourceError."""
        answer = self.ask({"hosts": f"count by (host) ({self._count()})"})["hosts"]
        return sorted(filter(None, map(host_of, answer)))

    def nodes(self, order: NodeOrder, count: int, matching: str = "") -> tuple[ClusterNode, ...]:
        """Return the first `count` machines with `matching` in their name, and such machines that
        are down: first in the order "worst", otherwise last. SourceError."""
        pattern = f"(?is).*{re.escape(matching)}.*" if matching else ""
        page = self.ask({"page": self._ordered(order, count, pattern)})
        ranked = sorted(page["page"], key=lambda series: (-series.value, host_of(series)))
        hosts = list(dict.fromkeys(filter(None, map(host_of, ranked))))
        details = self.ask(self._details(hosts)) if hosts else {}
        of_hosts = {name: grouped(answer, host_of) for name, answer in details.items()}
        nodes = [_node(host, of_hosts) for host in hosts]
        named = [node for node in self.down if matching.casefold() in node.host.casefold()]
        down = named[:_MOST_DOWN]
        return tuple([*down, *nodes] if order == "worst" else [*nodes, *down])

    def ask(self, wanted: Mapping[str, str]) -> dict[str, list[Series]]:
        """Return the answers to instant queries, by their names. SourceError."""
        self._hanging = [call for call in self._hanging if call.is_running]
        if len(self._hanging) >= _MOST_HANGING:
            raise self.client.error(f"{len(self._hanging)} queries were not answered yet")
        sizes = list[int]()
        calls = {name: Call(partial(self._query, text, sizes)) for name, text in wanted.items()}
        self._hanging += calls.values()
        if not wait_for_all(calls.values(), _TIMEOUT):
            raise self.client.error(f"no answer in {_TIMEOUT:g} s")
        return {name: call.result() for name, call in calls.items()}

    def _query(self, expression: str, sizes: list[int]) -> list[Series]:
        """Return an answer, and add its size to those of the others."""
        with self._turns:
            answer = self.client.query(expression)
        sizes.append(sum(1 + len(series.labels) for series in answer))
        if sum(sizes) > _MOST_LABELS:
            raise self.client.error(f"its answers have more than {_MOST_LABELS} labels")
        return answer

    def _sums(self) -> dict[str, str]:
        site, count = self.site, self._count()
        models = f"count by (model) ({site.of(Exporter.facts)})"
        free_models = f"sum by (model) ({site.of(Exporter.free_by_model)})"
        wanted = {
            "gpus": f"sum({count})",
            "hosts": f"count(max by (host) ({count}))",
            "free": f"sum({self._free()})",
            "models": self._record("models", models),
            "models_free": self._record("models_free", free_models),
            **{f"quantile {share}": self._quantile(share) for share in _QUANTILES},
        }
        if findings := self._findings(""):
            wanted["alarms"] = f"count({findings} == 2)"
        if users := self._users('user!~"[(].*"'):
            wanted["users"] = self._record("users", f"count(count by (user) ({users}))")
        return wanted

    def _count(self, hosts: str = "") -> str:
        """Return the expression of each machine's number of GPUs."""
        gpus = self.site.of(lambda exporter: exporter.gpus(hosts))
        return self._record("count", f"count by (host) ({gpus})", hosts)

    def _free(self, hosts: str = "") -> str:
        """Return the expression of each machine's number of free GPUs."""
        free = self.site.of(lambda exporter: exporter.free_gpus(hosts))
        return self._record("free", f"sum by (host) ({free})", hosts)

    def _quantile(self, share: str) -> str:
        if (record := RECORDS["quantiles"]) in self._records:
            return f'max({record}{{quantile="{share}"}})'
        return f"quantile({share}, {self.site.each(lambda exporter: exporter.utilization)})"

    def _users(self, matching: str = "", hosts: str = "") -> str:
        """Return the expression of each user on each GPU; empty if no exporter reports users."""
        return self.site.of(
            lambda of: of.users and of.of_gpus(of.users, hosts, "user", matching=matching)
        )

    def _details(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return the expressions for the machines of a page."""
        page = "|".join(map(re.escape, hosts))

        def each(of: str, value: Callable[[Exporter], str]) -> str:
            return f"{of} by (host) ({self.site.each(value, page)})"

        free = self.site.of(lambda exporter: exporter.free_gpus(page))
        wanted = {
            "gpus": f"count by (host) ({self.site.of(lambda exporter: exporter.gpus(page))})",
            "free": f"sum by (host) ({free})",
            "utilization": each("avg", lambda exporter: exporter.utilization),
            "used": each("sum", lambda exporter: exporter.memory_used),
            "total": each("sum", lambda exporter: exporter.memory_total),
            "age": self.site.age(page),
        }
        if findings := self._findings(page):
            wanted["level"] = findings
        if users := self._users(hosts=page):
            wanted["who"] = f"count by (host, user) ({users})"
        return wanted

    def _ordered(self, order: NodeOrder, count: int, hosts: str) -> str:
        """Return the expression of the first machines, with the value that orders them. Equal ones
        are ordered by load. A machine without values has a place, too: GPUs that hang have none."""
        there = f"(max by (host) ({self._count(hosts)}) * 0)"
        load = self.site.each(lambda exporter: exporter.utilization, hosts)
        load = self._record("utilization", f"avg by (host) ({load})", hosts)
        load = f"(max by (host) ({load}) or {there})"
        if order == "free":
            load = f"(max by (host) ({self._free(hosts)}) or {there} - 1) - {load} / 10"
        elif order == "worst" and (findings := self._findings(hosts)):
            load = f"({findings} or {there}) + {load} / 10"
        return f"topk({count}, {load})"

    def _findings(self, hosts: str) -> str:
        """Return the expression of the worst finding of each machine; empty if no exporter reports
        any."""
        raw = self.site.of(lambda of: of.findings and of.of_gpus(of.findings, hosts))
        return raw and f"max by (host) ({self._record('findings', raw, hosts)})"

    def _record(self, name: str, expression: str, hosts: str = "") -> str:
        """Return a recording rule's result if there is one, otherwise the expression."""
        record = RECORDS[name]
        if record not in self._records:
            return expression
        return renamed(f"{record}{{{selector('instance', hosts)}}}", "host", "instance")

    def _cluster(self, answers: Mapping[str, list[Series]], down: int) -> Cluster:
        return Cluster(
            exporter=self.site.name,
            gpus=_whole(number_of(answers["gpus"])) or 0,
            hosts=_whole(number_of(answers["hosts"])) or 0,
            down=down,
            free=_whole(number_of(answers["free"])),
            users=_counted(answers, "users"),
            alarms=_counted(answers, "alarms"),
            quantiles=_all_of([number_of(answers[f"quantile {share}"]) for share in _QUANTILES]),
            models=_models(answers),
            nodes=(),
        )


def _models(answers: Mapping[str, list[Series]]) -> tuple[ModelCount, ...]:
    free = {series.labels.get("model"): number_of([series]) for series in answers["models_free"]}
    models = [
        ModelCount(
            series.text("model") or "unknown model",
            _whole(number_of([series])) or 0,
            _whole(free.get(series.labels.get("model"))),
        )
        for series in answers["models"]
    ]
    return tuple(sorted(models, key=lambda model: (-model.gpus, model.model)))


def _node(host: str, details: Mapping[str, Mapping[str, list[Series]]]) -> ClusterNode:
    mine = {name: answer.get(host, []) for name, answer in details.items()}
    numbers = {name: number_of(series) for name, series in mine.items()}
    who = sorted(mine.get("who", ()), key=lambda series: -series.value)
    level: dict[float | None, Level] = {2: "error", 1: "warning"}
    return ClusterNode(
        host=printable(host, LONGEST),
        gpus=_whole(numbers["gpus"]),
        free=_whole(numbers["free"]),
        utilization=numbers["utilization"],
        memory_used=numbers["used"],
        memory_total=numbers["total"],
        users=tuple(filter(None, (series.text("user") for series in who[:_MOST_USERS]))),
        level=level.get(numbers.get("level")),
        age=numbers["age"],
    )


def host_of(series: Series) -> str:
    """Return the machine of a series that an expression of ours made."""
    return series.labels.get("host", "")


def find_site(client: PrometheusClient) -> ClusterQueries:
    """Return the queries for the exporters that have reported GPUs there in the last day, or that
    they cannot be read. SourceError."""
    names = [*RECORDS.values(), UP, *(exporter.present for exporter in EXPORTERS)]
    existing = client.values("__name__", f'{{__name__=~"{"|".join(names)}"}}')
    site = Site(tuple(filter(None, (_used(client, exporter, existing) for exporter in EXPORTERS))))
    if not site.exporters:
        raise SourceError(
            f"{printable(client.url, 100)} knows of no GPUs: it should scrape gputop export, "
            "dcgm-exporter, nvidia_gpu_exporter or nvitop-exporter"
        )
    records = [record for record in RECORDS.values() if record in existing]
    # The index also keeps results of rules that are gone.
    results = f'count by (__name__) ({{__name__=~"{"|".join(records)}"}})'
    live = client.query(results) if records else []
    have_results = frozenset(series.labels.get("__name__", "") for series in live)
    return ClusterQueries(client, site, have_results)


def _used(client: PrometheusClient, exporter: Exporter, existing: Set[str]) -> Exporter | None:
    """Return an exporter, with those of its labels for machines that are in use; None if there is
    none of it."""
    if exporter.present not in existing:
        return exporter if exporter is GPUTOP and UP in existing else None
    if len(exporter.hosts) == 1:
        return exporter
    used = [
        (label, where) for label, where in exporter.hosts
        if client.values("__name__", f"{exporter.present}{{{where}}}")
    ]  # fmt: skip
    return exporter._replace(hosts=tuple(used))


def number_of(series: Sequence[Series]) -> float | None:
    """Return the one value of an answer; None if it has none, or an impossible one."""
    value = series[0].value if series else math.nan
    return value if -_NUMBER < value < _NUMBER else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _counted(answers: Mapping[str, list[Series]], name: str) -> int | None:
    """Return a count, or None if it was not asked for; Prometheus gives no answer for 0."""
    return None if name not in answers else int(number_of(answers[name]) or 0)


def _all_of(values: Sequence[float | None]) -> Quantiles | None:
    low, middle, high = values
    return None if low is None or middle is None or high is None else (low, middle, high)
