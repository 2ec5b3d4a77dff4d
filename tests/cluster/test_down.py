"""No machine leaves the list in silence, whatever becomes of its driver, exporter or target."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gputop.sources.prometheus.client import PrometheusClient
from gputop.sources.prometheus.queries import ClusterQueries, find_site
from gputop.sources.prometheus.watch import ClusterWatch
from tests.cluster.series import Line, dcgm, gputop, nvitop, serving, unread, up
from tests.patience import until
from tests.prometheus import Prometheus, scraping

pytestmark = pytest.mark.system

NO_EXPORTER = "down: its exporter does not answer"
GONE = "gone: there are no new values of it"


def queries_of(prometheus: Prometheus) -> ClusterQueries:
    return find_site(PrometheusClient(prometheus.url, {}))


def rows(queries: ClusterQueries) -> list[tuple[str, str]]:
    """The name of each host, and why nothing is known of it."""
    return [(node.host, node.problem) for node in queries.nodes("worst", 10)]


def test_a_host_that_has_no_gpus_any_more_stays_with_the_reason(tmp_path: Path) -> None:
    machines = [
        gputop("node1"),
        up("node1:9835", 1),
        unread("hung", "not_answering"),
        unread("ended", None),
        up("off:9835", 0),
    ]
    # One exporter with the names of both, of which dcgm's have the machine's own name.
    both = [
        (name, {**labels, "instance": "off:9835"}, value) for name, labels, value in dcgm("off")
    ]
    ended = [*gputop("hung"), *gputop("ended"), *gputop("off"), *both, *gputop("taken")]
    with serving(tmp_path, *machines, ended=ended) as prometheus:
        queries = queries_of(prometheus)
        assert rows(queries) == [
            ("ended:9835", "down: its NVIDIA driver cannot be read"),
            ("hung:9835", "down: the NVIDIA driver does not answer"),
            ("off:9835", NO_EXPORTER),
            ("taken:9835", GONE),
            ("node1:9835", ""),
        ]
        sums = queries.sums()
        assert (sums.gpus, sums.hosts, sums.down) == (2, 1, 4)
        assert queries.nodes("free", 10, "HUNG:")[-1].host == "hung:9835"
        assert queries.nodes("free", 1)[-1].host == "taken:9835"


def test_a_site_of_which_no_driver_was_ever_read(tmp_path: Path) -> None:
    with serving(tmp_path, unread("node1", "driver_not_loaded")) as prometheus:
        queries = queries_of(prometheus)
        assert rows(queries) == [("node1:9835", "down: the NVIDIA driver is not loaded")]
        assert queries.sums().down == 1


def test_a_host_has_its_name_after_its_exporter_ended(tmp_path: Path) -> None:
    """dcgm-exporter is scraped at the address of a pod, and names the node."""
    lost = [(name, {**labels, "instance": "10.42.0.7:9400"}, value)
            for name, labels, value in dcgm("node7")]  # fmt: skip
    machines = [dcgm("node1"), up("10.42.0.7:9400", 0)]
    with serving(tmp_path, *machines, ended=lost) as prometheus:
        assert rows(queries_of(prometheus)) == [("node7", NO_EXPORTER), ("node1", "")]


def test_an_exporter_that_moved_is_no_other_host(tmp_path: Path) -> None:
    """A pod of `gputop export` has another address after an upgrade."""

    def at(address: str) -> list[Line]:
        return [(name, {**labels, "instance": address}, value)
                for name, labels, value in gputop("node1")]  # fmt: skip

    with serving(tmp_path, at("10.42.0.8:9835"), ended=at("10.42.0.7:9835")) as prometheus:
        assert rows(queries_of(prometheus)) == [("10.42.0.8:9835", "")]


def test_a_rolling_upgrade_of_dcgm_exporter_loses_no_node(tmp_path: Path) -> None:
    """Its label `Hostname` becomes `hostname`, node by node; one has lost it to a relabelling."""
    machines = [
        dcgm("done"),
        dcgm("later", (50, 0), label="Hostname", xid=79),
        dcgm("other", label="node"),
        dcgm("new-pod", label="hostname"),
    ]
    # The old pod of a node that is done counts for five minutes more.
    both = [(name, {**labels, "instance": "10.42.0.7:9400"}, value)
            for name, labels, value in dcgm("done", label="Hostname")]  # fmt: skip
    with serving(tmp_path, *machines, both) as prometheus:
        queries = queries_of(prometheus)
        sums = queries.sums()
        assert (sums.gpus, sums.hosts, sums.alarms, sums.free) == (8, 4, 1, 7)
        nodes = queries.nodes("worst", 10)
        assert (nodes[0].host, nodes[0].level, nodes[0].gpus) == ("later", "error", 2)
        assert {node.host for node in nodes} == {"later", "done", "new-pod", "other:9400"}
        assert [node.host for node in queries.nodes("free", 10, "later")] == ["later"]


def of_several() -> Sequence[list[Line]]:
    """node1 has both gputop and dcgm-exporter, which calls it by its name; others have one."""
    return (
        gputop("node1", (0.5, 0.5), users=("alice",)),
        dcgm("node1", (0, 0)),
        dcgm("node2", (97, 97), xid=79),
        nvitop("node3", (90, 0)),
    )


def test_one_row_for_each_host_from_the_best_exporter_that_has_it(tmp_path: Path) -> None:
    with serving(tmp_path, *of_several()) as prometheus:
        queries = queries_of(prometheus)
        sums = queries.sums()
        assert sums.exporter == "gputop, dcgm-exporter, nvitop-exporter"
        assert (sums.gpus, sums.hosts, sums.down) == (6, 3, 0)
        assert (sums.free, sums.users, sums.alarms) == (1, 1, 1)
        assert [(model.model, model.gpus, model.free) for model in sums.models] == [
            ("NVIDIA H100 80GB HBM3", 2, 0), ("NVIDIA H200", 2, 0), ("NVIDIA L40S", 2, 1),
        ]  # fmt: skip
        nodes = {node.host: node for node in queries.nodes("worst", 10)}
        assert list(nodes) == ["node2", "node1:9835", "node3"]
        assert nodes["node2"].level == "error"
        assert nodes["node1:9835"].users == ("alice",)
        assert nodes["node1:9835"].free == 0
        assert nodes["node3"].free == 1
        assert [node.host for node in queries.nodes("free", 1)] == ["node3"]


def test_another_exporter_takes_over_where_the_best_one_ends(tmp_path: Path) -> None:
    machines = [gputop("node2"), dcgm("node1", (0, 0)), up("node1:9835", 0)]
    with serving(tmp_path, *machines, ended=gputop("node1")) as prometheus:
        nodes = queries_of(prometheus).nodes("worst", 10)
        assert [(node.host, node.problem, node.free) for node in nodes] == [
            ("node1", "", 2), ("node2:9835", "", 2),
        ]  # fmt: skip


class Exporting(BaseHTTPRequestHandler):
    """Serves its server's `text`."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        assert isinstance(self.server, ExportingServer)
        self.wfile.write(self.server.text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class ExportingServer(ThreadingHTTPServer):
    """An exporter whose text may change."""

    daemon_threads = True
    text = ""


def test_an_upgrade_while_it_is_watched(tmp_path: Path) -> None:
    gpu = 'DCGM_FI_DEV_GPU_UTIL{%s="node1",UUID="GPU-1",gpu="0",modelName="NVIDIA H100"} 50\n'
    with ExportingServer(("127.0.0.1", 0), Exporting) as exporter:
        threading.Thread(target=exporter.serve_forever, args=(0.05,), daemon=True).start()
        exporter.text = gpu % "Hostname"
        target = f"127.0.0.1:{exporter.server_address[1]}"
        with Prometheus(tmp_path, scraping(target, interval="200ms")) as prometheus:
            prometheus.wait_for('DCGM_FI_DEV_GPU_UTIL{Hostname="node1"}')
            watch = ClusterWatch(prometheus.url, {}, 1)

            def shown() -> list[tuple[str, int | None]]:
                cluster = watch.state.cluster
                return [(node.host, node.gpus) for node in cluster.nodes] if cluster else []

            watch.start()
            until(lambda: shown() == [("node1", 1)], 20, shown)
            exporter.text = gpu % "hostname" + gpu.replace("1", "2") % "hostname"
            until(lambda: set(shown()) == {("node1", 1), ("node2", 1)}, 20, shown)
            watch.close()
        exporter.shutdown()
