"""A host that is opened from Prometheus says what its row says."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gputop.errors import SourceError
from gputop.model.health.findings import findings, in_alarm
from gputop.model.health.free import count_of_free, not_free
from gputop.model.health.who import who
from gputop.model.machine.frame import Frame
from gputop.model.machine.limits import no_process_text
from gputop.model.machine.summary import count_of_users, users
from gputop.sources.prometheus.client import PrometheusClient
from gputop.sources.prometheus.host import PrometheusSource
from gputop.sources.prometheus.queries import ClusterQueries, find_site
from gputop.tui.panes.gpu_who import silence
from tests.cluster.series import dcgm, gputop, nvitop, serving, unread

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterQueries]:
    machines = [
        gputop("node1", (0.5, 0, 0.9), users=("alice", "(unknown)"), finding="error", job="4711",
               free=(0, 1, 0), xid_time=time.time() - 7200),
        dcgm("node2", (97, 0), xid=79),
        nvitop("node3", (90, 0)),
        gputop("hung", (None, 0), finding="error", code="HUNG"),
        unread("down", "not_answering"),
    ]  # fmt: skip
    with serving(tmp_path_factory.mktemp("opened"), *machines) as prometheus:
        yield find_site(PrometheusClient(prometheus.url, {}))


def opened(queries: ClusterQueries, host: str) -> Frame:
    return PrometheusSource(queries, host).now()


@pytest.mark.parametrize("host", ["node1:9835", "node2", "node3", "hung:9835"])
def test_it_agrees_with_its_row(queries: ClusterQueries, host: str) -> None:
    node = queries.nodes("busy", 10, host)[0]
    frame = opened(queries, host)
    assert (count_of_free(frame), len(frame.gpus)) == (node.free, node.gpus)
    assert set(users(frame)) == set(node.users)
    levels = {finding.level for gpu in frame.gpus for finding in findings(frame, gpu)}
    assert levels == ({node.level} if node.level else set())


def test_all_that_gputop_reports_there(queries: ClusterQueries) -> None:
    frame = opened(queries, "node1:9835")
    first, second, third = frame.gpus
    assert [set(who(frame, gpu).split()) for gpu in frame.gpus] == [
        {"(unknown)", "alice"}, {"free"}, {"(unknown)", "alice"},
    ]  # fmt: skip
    assert count_of_users(frame) == "1 user"
    assert in_alarm(frame) == [first]
    [finding] = findings(frame, first)
    assert (finding.level, finding.code) == ("error", "XID 79")
    assert finding.text.startswith("XID 79, 2h")
    assert "{" not in finding.advice
    objection = not_free(frame, third)
    assert objection is not None
    assert (objection.code, objection.short) == ("users", "in use")
    assert no_process_text(frame).endswith("; jobs: slurm 4711 (alice)")
    assert not_free(frame, second) is None


def test_an_xid_of_dcgm_exporter_is_named(queries: ClusterQueries) -> None:
    frame = opened(queries, "node2")
    [finding] = findings(frame, frame.gpus[0])
    assert (finding.level, finding.code) == ("error", "XID 79")
    assert count_of_users(frame) == "users unknown"
    assert [who(frame, gpu) for gpu in frame.gpus] == ["not listed", "free"]


def test_what_is_not_reported_is_not_known(queries: ClusterQueries) -> None:
    frame = opened(queries, "node3")
    assert [report.findings for report in frame.reports.values()] == [None, None]
    assert [report.users for report in frame.reports.values()] == [None, None]


def test_a_gpu_that_hangs_has_its_sentence(queries: ClusterQueries) -> None:
    frame = opened(queries, "hung:9835")
    hung, idle = frame.gpus
    assert silence(hung)[0] == "no answer for 10m00s"
    [finding] = findings(frame, hung)
    assert finding.code == "HUNG"
    assert finding.text == "it has not answered for 10m00s; its values are older"
    objection = not_free(frame, hung)
    assert objection is not None
    assert objection.level == "warning"
    assert not_free(frame, idle) is None


def test_one_that_is_down_says_why(queries: ClusterQueries) -> None:
    words = "no GPUs of down:9835 now: down: the NVIDIA driver does not answer"
    with pytest.raises(SourceError, match=words):
        opened(queries, "down:9835")
