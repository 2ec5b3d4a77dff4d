"""A host that is opened from Prometheus, or printed, says what its row says."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from subprocess import PIPE

import pytest

from gputop.cli import main
from gputop.errors import SourceError
from gputop.model.health.findings import findings, in_alarm
from gputop.model.health.free import count_of_free, not_free, who
from gputop.model.machine.frame import Frame
from gputop.model.machine.limits import no_process_text
from gputop.model.machine.summary import count_of_users, users
from gputop.sources.prometheus.client import PrometheusClient
from gputop.sources.prometheus.host import PrometheusSource
from gputop.sources.prometheus.queries import ClusterQueries, find_site
from gputop.tui.panes.gpu_who import silence
from tests.agent.driving import gone
from tests.browsers import SERVE, view_of, viewers
from tests.cluster.series import dcgm, gputop, nvitop, serving, unread
from tests.patience import until
from tests.tui.live import GPUTOP

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
    assert (frame.driver_version, frame.cuda_version) == ("580.95.05", "13.0")
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


def test_one_that_is_down_says_why(
    queries: ClusterQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was not when its row was asked for."""
    monkeypatch.setitem(vars(queries), "down", [])
    words = "no GPUs of down:9835 now: down: the NVIDIA driver does not answer"
    with pytest.raises(SourceError, match=words):
        opened(queries, "down:9835")


Capture = pytest.CaptureFixture[str]
DOWN = "gputop: down:9835: down: the NVIDIA driver does not answer\n"
HOSTS = ["hung:9835", "node1:9835", "node2", "node3"]


def printed(capfd: Capture, queries: ClusterQueries, *words: str) -> str:
    """What it prints of all hosts; one that is down is named, and the status is that of -H."""
    assert main(["--prometheus", queries.client.url, *words]) == 1
    text, errors = capfd.readouterr()
    assert errors == DOWN
    return text


def test_a_line_of_json_for_each_host(queries: ClusterQueries, capfd: Capture) -> None:
    frames = list(map(json.loads, printed(capfd, queries, "--json").splitlines()))
    assert [frame["host"]["requested_name"] for frame in frames] == HOSTS
    now = [opened(queries, host) for host in HOSTS]
    free = [[gpu["free"] for gpu in frame["gpus"]] for frame in frames]
    assert free == [
        [None if (no := not_free(frame, gpu)) and not no.is_sure else not no for gpu in frame.gpus]
        for frame in now
    ]
    assert all(frame["interval"] is None for frame in frames)
    # They are as old as what was scraped, which had been read two seconds before.
    assert all(now[at].time - frames[at]["time"] >= 2 for at in (0, 1))


@pytest.mark.parametrize("words", [("--once",), ()])
def test_text_of_each_host(words: tuple[str, ...], queries: ClusterQueries, capfd: Capture) -> None:
    """Also where there is no terminal for the screen."""
    text = printed(capfd, queries, *words)
    heads = [line.split("  ") for line in text.splitlines() if line.startswith("gputop ")]
    assert [head[1] for head in heads] == HOSTS
    assert "jobs: slurm 4711 (alice)" in text
    assert "XID 79, 2h" in text


def test_one_line_of_all_hosts(queries: ClusterQueries, capfd: Capture) -> None:
    assert printed(capfd, queries, "--line").startswith("4/5 hosts 4/9 free ")
    text = printed(capfd, queries, "--line", "--format", "{users}|{who}|{free_gpus}|{alarms}")
    assert text == "1+|(unknown) alice|hung:9835:1 node1:9835:1 node2:1 node3:1|3\n"


def test_every_interval(queries: ClusterQueries) -> None:
    """Who is down is said once; it goes on while a server does not answer."""
    command = [*GPUTOP, "--prometheus", queries.client.url, "--line", "--watch", "-i", "1"]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as program:
        assert program.stdout
        assert program.stderr
        lines = [program.stdout.readline() for _ in range(3)]
        program.terminate()
        assert program.stderr.read() == DOWN
    assert [line.split()[0] for line in lines] == ["4/5"] * 3


def test_a_server_that_has_never_answered() -> None:
    """How many hosts it knows is not known, just like what they do."""
    command = [*GPUTOP, "--prometheus", "http://127.0.0.1:1", "--line", "--watch", "-i", "1"]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as program:
        assert program.stdout
        assert program.stderr
        assert program.stdout.readline() == "- hosts -/- free -% -/- -C\n"
        assert program.stderr.readline().endswith("127.0.0.1:1: Connection refused\n")
        program.terminate()


@pytest.mark.long
async def test_in_a_browser_without_ssh(queries: ClusterQueries) -> None:
    """Who looks starts no ssh; a viewer ends with its server, however that ends."""
    command = [*SERVE, "--prometheus", queries.client.url]
    with subprocess.Popen(command, stdout=PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout
            async with view_of(server.stdout.readline().strip()) as view:
                await view.wait_for("9 GPUs, 4 free")
                await view.wait_for("node2")
                [viewer] = viewers(server)
                await view.type("\x1b[B\x1b[B\r")
                await view.wait_for("from Prometheus (without ssh in a browser)")
                server.kill()
                until(lambda: gone(viewer))
        finally:
            server.kill()
