"""A real Prometheus scrapes `gputop export`, and answers what people ask of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gputop.commands.export import rules
from gputop.export.prometheus.dashboard import dashboard
from tests.conftest import MachineFactory
from tests.driver import Machine
from tests.export.driving import Exporter
from tests.prometheus import Prometheus, promtool, scraping

pytestmark = pytest.mark.system

DASHBOARD = {
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})': 1,
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})': 1,
    'DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000': 8,
    'DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}': 8,
    'DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}': 8,
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}': 8,
    # The same of NVIDIA's newer edition
    'max(DCGM_FI_DEV_GPU_TEMP{Hostname=~"$host", gpu=~"$gpu"}) by (Hostname, gpu, uuid)': 8,
    'sum(max(DCGM_FI_DEV_POWER_USAGE{Hostname=~"$host", gpu=~"$gpu"}) by (gpu))': 1,
    'max(DCGM_FI_DEV_SM_CLOCK{Hostname=~"$host"} * 1000000) by (Hostname, UUID, gpu)': 8,
    "max(DCGM_FI_PROF_GR_ENGINE_ACTIVE{hostname=~'$host'}) by (hostname, gpu, GPU_I_ID)": 8,
    'max(DCGM_FI_DEV_FB_USED{Hostname=~"$host"}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)': 8,
    'max(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{Hostname=~"$host"}) by (Hostname, gpu, GPU_I_ID)': 8,
}
"""Queries of Grafana's dashboard 12239, and how many series each answers with."""


class Scraped(NamedTuple):
    """A machine with a GPU that hangs, its exporter with both names, and what scrapes it."""

    machine: Machine
    exporter: Exporter
    prometheus: Prometheus


