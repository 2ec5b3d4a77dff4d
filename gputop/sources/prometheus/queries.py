"""Queries for the cluster screen: sums that the server works out, and details of one page.

If the server has gputop's recording rules (`gputop export --rules`), their results are read.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from threading import BoundedSemaphore

from gputop.deadline import Call, wait_for_all
from gputop.errors import SourceError
from gputop.model.fleet.cluster import Cluster, ClusterNode, ModelCount, NodeOrder, Quantiles
from gputop.model.machine.finding import Level
from gputop.model.machine.text import printable
from gputop.sources.prometheus.client import PrometheusClient, Series
from gputop.sources.prometheus.exporters import DCGM, EXPORTERS, GPUTOP, Exporter

_AT_ONCE = 4
"""Queries at a time: a server answers only some at once, and others ask it as well."""
_TIMEOUT = 30.0
"""Seconds for all queries of a refresh."""
_MOST_HANGING = 16
_MOST_LABELS = 1 << 18
"""Labels and series in all answers of a refresh: what they take is kept at the same time."""
LONGEST = 64
"""Characters of a name that is shown."""
_MOST_DOWN = 50
_MOST_USERS = 20
_DAY = 86400.0
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
    """Asks a server for the machines of one exporter."""

    def __init__(
        self, client: PrometheusClient, exporter: Exporter, records: frozenset[str] = frozenset()
    ) -> None:
        """`records`: the recording rules that have results now."""
        self.client, self.exporter = client, exporter
        self._records = records if exporter is GPUTOP else frozenset()
        self._turns = BoundedSemaphore(_AT_ONCE)
        self._hanging: list[Call[list[Series]]] = []

    def sums(self) -> Cluster:
        """Return the sums of the cluster, without nodes. SourceError."""
        answers = self.ask(self._sums())
        if not answers["gpus"] and self._records:
            self._records = frozenset()  # the rules are gone, or their server is
            answers = self.ask(self._sums())
        down = None
        if jobs := self._jobs():
            up = self.ask({"all": f"count(up{{{jobs}}})", "down": f"count(up{{{jobs}}} == 0)"})
            down = number_of(up["down"]) or 0 if up["all"] else None
        return self._cluster(answers, None if down is None else int(down))

    def nodes(self, order: NodeOrder, count: int, matching: str = "") -> tuple[ClusterNode, ...]:
        """Return the first `count` machines with `matching` in their name, and such machines that
        are down: first in the order "worst", otherwise last. SourceError."""
        host, part = self.exporter.host, f"(?is).*{re.escape(matching)}.*"
        page = self.ask({"page": self._ordered(order, count, selector(host, part, matching))})
        ranked = sorted(page["page"], key=lambda series: (-series.value, self._host_of(series)))
        hosts = list(dict.fromkeys(filter(None, map(self._host_of, ranked))))
        details = self.ask(self._details(hosts)) if hosts else {}
        by_host = {name: self._by_host(answer) for name, answer in details.items()}
        nodes = [self._node(host, by_host) for host in hosts]
        down = self._down(part, matching)
        return tuple([*down, *nodes] if order == "worst" else [*nodes, *down])

    def ask(self, wanted: Mapping[str, str]) -> dict[str, list[Series]]:
        """Return the answers to instant queries, by their names. SourceError."""
        self._hanging = [call for call in self._hanging if call.is_running]
        if len(self._hanging) >= _MOST_HANGING:
            raise self._no_answer(f"{len(self._hanging)} queries were not answered yet")
        sizes = list[int]()
        calls = {name: Call(partial(self._query, text, sizes)) for name, text in wanted.items()}
        self._hanging += calls.values()
        if not wait_for_all(calls.values(), _TIMEOUT):
            raise self._no_answer(f"no answer in {_TIMEOUT:g} s")
        return {name: call.result() for name, call in calls.items()}

    def _query(self, expression: str, sizes: list[int]) -> list[Series]:
        """Return an answer, and add its size to those of the others."""
        with self._turns:
            answer = self.client.query(expression)
        sizes.append(sum(1 + len(series.labels) for series in answer))
        if sum(sizes) > _MOST_LABELS:
            raise self._no_answer(f"its answers have more than {_MOST_LABELS} labels")
        return answer

    def _no_answer(self, why: str) -> SourceError:
        return SourceError(f"{printable(self.client.url, 100)}: {why}")

    def _sums(self) -> dict[str, str]:
        exporter = self.exporter
        count = self._count()
        free = self._record("free", f"sum by ({exporter.host}) ({exporter.free_gpus()})")
        of_models = exporter.of_gpus(
            f"{exporter.info or exporter.present}{{%s}}", "", exporter.model
        )
        free_models = f"sum by ({exporter.model}) ({exporter.with_model(exporter.free_gpus())})"
        wanted = {
            "gpus": f"sum({count})",
            "hosts": f"count(max by ({exporter.host}) ({count}))",
            "free": f"sum({free})",
            "models": self._record("models", f"count by ({exporter.model}) ({of_models})"),
            "models_free": self._record("models_free", free_models),
        }
        wanted.update((f"quantile {share}", text) for share, text in self._quantiles().items())
        if exporter.findings is not None:
            wanted["alarms"] = f"count({self._findings('')} == 2)"
        if exporter.users is not None:
            named = exporter.users.replace("%s", 'user!~"[(].*"')
            users = f"count(count by (user) ({named}))"
            wanted["users"] = self._record("users", users)
        return wanted

    def _count(self, hosts: str = "") -> str:
        """Return the expression of each machine's number of GPUs."""
        exporter = self.exporter
        gpus = exporter.of_gpus(f"{exporter.present}{{%s}}", hosts)
        return self._record("count", f"count by ({exporter.host}) ({gpus})", hosts)

    def _quantiles(self) -> dict[str, str]:
        record, utilization = RECORDS["quantiles"], self.exporter.of_gpus(self.exporter.utilization)
        if record in self._records:
            return {share: f'max({record}{{quantile="{share}"}})' for share in _QUANTILES}
        return {share: f"quantile({share}, {utilization})" for share in _QUANTILES}

    def _details(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return the expressions for the machines of a page."""
        exporter, host = self.exporter, self.exporter.host
        page = selector(host, "|".join(map(re.escape, hosts)))
        gpus = exporter.of_gpus(f"{exporter.present}{{%s}}", page)
        wanted = {
            "gpus": f"count by ({host}) ({gpus})",
            "free": f"sum by ({host}) ({exporter.free_gpus(page)})",
            "utilization": f"avg by ({host}) ({exporter.of_gpus(exporter.utilization, page)})",
            "used": f"sum by ({host}) ({exporter.of_gpus(exporter.memory_used, page)})",
            "total": f"sum by ({host}) ({exporter.of_gpus(exporter.memory_total, page)})",
            **{name: f"max by ({host}) ({age})" for name, age in exporter.ages(page).items()},
        }
        if exporter.findings is not None:
            wanted["level"] = self._findings(page)
        if exporter.users is not None:
            wanted["who"] = f"count by ({host}, user) ({exporter.users.replace('%s', page)})"
        return wanted

    def _ordered(self, order: NodeOrder, count: int, hosts: str) -> str:
        """Return the expression of the first machines, with the value that orders them. Equal ones
        are ordered by load. A machine without values has a place, too: GPUs that hang have none."""
        exporter, host = self.exporter, self.exporter.host
        there = f"(max by ({host}) ({self._count(hosts)}) * 0)"
        utilization = f"avg by ({host}) ({exporter.of_gpus(exporter.utilization, hosts)})"
        load = self._record("utilization", utilization, hosts)
        load = f"(max by ({host}) ({load}) or {there})"
        if order == "free":
            free = f"sum by ({host}) ({exporter.free_gpus(hosts)})"
            free = f"max by ({host}) ({self._record('free', free, hosts)})"
            load = f"({free} or {there} - 1) - {load} / 10"
        elif order == "worst" and exporter.findings is not None:
            load = f"({self._findings(hosts)} or {there}) + {load} / 10"
        return f"topk({count}, {load})"

    def _findings(self, hosts: str) -> str:
        """Return the expression of the worst finding of each machine."""
        host = self.exporter.host
        raw = f"({self.exporter.findings or ''})".replace("%s", hosts)
        recorded = self._record("findings", raw, hosts)
        return f"max by ({host}) ({recorded})"

    def _record(self, name: str, expression: str, hosts: str = "") -> str:
        """Return a recording rule's result if there is one, otherwise the expression."""
        record = RECORDS[name]
        return f"{record}{{{hosts}}}" if record in self._records else expression

    def _jobs(self) -> str:
        """Return the selector of the jobs that had these metrics in the last day, even if all of
        their targets are down now; empty if the series have no job."""
        jobs = self.client.values("job", self.exporter.present, _DAY)
        return selector("job", "|".join(map(re.escape, sorted(jobs)))) if jobs else ""

    def _down(self, part: str, matching: str) -> list[ClusterNode]:
        """Return machines whose exporter does not answer."""
        if not (jobs := self._jobs()):
            return []
        matched = f",{selector('instance', part)}" if matching else ""
        down = self.client.query(f"topk({_MOST_DOWN}, up{{{jobs}{matched}}} == 0)")
        hosts = sorted(printable(series.labels.get("instance", ""), LONGEST) for series in down)
        return [ClusterNode(host, up=False) for host in hosts]

    def _cluster(self, answers: Mapping[str, list[Series]], down: int | None) -> Cluster:
        return Cluster(
            exporter=self.exporter.name,
            gpus=_whole(number_of(answers["gpus"])) or 0,
            hosts=_whole(number_of(answers["hosts"])) or 0,
            down=down,
            free=_whole(number_of(answers["free"])),
            users=_counted(answers, "users"),
            alarms=_counted(answers, "alarms"),
            quantiles=_all_of([number_of(answers[f"quantile {share}"]) for share in _QUANTILES]),
            models=self._models(answers),
            nodes=(),
        )

    def _models(self, answers: Mapping[str, list[Series]]) -> tuple[ModelCount, ...]:
        label = self.exporter.model
        free = {series.labels.get(label): number_of([series]) for series in answers["models_free"]}
        models = [
            ModelCount(
                printable(series.labels.get(label, ""), LONGEST) or "unknown model",
                _whole(number_of([series])) or 0,
                _whole(free.get(series.labels.get(label))),
            )
            for series in answers["models"]
        ]
        return tuple(sorted(models, key=lambda model: (-model.gpus, model.model)))

    def _node(self, host: str, details: Mapping[str, Mapping[str, list[Series]]]) -> ClusterNode:
        mine = {name: answer.get(host, []) for name, answer in details.items()}
        numbers = {name: number_of(series) for name, series in mine.items()}
        who = sorted(mine.get("who", ()), key=lambda series: -series.value)
        users = [printable(series.labels.get("user", ""), LONGEST) for series in who]
        level: dict[float | None, Level] = {2: "error", 1: "warning"}
        return ClusterNode(
            host=printable(host, LONGEST),
            up=True,
            gpus=_whole(numbers["gpus"]),
            free=_whole(numbers["free"]),
            utilization=numbers["utilization"],
            memory_used=numbers["used"],
            memory_total=numbers["total"],
            users=tuple(filter(None, users[:_MOST_USERS])),
            level=level.get(numbers.get("level")),
            age=age_of(numbers),
        )

    def _by_host(self, answer: Sequence[Series]) -> dict[str, list[Series]]:
        by_host: defaultdict[str, list[Series]] = defaultdict(list)
        for series in answer:
            by_host[self._host_of(series)].append(series)
        return by_host

    def _host_of(self, series: Series) -> str:
        return series.labels.get(self.exporter.host, "")


def find_exporter(client: PrometheusClient) -> ClusterQueries:
    """Return the queries for the exporter that reports most GPUs there. SourceError."""
    wanted = [*RECORDS.values(), *(exporter.present for exporter in EXPORTERS)]
    existing = client.names(f'{{__name__=~"{"|".join(wanted)}"}}')
    counts = {
        exporter: number_of(client.query(f"count({exporter.present})")) or 0
        for exporter in EXPORTERS
        if exporter.present in existing
    }
    if not counts:
        raise SourceError(
            f"{printable(client.url, 100)} knows of no GPUs: it should scrape gputop export, "
            "dcgm-exporter, nvidia_gpu_exporter or nvitop-exporter"
        )
    best = max(counts, key=lambda exporter: counts[exporter])
    if best is DCGM and "hostname" not in client.label_names(DCGM.present):
        best = DCGM._replace(host="Hostname")
    records = [record for record in RECORDS.values() if record in existing and best is GPUTOP]
    # The index also keeps results of rules that are gone.
    results = f'count by (__name__) ({{__name__=~"{"|".join(records)}"}})'
    live = client.query(results) if records else []
    names = frozenset(series.labels.get("__name__", "") for series in live)
    return ClusterQueries(client, best, names)


def selector(label: str, pattern: str, wanted: str = "all") -> str:
    """Return a selector of the series whose whole label matches an RE2 pattern; empty if `wanted`
    is."""
    return f"{label}=~{json.dumps(pattern, ensure_ascii=False)}" if wanted else ""


def selector_of(label: str, text: str) -> str:
    """Return a selector of the series whose label is this text."""
    return f"{label}={json.dumps(text, ensure_ascii=False)}"


def number_of(series: Sequence[Series]) -> float | None:
    """Return the one value of an answer; None if it has none, or an impossible one."""
    value = series[0].value if series else math.nan
    return value if -_NUMBER < value < _NUMBER else None


def age_of(numbers: Mapping[str, float | None]) -> float | None:
    """Return the seconds since GPUs were read, from the answers to `Exporter.ages`."""
    age = numbers["age"]
    return None if age is None else age + (numbers.get("reading") or 0)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _counted(answers: Mapping[str, list[Series]], name: str) -> int | None:
    """Return a count, or None if it was not asked for; Prometheus gives no answer for 0."""
    return None if name not in answers else int(number_of(answers[name]) or 0)


def _all_of(values: Sequence[float | None]) -> Quantiles | None:
    low, middle, high = values
    return None if low is None or middle is None or high is None else (low, middle, high)
