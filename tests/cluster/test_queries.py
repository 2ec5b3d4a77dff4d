"""What a real Prometheus server tells of machines, by each exporter's names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.errors import SourceError
from gputop.model.fleet.cluster import Cluster, ClusterNode, ModelCount
from gputop.sources.prometheus.client import PrometheusClient
from gputop.sources.prometheus.queries import RECORDS, ClusterQueries, find_site
from tests.cluster.series import (
    GIB,
    Line,
    dcgm,
    gputop,
    nvidia_gpu_exporter,
    nvitop,
    serving,
    up,
)
from tests.prometheus import Prometheus

pytestmark = pytest.mark.system

HOSTILE = "e\x1b[31mvil\u202e\n" + "x" * 10_000


@pytest.fixture(scope="module")
def of_dcgm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterQueries]:
    """Machines of dcgm-exporter: pods that share GPUs, garbage, a hostile name, one down."""
    machines: list[list[Line]] = [
        dcgm("node1", (97, 3, 0, 0), pods=("train", "notebook"), xid=79),
        dcgm("node2", (218322032, 0), used=(4, 4), model="NVIDIA H200"),
        dcgm("node3", (100, 100, 100)),
        dcgm(HOSTILE, (5,), model='a "model\\'),
        up("node1:9400", 1),
        up("node9:9400", 0),
    ]
    with serving(tmp_path_factory.mktemp("dcgm"), *machines) as prometheus:
        yield queries_of(prometheus)


def queries_of(prometheus: Prometheus) -> ClusterQueries:
    return find_site(PrometheusClient(prometheus.url, {}))


def names(nodes: tuple[ClusterNode, ...]) -> list[str]:
    """The hosts, in their order."""
    return [node.host for node in nodes]


def test_sums_of_dcgm_exporter(of_dcgm: ClusterQueries) -> None:
    sums = of_dcgm.sums()
    assert sums == Cluster(
        exporter="dcgm-exporter",
        gpus=10,  # not one for each pod
        hosts=4,
        down=1,
        free=3,  # garbage is not at rest
        users=None,
        alarms=1,
        quantiles=sums.quantiles,
        models=(
            ModelCount("NVIDIA H100 80GB HBM3", 7, 2),
            ModelCount("NVIDIA H200", 2, 1),
            ModelCount('a "model\\', 1, 0),
        ),
        nodes=(),
    )
    assert sums.quantiles == pytest.approx((0, 0.05, 1))


def test_nodes_of_dcgm_exporter(of_dcgm: ClusterQueries) -> None:
    down, first, second, *_ = of_dcgm.nodes("worst", 10)
    assert down == ClusterNode("node9:9400", "down: its exporter does not answer")
    assert first.age is not None
    assert 0 <= first.age < 60
    assert first == ClusterNode(
        "node1", gpus=4, free=2, utilization=pytest.approx(0.25),  # type: ignore[arg-type]
        memory_used=81928 * (1 << 20), memory_total=320 * GIB, users=(), level="error",
        age=first.age,
    )  # fmt: skip
    assert second.host == "node3"
    by_free = of_dcgm.nodes("free", 10)
    assert names(by_free)[:2] == ["node1", "node2"]
    assert names(by_free)[-1] == "node9:9400"
    assert names(of_dcgm.nodes("busy", 2)) == ["node3", "node1", "node9:9400"]


def test_names_are_matched_by_the_server(of_dcgm: ClusterQueries) -> None:
    assert names(of_dcgm.nodes("busy", 10, "DE3")) == ["node3"]
    assert names(of_dcgm.nodes("busy", 10, "e9:")) == ["node9:9400"]
    for text in (".*", '"} or vector(1)', "\\", "a\nb", "(", "é"):
        assert of_dcgm.nodes("busy", 10, text) == ()


def test_a_hostile_name_is_harmless_and_short(of_dcgm: ClusterQueries) -> None:
    [node] = of_dcgm.nodes("busy", 10, "vil")
    assert node.host.isprintable()
    assert len(node.host) == 64
    assert node.gpus == 1


def test_gputops_own_metrics(tmp_path: Path) -> None:
    machines = [
        gputop("node1", (0.9, None, 0), users=("alice", "(unknown)"), finding="warning"),
        gputop("hung", (None, None), finding="error"),
        gputop("quiet", (0.5,), users=("alice", "bob")),
        up("node1:9835", 1),
    ]
    with serving(tmp_path, *machines) as prometheus:
        queries = queries_of(prometheus)
        sums = queries.sums()
        assert (sums.exporter, sums.gpus, sums.hosts, sums.down) == ("gputop", 6, 3, 0)
        assert (sums.free, sums.users, sums.alarms) == (1, 2, 1)
        assert sums.models == (ModelCount("NVIDIA H200", 6, 1),)
        hung, noticed, quiet = queries.nodes("worst", 10)
        assert (hung.host, hung.level, hung.gpus, hung.free) == ("hung:9835", "error", 2, None)
        assert (hung.utilization, hung.memory_used) == (None, None)
        assert (noticed.level, noticed.free) == ("warning", 1)
        assert noticed.age == pytest.approx(2, abs=60)
        assert set(quiet.users) == {"alice", "bob"}
        gone = ClusterQueries(queries.client, queries.site, frozenset(RECORDS.values()))
        assert (gone.sums().gpus, gone.sums().free) == (6, 1)
        for order in ("free", "busy"):
            assert set(names(queries.nodes(order, 10))) == {"node1:9835", "hung:9835", "quiet:9835"}


def test_recording_rules_are_read_where_they_have_results(tmp_path: Path) -> None:
    labels = {"job": "gpu", "instance": "node1:9835"}
    records: list[Line] = [
        (RECORDS["count"], labels, 8),
        (RECORDS["free"], labels, 5),
        (RECORDS["models"], {"model": "NVIDIA H200"}, 8),
        *((RECORDS["quantiles"], {"quantile": share}, 0.3) for share in ("0.1", "0.5", "0.9")),
    ]
    with serving(tmp_path, gputop("node1", (0, 0)), records) as prometheus:
        queries = queries_of(prometheus)
        sums = queries.sums()
        assert (sums.gpus, sums.free, sums.models[0].gpus) == (8, 5, 8)
        assert sums.quantiles == (0.3, 0.3, 0.3)


def test_two_models_of_one_gpu_do_no_harm(tmp_path: Path) -> None:
    """A label that has changed, or a liar."""
    machines = [gputop("node1", model="NVIDIA H100"), gputop("node1", model="NVIDIA H200")]
    with serving(tmp_path, *machines) as prometheus:
        sums = queries_of(prometheus).sums()
        assert sum(model.free or 0 for model in sums.models) == 2


def test_the_other_exporters(tmp_path: Path) -> None:
    machines = [nvidia_gpu_exporter("node1", (0.9, 0, 0.1)), up("node1:9835", 1)]
    with serving(tmp_path, *machines) as prometheus:
        queries = queries_of(prometheus)
        sums = queries.sums()
        assert (sums.exporter, sums.gpus, sums.free) == ("nvidia_gpu_exporter", 3, 1)
        assert (sums.users, sums.alarms, sums.down) == (None, None, 0)
        assert sums.models == (ModelCount("NVIDIA A100-SXM4-40GB", 3, 1),)
        assert names(queries.nodes("worst", 10)) == ["node1:9835"]


def test_nvitop_and_the_older_label_of_dcgm(tmp_path: Path) -> None:
    """A server that scrapes nothing itself has nothing down."""
    machines = [nvitop("node1", (90, 0)), dcgm("node2", (50,) * 4, label="Hostname")]
    with serving(tmp_path, *machines) as prometheus:
        queries = queries_of(prometheus)
        sums = queries.sums()
        assert (sums.exporter, sums.gpus, sums.down) == ("dcgm-exporter, nvitop-exporter", 6, 0)
        assert names(queries.nodes("busy", 10)) == ["node2", "node1"]
        client = queries.client
    (tmp_path / "nvitop").mkdir()
    with serving(tmp_path / "nvitop", machines[0]) as prometheus:
        sums = queries_of(prometheus).sums()
        assert (sums.exporter, sums.gpus, sums.free) == ("nvitop-exporter", 2, 1)
        assert sums.models == (ModelCount("NVIDIA L40S", 2, 1),)
    with pytest.raises(SourceError, match="Connection refused"):
        client.query("1")


def test_where_all_are_down_that_is_said(tmp_path: Path) -> None:
    """Their series ended half an hour ago: nothing is idle, and nothing is free."""
    with serving(tmp_path, up("node1:9400", 0), ended=dcgm("node1", (0, 0))) as prometheus:
        sums = queries_of(prometheus).sums()
        assert (sums.gpus, sums.hosts, sums.down, sums.free) == (0, 0, 1, None)
        assert sums.quantiles is None
        assert queries_of(prometheus).nodes("free", 10) == (
            ClusterNode("node1", "down: its exporter does not answer"),
        )


def test_a_server_without_gpus(tmp_path: Path) -> None:
    with Prometheus(tmp_path) as prometheus, pytest.raises(SourceError, match="knows of no GPUs"):
        queries_of(prometheus)
