"""A dashboard for Grafana, of gputop's own names of metrics: what each panel asks, and how it is
shown. What all panels of a kind have in Grafana's JSON is in the functions.

In a query `@` stands for the machines that are chosen at the top of the dashboard.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from string import ascii_uppercase
from typing import Any

Json = dict[str, Any]
_CHOSEN = 'instance=~"$instance"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ALARM = ("green", "red")
"""The colours of a number that should be 0: below 1, and from there on."""
_MACHINE, _GPU = "{{instance}}", "{{instance}} GPU {{gpu}}"
"""What a curve is called."""


def dashboard() -> str:
    """Return the dashboard, as Grafana imports it."""
    panels = [
        *_placed(_numbers(), 0, 4, 4),
        *_placed(_tables(), 4, 8, 8),
        _row("Machines", 12),
        *_placed(_of_machines(), 13, 12, 8),
        _row("Single GPUs", 37, _of_gpus()),
        _row("The exporters", 38, _of_exporters()),
    ]
    source = {"type": "datasource", "name": "datasource", "label": "Prometheus",
              "query": "prometheus", "refresh": 1}  # fmt: skip
    machines = {
        "type": "query", "name": "instance", "label": "Machine", "datasource": _SOURCE,
        "query": {"refId": "instance", "query": "label_values(gputop_up, instance)"},
        "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
    }  # fmt: skip
    whole = {
        "title": "GPUs (gputop)", "uid": "gputop",
        "description": "Made by gputop export --dashboard, for its own names of metrics.",
        "tags": ["gpu", "gputop"], "schemaVersion": 39, "version": 1, "editable": True,
        "graphTooltip": 1, "timezone": "browser", "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"}, "annotations": {"list": []}, "links": [],
        "templating": {"list": [source, machines]},
        "panels": _with_ids(panels, count(1)),
    }  # fmt: skip
    return json.dumps(whole, indent=2) + "\n"


def _numbers() -> Iterator[Json]:
    yield _number("GPUs", "All that are known, whether they answer or not.",
                  "count(gputop_gpu_up{@})", "blue")  # fmt: skip
    yield _number("Free",
                  "Healthy, with nobody on them, not reserved, held by no job and not at work.",
                  "sum(gputop_gpu_free{@})", "green")  # fmt: skip
    yield _number("Users", "Whose processes compute. No data with --no-users.",
                  'count(count by (user) (gputop_user_processes{@, user!~"[(].*"}))'
                  " or (sum(gputop_gpu_users{@}) == 0)", "blue")  # fmt: skip
    yield _number("Held, and idle for an hour",
                  "GPUs that somebody holds, and that have done nothing for an hour or more.",
                  "sum((gputop_gpu_idle_for_seconds{@} > bool 3600)"
                  " * on (job, instance, uuid) (gputop_gpu_users{@} > bool 0))",
                  "orange")  # fmt: skip
    yield _number("Silent or lost GPUs", "They do not answer, or the driver has lost them.",
                  "sum(gputop_gpu_up{@} == bool 0)", *_ALARM)  # fmt: skip
    yield _number("Machines not known",
                  "The exporter is not scraped, or the driver cannot be read: nothing is known of"
                  " the GPUs there.",
                  "sum((up{@} == bool 0) and on (job, instance)"
                  " present_over_time(gputop_up{@}[1d]))"
                  " + (sum(gputop_up{@} == bool 0) or vector(0))", *_ALARM)  # fmt: skip


def _tables() -> Iterator[Json]:
    yield _table("Free GPUs", "By machine and model.",
                 "sort_desc(sum by (instance, model) (gputop_gpu_free{@}"
                 " * on (job, instance, uuid) group_left (model) gputop_gpu_info{@}))",
                 ("instance", "model", "Value"), "free")  # fmt: skip
    yield _table("Held longest without work",
                 "With the user, unless the exporter runs with --no-users.",
                 "topk(20, (gputop_user_processes{@} ^ 0) * on (job, instance, uuid) group_left ()"
                 " gputop_gpu_idle_for_seconds{@} or on (job, instance, uuid)"
                 " (gputop_gpu_idle_for_seconds{@} and (gputop_gpu_users{@} > 0)))",
                 ("instance", "gpu", "user", "Value"), "idle for", "s")  # fmt: skip
    yield _table("What needs attention",
                 "Errors and warnings: gputop help health says what to do about each code.",
                 'sort_desc(gputop_gpu_findings{@, level=~"error|warning"})',
                 ("instance", "gpu", "level", "code"))  # fmt: skip


def _of_machines() -> Iterator[Json]:
    yield _graph("Utilization", "The average of a machine's GPUs that answer.", "percentunit",
                 {_MACHINE: "avg by (instance) (gputop_gpu_utilization_ratio{@})"},
                 max=1)  # fmt: skip
    yield _graph("Memory in use", "Share of the memory of a machine's GPUs.", "percentunit",
                 {_MACHINE: "sum by (instance) (gputop_gpu_memory_used_bytes{@})"
                  " / sum by (instance) (gputop_gpu_memory_total_bytes{@})"}, max=1)  # fmt: skip
    yield _graph("GPUs of users", "A GPU that two users share counts for both.", "",
                 {"{{user}}": "count by (user) (gputop_user_processes{@})"},
                 stacked=True)  # fmt: skip
    yield _graph("GPU memory of users", "What their processes hold.", "bytes",
                 {"{{user}}": "sum by (user) (gputop_user_gpu_memory_bytes{@})"},
                 stacked=True)  # fmt: skip
    yield _graph("Power", "Of a machine's GPUs.", "watt",
                 {_MACHINE: "sum by (instance) (gputop_gpu_power_watts{@})"},
                 stacked=True)  # fmt: skip
    yield _graph("Clocks held back", "How many GPUs, and why.", "",
                 {"{{reason}}": "sum by (reason) (gputop_gpu_throttled{@})"})  # fmt: skip


def _of_gpus() -> Iterator[Json]:
    yield _graph("Utilization", "Share of time with work on the GPU.", "percentunit",
                 {_GPU: "gputop_gpu_utilization_ratio{@}"}, max=1)  # fmt: skip
    yield _graph("Memory in use", "Without what the driver keeps for itself.", "bytes",
                 {_GPU: "gputop_gpu_memory_used_bytes{@}"})  # fmt: skip
    yield _graph("SMs with work", "Hopper and later.", "percentunit",
                 {_GPU: "gputop_gpu_activity_sm_ratio{@}"}, max=1)  # fmt: skip
    yield _graph("Tensor cores", "Share of time in use; Hopper and later.", "percentunit",
                 {_GPU: "gputop_gpu_activity_tensor_ratio{@}"}, max=1)  # fmt: skip
    yield _graph("Temperature", "Of the GPU's core.", "celsius",
                 {_GPU: "gputop_gpu_temperature_celsius{@}"})  # fmt: skip
    yield _graph("Power", "Drawn by the board.", "watt",
                 {_GPU: "gputop_gpu_power_watts{@}"})  # fmt: skip
    yield _graph("SM clock", "", "hertz", {_GPU: "gputop_gpu_sm_clock_hertz{@}"})
    yield _graph("PCIe", "", "Bps",
                 {f"{_GPU} received": "gputop_gpu_pcie_rx_bytes_per_second{@}",
                  f"{_GPU} sent": "gputop_gpu_pcie_tx_bytes_per_second{@}"})  # fmt: skip


def _of_exporters() -> Iterator[Json]:
    yield _graph("Age of what they tell", "Since the machine was last read, at the scrape.", "s",
                 {_MACHINE: "gputop_reading_age_seconds{@}"})  # fmt: skip
    yield _graph("CPU", "Of the exporter, without the agent that reads the driver.", "percentunit",
                 {_MACHINE: "rate(process_cpu_seconds_total{@}[$__rate_interval])"})  # fmt: skip


def _number(title: str, about: str, query: str, color: str, from_1: str = "") -> Json:
    """Return a panel of a number in a colour, and perhaps in another one from 1 on."""
    steps: list[Json] = [{"color": color, "value": None}]
    steps += [{"color": from_1, "value": 1}] if from_1 else []
    reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    shown = {"reduceOptions": reduced, "colorMode": "value", "graphMode": "none"}
    colors = {"thresholds": {"mode": "absolute", "steps": steps}}
    return _panel("stat", title, about, [_now(query)], colors, shown)


def _table(
    title: str, about: str, query: str, columns: tuple[str, ...], value: str = "", unit: str = ""
) -> Json:
    """Return a panel with a row for each answer; `value`: what that column is called."""
    left_out = ["Time", "job", "__name__", "uuid", *([] if value else ["Value"])]
    organized = {
        "excludeByName": dict.fromkeys(left_out, True),
        "renameByName": {"Value": value} if value else {},
        "indexByName": {column: n for n, column in enumerate(columns)},
    }
    targets = [_now(query) | {"format": "table"}]
    panel = _panel("table", title, about, targets, {}, {"showHeader": True})
    if unit:
        of_value = {"matcher": {"id": "byName", "options": value}}
        panel["fieldConfig"]["overrides"] = [
            of_value | {"properties": [{"id": "unit", "value": unit}]}
        ]
    return panel | {"transformations": [{"id": "organize", "options": organized}]}


def _graph(
    title: str,
    about: str,
    unit: str,
    queries: Mapping[str, str],
    *,
    stacked: bool = False,
    **limits: int,
) -> Json:
    """Return a panel of curves over time from 0; `queries` by what their curves are called."""
    curves: Json = {"fillOpacity": 20 if stacked else 0, "lineWidth": 1, "showPoints": "never"}
    if stacked:
        curves["stacking"] = {"mode": "normal", "group": "A"}
    targets = [{"refId": ascii_uppercase[n], "expr": query, "legendFormat": legend}
               for n, (legend, query) in enumerate(queries.items())]  # fmt: skip
    axis = {**({"unit": unit} if unit else {}), "min": 0, **limits, "custom": curves}
    legend = {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"]}
    shown = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return _panel("timeseries", title, about, targets, axis, shown)


def _now(query: str) -> Json:
    return {"refId": "A", "expr": query, "instant": True, "range": False}


def _panel(
    kind: str, title: str, about: str, targets: list[Json], defaults: Json, options: Json
) -> Json:
    for target in targets:
        target["expr"] = target["expr"].replace("@", _CHOSEN)
    return {
        "type": kind, "title": title, **({"description": about} if about else {}),
        "datasource": _SOURCE, "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options,
    }  # fmt: skip


def _row(title: str, y: int, folded: Iterable[Json] = ()) -> Json:
    """Return a heading, with panels below it that are shown once it is opened."""
    panels = list(_placed(folded, y + 1, 12, 8))
    where = {"x": 0, "y": y, "w": 24, "h": 1}
    return {"type": "row", "title": title, "collapsed": bool(panels), "gridPos": where,
            "panels": panels}  # fmt: skip


def _placed(panels: Iterable[Json], top: int, width: int, height: int) -> Iterator[Json]:
    """Yield panels of a size with their places, as many beside each other as there is room for."""
    beside = 24 // width
    for n, panel in enumerate(panels):
        x, y = n % beside * width, top + n // beside * height
        yield panel | {"gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _with_ids(panels: Iterable[Json], ids: Iterator[int]) -> list[Json]:
    return [{"id": next(ids), **panel}
            | ({"panels": _with_ids(panel["panels"], ids)} if "panels" in panel else {})
            for panel in panels]  # fmt: skip
