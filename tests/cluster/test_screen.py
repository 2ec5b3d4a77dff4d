"""The screen of a cluster, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gputop.settings import Session
from gputop.sources.prometheus.watch import ClusterWatch
from gputop.tui.app import GputopApp
from gputop.tui.cluster import ClusterHosts
from gputop.tui.hosts import HostsScreen
from gputop.tui.main import MainScreen
from gputop.tui.panes.hosts import HostTable
from tests.builders_tui import Screenful
from tests.cluster.series import dcgm, gputop, serving, up
from tests.pilot import Hand
from tests.prometheus import Prometheus

pytestmark = pytest.mark.system

HOSTILE = "e\x1b[31mvil\u202e" + "x" * 10_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """130 machines and one that is down; what cannot be connected to is no name for ssh."""
    quiet = [gputop(f"n_{number:03}!", (0.25,), users=("alice",)) for number in range(125)]
    machines = [
        *quiet,
        gputop("free!", (0, 0), model="NVIDIA L40S"),
        gputop("hung!", (None, 0.5), finding="error", users=("bob", "carol")),
        gputop("noticed!", (0.75, 0), finding="warning", model="NVIDIA A100"),
        gputop(HOSTILE, (0.5,), model="NVIDIA T4"),
        up("dead:9835", 0),
    ]
    with serving(tmp_path_factory.mktemp("cluster"), *machines) as prometheus:
        yield prometheus


class Clusterful(Screenful):
    """The app with a cluster."""

    def __init__(self, app: GputopApp, pilot: object) -> None:
        self.app, self.pilot = app, pilot  # type: ignore[assignment]
        self.hand = Hand(app)

    async def until(self, shown: Callable[[], bool]) -> None:
        """Let looks be taken at what has come, until something is shown."""
        for _ in range(1000):
            self.app._tick()
            await self.pilot.pause(0.01)
            if shown():
                return
        raise AssertionError(self.text)

    @property
    def hosts(self) -> list[str]:
        """The names of the rows, in their order."""
        table = self.app.screen.query_one(HostTable)
        lines = self.lines[table.region.y + 1 : table.region.bottom]
        return [line[1:].split()[0].split(":")[0] for line in lines if line.strip()]


@asynccontextmanager
async def watched(
    url: str, size: tuple[int, int] = (160, 40), readonly: bool = False
) -> AsyncIterator[Clusterful]:
    watch = ClusterWatch(url, {})
    app = GputopApp([], Session(me="alice", readonly=readonly), watch)
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        try:
            yield Clusterful(app, pilot)
        finally:
            app.shown.close()
            watch.close()


async def test_the_cluster_at_a_glance(server: Prometheus) -> None:
    async with watched(server.url) as cluster:
        await cluster.until(lambda: "free!" in cluster.hosts or "hung!" in cluster.hosts)
        sums = " 132 GPUs, 3 free · 129 hosts, 1 down · 1 host in alarm · 3 users"
        assert sums in cluster.lines[0]
        assert "gputop " in cluster.lines[0]
        assert cluster.lines[0].rstrip().endswith("old  every 10s")
        assert cluster.line_with("H200 ").split()[1:5:2] == ["127", "0"]
        assert "2 other models" in cluster.text
        assert "utilization: 10th percentile 25%, median 25%, 90th 25%" in cluster.text
        assert cluster.hosts[:3] == ["dead", "hung!", "noticed!"]
        assert "! down: its exporter does not answer" in cluster.line_with("dead")
        assert cluster.line_with("hung!").split()[1] == "0/2"
        assert "! error" in cluster.line_with("hung!")
        assert "bob carol" in cluster.line_with("hung!")
        assert "\x1b" not in cluster.text
        await cluster.press("s")
        await cluster.until(lambda: cluster.hosts[0] == "free!")
        assert "sorted by free GPUs" in cluster.lines[0]
        await cluster.press("s")
        await cluster.until(lambda: cluster.hosts[2] == "noticed!")
        assert cluster.hosts[0] == "e\ufffd[31mvil\ufffd" + "x" * 29 + "…"


async def test_the_server_looks_for_a_name(server: Prometheus) -> None:
    async with watched(server.url) as cluster:
        await cluster.until(lambda: "hung!" in cluster.hosts)
        await cluster.press("/")
        await cluster.type("_12")
        await cluster.until(lambda: len(cluster.hosts) == 5)
        assert all(host.startswith("n_12") for host in cluster.hosts)
        await cluster.press("enter")
        assert "Enter open" in cluster.lines[-1]
        await cluster.press("/")
        await cluster.type("]")
        await cluster.until(lambda: "no host has '_12]' in its name; Esc drops" in cluster.text)
        await cluster.press("escape")
        await cluster.until(lambda: "hung!" in cluster.hosts)


async def test_the_keys_of_a_cluster_are_those_that_do_something(server: Prometheus) -> None:
    async with watched(server.url) as cluster:
        await cluster.until(lambda: "hung!" in cluster.hosts)
        assert " Enter open  / filter  s sort  ? help  q quit  p pause" in cluster.lines[-1]
        titles = [c.title for c in cluster.app.get_system_commands(cluster.app.screen)]
        assert not any("scroll" in title or "step" in title for title in titles)
        for key, words in (("L", "log in"), ("u", "users"), ("f9", "signal"), ("space", "tag")):
            await cluster.press(key)
            assert f"{words}: open a host first, with Enter" in cluster.lines[0]
        assert "to signal" not in cluster.text
        await cluster.press("question_mark")
        here = cluster.text.partition("On the screen of a host")[0]
        assert "Order of hosts, or processes" in here
        for words in ("Log in to this host by hand", "A row per user", "host:node3"):
            assert words not in here


async def test_escape_drops_the_cursor_then_the_filter(server: Prometheus) -> None:
    async with watched(server.url) as cluster:
        await cluster.until(lambda: "hung!" in cluster.hosts)
        await cluster.press("/")
        await cluster.type("_12")
        await cluster.until(lambda: len(cluster.hosts) == 5)
        await cluster.press("enter", "down", "escape")
        assert len(cluster.hosts) == 5
        assert "▸" not in cluster.text
        await cluster.press("escape")
        await cluster.until(lambda: "hung!" in cluster.hosts)


async def test_the_interval_is_no_shorter_than_that_of_the_server(server: Prometheus) -> None:
    async with watched(server.url) as cluster:
        await cluster.until(lambda: "hung!" in cluster.hosts)
        await cluster.press(*["minus"] * 9)
        assert cluster.lines[0].rstrip().endswith("every 1s")
        await cluster.press("plus")
        assert cluster.lines[0].rstrip().endswith("every 2s")


async def test_a_pause_holds_the_picture_until_the_server_was_asked(server: Prometheus) -> None:
    async with watched(server.url) as cluster:
        await cluster.until(lambda: "hung!" in cluster.hosts)
        await cluster.press("p")
        screen = cluster.app.screen
        assert isinstance(screen, HostsScreen)
        hosts = screen.hosts
        assert isinstance(hosts, ClusterHosts)
        held = hosts._state
        await cluster.press("plus")
        await cluster.until(lambda: hosts._state_now != held)
        screen.show()
        assert hosts._state == held
        await cluster.press("r")
        await cluster.until(lambda: hosts._state != held)
        held = hosts._state
        await cluster.until(lambda: hosts._state_now != held)
        assert hosts._state == held
        await cluster.press("s")  # the server sorts
        await cluster.until(lambda: cluster.hosts[0] == "free!")
        assert "PAUSED" in cluster.lines[0]


async def test_more_nodes_are_asked_for_at_the_end(server: Prometheus) -> None:
    async with watched(server.url) as cluster:
        screen = cluster.app.screen
        assert isinstance(screen, HostsScreen)
        await cluster.until(lambda: screen.hosts.table.span[2] == 101)
        await cluster.press("end")
        await cluster.until(lambda: screen.hosts.table.span[2] == 130)


async def test_a_host_opens_as_prometheus_knows_it(server: Prometheus) -> None:
    """With who is on it, and the cause of its alarm, as far as its exporter reports them."""
    async with watched(server.url) as cluster:
        await cluster.until(lambda: "hung!" in cluster.hosts)
        await cluster.press("down", "down", "enter")
        assert isinstance(cluster.app.screen, MainScreen)
        await cluster.until(lambda: "H200" in cluster.text)
        assert "from Prometheus (ssh does not take its name)" in cluster.lines[0]
        heading = "hung!:9835 · 1 alarm (H) · 2 GPUs · 2 users seen "
        await cluster.until(lambda: heading in cluster.lines[0])  # a second answer has who and why
        assert cluster.lines[0].endswith(" 1s ")
        await cluster.press("plus")
        assert cluster.lines[0].endswith(" 2s ")
        assert "! XID 79" in cluster.line_with(" 0  H200")
        assert "bob carol" in cluster.line_with(" 1  H200")
        machine = cluster.app.shown.machines[0]
        await cluster.until(lambda: len(machine.history.times) > 50)
        assert "Prometheus does not say which processes are on the GPUs" in cluster.text
        await cluster.press("H")
        assert "1 of 2 GPUs needs attention" in cluster.text
        assert "XID 79" in cluster.text
        await cluster.press("q")
        await cluster.press("q")
        assert isinstance(cluster.app.screen, HostsScreen)
        assert cluster.app.shown.machines == []
        await cluster.until(lambda: "every 10s" in cluster.lines[0])
        await cluster.press("up", "enter")
        await cluster.until(lambda: "knows of no GPUs of dead:9835" in cluster.text)


async def test_a_server_that_ends(tmp_path: Path) -> None:
    with serving(tmp_path, dcgm("n!", (50,))) as prometheus:
        async with watched(prometheus.url, (80, 24)) as cluster:
            await cluster.until(lambda: "n!" in cluster.hosts)
            prometheus.stop()
            await cluster.press("r")
            await cluster.until(lambda: "Connection refused (what is shown is" in cluster.text)
            assert "n!" in cluster.hosts
            assert "1 GPU, 0 free" in cluster.lines[0]


async def test_nobody_answers() -> None:
    async with watched("http://127.0.0.1:1", (60, 12), readonly=True) as cluster:
        await cluster.until(lambda: "127.0.0.1:1: Connection refused" in cluster.lines[1])
        assert "read only  http://127.0.0" in cluster.lines[0]
        assert "GPU" not in cluster.lines[0]
        await cluster.press("enter", "s", "end", "escape", "q")
        assert cluster.app._exit
