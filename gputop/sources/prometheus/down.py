"""Machines that nothing is known of now, though their exporter is scraped or was: none leaves a
list in silence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gputop.model.fleet.cluster import ClusterNode
from gputop.model.machine.text import printable
from gputop.sources.prometheus.client import LONGEST, PrometheusClient, Series
from gputop.sources.prometheus.exporters import NONE, PROBLEM, UP, Exporter, Site, selector

_SEEN = "1h"
"""How long a machine is known that is not scraped any more, as one that was taken away."""
_GONE = "gone: there are no new values of it"
_UNREAD = "its NVIDIA driver cannot be read"
_PROBLEMS: Mapping[str, str] = {
    "library_not_found": "the driver's library (NVML) is not found",
    "driver_not_loaded": "the NVIDIA driver is not loaded",
    "version_mismatch": "the driver and its library (NVML) differ in version",
    "no_permission": "gputop may not open the GPUs there",
    "no_gpu": "the driver finds no GPU",
    "not_answering": "the NVIDIA driver does not answer",
    "agent_ended": "gputop's agent there has ended",
}
"""What `gputop_problem` says in its label `kind`."""


def hosts_down(
    site: Site,
    client: PrometheusClient,
    ask: Callable[[Mapping[str, str]], Mapping[str, Sequence[Series]]],
) -> list[ClusterNode]:
    """Return the machines that have no GPUs now, with the reason, in the order of their names: the
    driver cannot be read, the exporter does not answer, or it is not scraped any more. Left out is
    what another exporter reports. `ask` answers several queries. SourceError."""
    lost = _lost(site)
    answers = ask({**_of_targets(site, client), "lost": _counted("host, instance", lost)})
    reasons = _reasons(answers)
    again = ask(_seen_again(site, lost)) if answers["lost"] else {"here": (), "elsewhere": ()}
    here, elsewhere = (
        {series.labels.get("host") for series in again[name]} for name in ("here", "elsewhere")
    )
    down = dict[str, str]()
    for series in answers["lost"]:
        host, instance = (series.labels.get(label, "") for label in ("host", "instance"))
        reason = reasons.pop(instance, "")
        if host and host not in elsewhere and (reason or host not in here):
            down[host] = down.get(host) or reason
    for instance, reason in reasons.items():
        down.setdefault(instance, reason)
    nodes = [ClusterNode(printable(host, LONGEST), down[host] or _GONE) for host in down]
    return sorted(nodes, key=lambda node: node.host)


def _of_targets(site: Site, client: PrometheusClient) -> dict[str, str]:
    """Return the expressions of what is wrong with targets. SourceError."""
    names = "|".join([UP, *(exporter.present for exporter in site.exporters)])
    jobs = client.values("job", f'{{__name__=~"{names}"}}')
    matching = selector("job", "|".join(map(re.escape, sorted(jobs))))
    up = f"up{{{matching}}} == 0" if jobs else NONE
    return {"up": up, "unread": f"{UP} == 0", "kind": PROBLEM}


def _seen_again(site: Site, lost: Sequence[str]) -> dict[str, str]:
    """Return the expressions of those lost machines whose GPUs are known under another name, or
    from another exporter."""
    here = [f"({gone} and on (uuid) ({site.of_gpus()}))" for gone in lost]
    elsewhere = [
        f"({gone} and on (uuid) ({others}))"
        for gone, exporter in zip(lost, site.exporters, strict=True)
        if (others := site.of_gpus(but=exporter))
    ]
    return {"here": _counted("host", here), "elsewhere": _counted("host", elsewhere)}


def _counted(labels: str, expressions: Sequence[str]) -> str:
    return f"count by ({labels}) ({' or '.join(expressions) or NONE})"


def _gone(exporter: Exporter) -> str:
    """Return the expression of the GPUs that have been seen, of machines that have none now, with
    the target that had them."""
    seen = f"last_over_time({exporter.present}{{%s}}[{_SEEN}])"
    return f"({exporter.of_gpus(seen, '', 'instance')} unless on (host) ({exporter.gpus()}))"


def _lost(site: Site) -> list[str]:
    """Return what is gone of each exporter, but what an earlier one of its target had: they may
    name its machine differently."""
    gone = list(map(_gone, site.exporters))
    others = (" or ".join(gone[:number]) for number in range(len(gone)))
    return [f"({mine} unless on (instance, uuid) ({theirs or NONE}))"
            for mine, theirs in zip(gone, others, strict=True)]  # fmt: skip


def _reasons(answers: Mapping[str, Sequence[Series]]) -> dict[str, str]:
    """Return why targets have no GPUs, by their names."""

    def by_target(name: str) -> dict[str, Series]:
        return {series.labels.get("instance", ""): series for series in answers[name]}

    kinds = {target: series.labels.get("kind") for target, series in by_target("kind").items()}
    reasons = {
        target: f"down: {_PROBLEMS.get(kinds.get(target) or '', _UNREAD)}"
        for target in by_target("unread")
    }
    return reasons | dict.fromkeys(by_target("up"), "down: its exporter does not answer")