@pytest.fixture
def scraped(machine: MachineFactory, tmp_path: Path) -> Iterator[Scraped]:
    here = machine("h200-gpm")
    (tmp_path / "rules.yml").write_text(rules())
    with ExitStack() as stack:
        words = ("-i", "0.5", "export", "--names", "gputop,dcgm")
        exporter = stack.enter_context(Exporter(*words, environ=here.env))
        config = scraping(exporter.target, rules=[tmp_path / "rules.yml"])
        prometheus = stack.enter_context(Prometheus(tmp_path, config))
        prometheus.wait_for("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
        prometheus.wait_for("gputop:gpu_utilization_ratio:quantile")
        yield Scraped(here, exporter, prometheus)


@pytest.mark.long
def test_a_real_prometheus(scraped: Scraped) -> None:
    """One test, for a server scrapes nothing in its first seconds."""
    what_is_scraped_is_well_formed(scraped)
    who_is_on_which_gpu(scraped)
    the_records_say_what_the_metrics_say(scraped)
    nvidias_dashboard_works_unchanged(scraped)
    a_gpu_that_hangs_is_down_and_not_idle(scraped)
    every_panel_of_the_dashboard_has_data(scraped)


def what_is_scraped_is_well_formed(scraped: Scraped) -> None:
    lines = scraped.exporter.text().splitlines(keepends=True)
    own = "".join(line for line in lines if "DCGM_" not in line)  # names that promtool dislikes
    assert promtool("check", "metrics", text=own) == ""
    assert "process_cpu_seconds_total" in own
    (target,) = scraped.prometheus.targets()
    assert target["lastError"] == ""


def who_is_on_which_gpu(scraped: Scraped) -> None:
    query = scraped.prometheus.query
    on_gpus = query("count by (user) (gputop_user_processes)")
    assert {answer.labels["user"] for answer in on_gpus} != set()
    models = query("count by (model) (gputop_gpu_free * on (uuid) group_left (model)"
                   " gputop_gpu_info)")  # fmt: skip
    assert {answer.labels["model"]: answer.value for answer in models} == {"NVIDIA H200": 8}


def the_records_say_what_the_metrics_say(scraped: Scraped) -> None:
    prometheus = scraped.prometheus
    assert prometheus.value("model:gputop_gpu:count") == 8
    free = prometheus.value("sum(gputop_gpu_free)")
    assert prometheus.value("instance:gputop_gpu_free:sum") == free
    assert prometheus.value("model:gputop_gpu_free:sum") == free
    assert prometheus.value("gputop:user:count") == prometheus.value(
        "count(count by (user) (gputop_user_processes))"
    )
    assert len(prometheus.query("gputop:gpu_utilization_ratio:quantile")) == 3


def nvidias_dashboard_works_unchanged(scraped: Scraped) -> None:
    values = {"$instance": scraped.exporter.target, "$gpu": "0|1|2|3|4|5|6|7", "$host": ".+"}
    for expression, series in DASHBOARD.items():
        for name, value in values.items():
            expression = expression.replace(name, value)
        answers = scraped.prometheus.query(expression)
        assert len(answers) == series, expression
    # The driver's own figures, which do not move
    total = scraped.machine.gpu(0)["memory"]["total"]
    free, used, reserved = (
        scraped.prometheus.value(f'DCGM_FI_DEV_FB_{name}{{gpu="0"}}')
        for name in ("FREE", "USED", "RESERVED")
    )
    assert abs(free + used + reserved - total / 2**20) <= 3
    both = 'DCGM_FI_DEV_FB_USED{gpu="2"} * 1048576 - on () gputop_gpu_memory_used_bytes{gpu="2"}'
    assert abs(scraped.prometheus.value(both)) <= 2**20


def a_gpu_that_hangs_is_down_and_not_idle(scraped: Scraped) -> None:
    """The last one: it does not come back."""
    prometheus = scraped.prometheus
    assert prometheus.value('gputop_gpu_up{gpu="3"}') == 1
    scraped.machine.hang(gpu=3, wakes=False)
    prometheus.wait_for('gputop_gpu_up{gpu="3"} == 0')
    prometheus.wait_for('gputop_gpu_reading_age_seconds{gpu="3"} > 2')
    assert prometheus.query('gputop_gpu_utilization_ratio{gpu="3"}') == []
    assert prometheus.query('DCGM_FI_DEV_GPU_UTIL{gpu="3"}') == []
    assert prometheus.query('gputop_gpu_free{gpu="3"}') == []
    assert prometheus.value("count(gputop_gpu_utilization_ratio)") == 7
    assert prometheus.value("count(gputop_gpu_info)") == 8
    assert [target["health"] for target in prometheus.targets()] == ["up"]
    prometheus.wait_for('ALERTS{alertname="GpuHung", gpu="3"}')
    prometheus.wait_for('gputop_gpu_findings{gpu="3", code="HUNG", level="error"}')
    prometheus.wait_for("instance:gputop_gpu_findings:worst == 2")


def every_panel_of_the_dashboard_has_data(scraped: Scraped) -> None:
    """Once a GPU hangs: one panel shows what needs attention."""
    series = {}
    for panel, expression in queries(json.loads(dashboard())["panels"]):
        for name, value in {"$instance": scraped.exporter.target, "$__rate_interval": "1m"}.items():
            expression = expression.replace(name, value)
        assert "$" not in expression
        series[panel, expression] = scraped.prometheus.query(expression)
    assert len(series) > 20
    assert [panel for panel, answers in series.items() if not answers] == []
    first = {panel: answers[0].value for (panel, _), answers in series.items()}
    assert (first["GPUs"], first["Silent or lost GPUs"], first["Machines not known"]) == (8, 1, 0)
    assert first["Free"] == scraped.prometheus.value("sum(gputop_gpu_free)")


def queries(panels: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The title and the expression of each query of a dashboard."""
    for panel in panels:
        yield from queries(panel.get("panels", []))
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_the_panels_of_the_dashboard_have_places_and_a_source() -> None:
    whole = json.loads(dashboard())
    inside = [panel["panels"] for panel in whole["panels"] if panel["type"] == "row"]
    ids = [panel["id"] for group in (whole["panels"], *inside) for panel in group]
    assert len(set(ids)) == len(ids) > 20
    for group in (whole["panels"], *filter(None, inside)):
        places = [panel["gridPos"] for panel in group]
        cells = [(x, y) for place in places for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])]  # fmt: skip
        assert len(set(cells)) == len(cells)
        assert {x for x, _ in cells} == set(range(24))
        sources = {panel["datasource"]["uid"] for panel in group if panel["type"] != "row"}
        assert sources == {"${datasource}"}
    variables = [variable["name"] for variable in whole["templating"]["list"]]
    assert variables == ["datasource", "instance"]


def test_the_rules_are_rules_and_ring_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules())
    promtool("check", "rules", tmp_path / "rules.yml")
    (tmp_path / "test.yml").write_text(Path(__file__).with_name("rules_test.yml").read_text())
    promtool("test", "rules", tmp_path / "test.yml")
