"""What a server knows of the GPUs of one machine besides their values: whether they are free, who
is on them, what needs attention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from gputop.model.health.xids import xid_finding
from gputop.model.machine.finding import Finding, Level
from gputop.model.machine.frame import GpuReport
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.grouped import grouped
from gputop.model.machine.text import duration, printable
from gputop.sources.prometheus.client import LONGEST, Series
from gputop.sources.prometheus.exporters import Site
from gputop.sources.prometheus.queries import number_of

_MOST = 20
"""Names of each kind on a GPU."""
_XID = re.compile(r"XID (\d{1,4})", re.ASCII)
_ADVICE = "its own gputop has the details: open the host over ssh"

Answers = Mapping[str, Sequence[Series]]


def report_queries(site: Site, hosts: str) -> dict[str, str]:
    """Return the expressions whose answers `reports_of` takes. `hosts`: a pattern of machines."""
    return {
        "free": site.of(lambda exporter: exporter.free_gpus(hosts)),
        "reason": site.each(lambda exporter: exporter.reason, hosts, "reason"),
        "users": site.each(lambda exporter: exporter.users, hosts, "user"),
        "processes": site.each(lambda exporter: exporter.processes, hosts),
        "jobs": site.each(lambda exporter: exporter.jobs, hosts, "kind", "id", "user"),
        "watched": site.each(lambda exporter: exporter.watched, hosts),
        "codes": site.each(lambda exporter: exporter.codes, hosts, "level", "code"),
        "ages": site.each(lambda exporter: exporter.answer_age, hosts),
        "xids": site.each(lambda exporter: exporter.xids, hosts, "xid"),
    }


def reports_of(gpus: Iterable[Gpu], answers: Answers, now: float) -> dict[str, GpuReport]:
    """Return what is known of each GPU that has a UUID. `now`: seconds since the epoch."""
    parts = {name: _by_uuid(answer) for name, answer in answers.items()}
    return {
        uuid: _report(gpu, {name: of_uuid.get(uuid, []) for name, of_uuid in parts.items()}, now)
        for gpu in gpus
        if (uuid := gpu.uuid) is not None
    }


def _by_uuid(answer: Iterable[Series]) -> dict[str | None, list[Series]]:
    """Return the series of each GPU, the greatest first."""
    greatest_first = sorted(answer, key=lambda series: -series.value)
    return grouped(greatest_first, lambda series: series.labels.get("uuid"))


def _report(gpu: Gpu, of_gpu: Answers, now: float) -> GpuReport:
    users = _names(of_gpu["users"], "user")
    free, findings = of_gpu["free"], None
    if of_gpu["watched"]:
        findings = tuple(_finding(gpu, series, of_gpu["xids"], now) for series in of_gpu["codes"])
    return GpuReport(
        free=bool(free[0].value) if free else None,
        reason=next(iter(_names(of_gpu["reason"], "reason")), ""),
        users=users if users or of_gpu["processes"] else None,
        jobs=tuple(map(_job, of_gpu["jobs"][:_MOST])),
        findings=findings,
    )


def _names(answer: Sequence[Series], label: str) -> tuple[str, ...]:
    return tuple(filter(None, (series.text(label) for series in answer[:_MOST])))


def _job(series: Series) -> str:
    return f"{series.text('kind')} {series.text('id')} ({series.text('user')})"


def _finding(gpu: Gpu, series: Series, xids: Sequence[Series], now: float) -> Finding:
    """Return a finding in words: what an XID means, and when it came if that is reported."""
    code = printable(series.labels.get("code", f"XID {series.value:.0f}"), LONGEST)
    given = series.labels.get("level", "error")
    level: Level = next((level for level in get_args(Level) if level == given), "error")
    if (xid := _XID.fullmatch(code)) is None:
        return Finding(level, code, f"reported as {code}", _ADVICE)
    meaning = xid_finding(int(xid[1]))
    at = number_of([other for other in xids if other.labels.get("xid") == xid[1]])
    ago = "" if at is None else f", {duration(max(0.0, now - at))} ago"
    advice = meaning.advice.format(index=gpu.index)
    return Finding(level, code, f"{code}{ago}: {meaning.text}", advice)
