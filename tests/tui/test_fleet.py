"""The screen of many hosts: rows, keys, the screen of one of them and back."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from textual import events

from gputop.errors import LoginError, SourceError
from gputop.model.fleet.cluster import ClusterNode
from gputop.model.fleet.link import HostLink
from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.signals import Verdict
from gputop.protocol.messages import Refresh, Reply, SetInterval, Signal
from gputop.settings import Session
from gputop.tui.hosts import HostsScreen
from gputop.tui.main import MainScreen
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.panes.cluster import NodeColumns
from gputop.tui.panes.fleet import FreeLine
from gputop.tui.panes.hosts import HostTable
from gputop.tui.panes.lines import width_of
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of, shown
from tests.tui.fleets import UP, Fleetful, frame_on, watched

HOSTS = ("node1", "node2", "node3")


def busy(host: str, pid: int = 100, user: str = "alice", second: float = 0) -> Frame:
    """A machine with a process on the first of two GPUs."""
    gpus = gpu_of(0, utilization=0.9, memory_used=10 * GIB), gpu_of(1)
    return frame_on(host, frame_of(*gpus, process_of(pid, user=user), time=NOON + second))


async def all_seen(fleet: Fleetful) -> None:
    """Let each host send a frame."""
    for number, host in enumerate(HOSTS):
        await fleet.tell(host, busy(host, 100 + number, ("alice", "bob", "carol")[number]))


def verdict_of(order: Signal) -> Verdict:
    """The only process of an order has ended."""
    [target] = order.targets
    return Verdict(
        request_id=order.id, process=target.process, signal=order.number,
        outcome="exited", words="ended at once",
    )  # fmt: skip


def hosts_of(fleet: Fleetful) -> list[str]:
    """The names of the rows of hosts, in their order."""
    table = fleet.app.screen.query_one(HostTable)
    lines = fleet.lines[table.region.y + 1 : table.region.bottom]
    return [line[1:].split()[0] for line in lines if line.strip()]


async def test_hosts_come_one_by_one() -> None:
    async with watched(*HOSTS) as fleet:
        assert "3 hosts, 0 seen  " in fleet.lines[0]
        assert "GPU" not in fleet.lines[0]
        legend = "□ free  ■ used  ▄ idle  ≈ hung  ! sick  – unknown"
        assert fleet.line_with(" free  unknown").strip() == "free  unknown"
        assert fleet.line_with("■ used").strip() == legend
        assert "connecting" in fleet.line_with("node2")
        await fleet.tell("node2", busy("node2"))
        assert hosts_of(fleet) == ["node2", "node1", "node3"]
        row = fleet.line_with("node2").split()
        assert row[1:7] == ["■□", "1/2", "H200", "45%", "278G", "alice"]
        assert "12ms" in row
        await fleet.tell("node3", LoginError("login wanted: publickey"))
        await fleet.tell("node1", SourceError("no route to host"))
        assert hosts_of(fleet) == ["node1", "node3", "node2"]
        assert "! no route to host; again in" in fleet.line_with("node1")
        assert "log in with L: publickey" in fleet.line_with("node3")
        assert "3 hosts, 1 seen · 1 alarm · 2 GPUs, 1 free · 1 user" in fleet.lines[0]
        assert fleet.line_with("free  node") == " free  node2:1"


async def test_the_processes_of_all_hosts() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        assert [line.split()[0] for line in fleet.lines if "train.py" in line] == list(HOSTS)
        await fleet.press("/")
        await fleet.type("host:node2")
        await fleet.press("enter")
        assert [line.split()[0] for line in fleet.lines if "train.py" in line] == ["node2"]
        assert "1 of 3" in fleet.text
        await fleet.press("escape", "u")
        assert fleet.line_with("1 GPU on node1: 1 process").split()[0] == "▸alice"
        assert fleet.line_with("1 GPU on node3: 1 process").split()[0] == "carol"
        await fleet.press("u", "enter")
        assert "of bob" in fleet.text
        assert "node2" in fleet.line_with("train.py")
        assert len([line for line in fleet.lines if "train.py" in line]) == 1
        await fleet.press("escape", "escape")
        assert len([line for line in fleet.lines if "train.py" in line]) == 3


async def test_a_host_opens_and_all_works_there() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("down", "down", "enter")
        assert isinstance(fleet.app.screen, MainScreen)
        assert "node2 · 2 GPUs, 1 free" in fleet.lines[0]
        assert "q hosts" in fleet.lines[-1]
        await fleet.tell("node2", busy("node2", 222, "bob", second=1))
        assert "--seed 222" in fleet.text
        await fleet.press("down", "down", "f9")
        assert "SIGTERM to 1 process on node2" in fleet.text
        [check] = [r for r in fleet.sources["node2"].requests if isinstance(r, Signal)]
        assert check.targets[0].process.pid == 222
        for host in ("node1", "node3"):
            assert not any(isinstance(r, Signal) for r in fleet.sources[host].requests)
        await fleet.press("escape", "H")
        assert "All is well" in fleet.text
        await fleet.press("q")
        assert isinstance(fleet.app.screen, MainScreen)
        await fleet.press("q")
        assert isinstance(fleet.app.screen, HostsScreen)
        assert fleet.line_with("node2").startswith("▸node2")
        assert "--seed 222" in fleet.text
        await fleet.press("enter", "escape")
        assert isinstance(fleet.app.screen, HostsScreen)
        await fleet.press("q")
        assert fleet.app._exit
    assert all(source.closed for source in fleet.sources.values())


async def test_a_process_opens_the_screen_of_its_host() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("tab", "down", "down", "enter")
        assert "node3" in fleet.lines[0]
        assert fleet.line_with("--seed 102").startswith("▸")


async def test_f9_leads_to_the_process_on_its_host() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("f9")
        assert "select a process first, or open its host with Enter" in fleet.lines[0]
        await fleet.press("tab", "down", "f9")
        assert "node2" in fleet.lines[0]
        assert "SIGTERM to 1 process on node2" in fleet.text
        [check] = [r for r in fleet.sources["node2"].requests if isinstance(r, Signal)]
        assert (check.number, check.targets[0].process.pid) == (0, 101)
        await fleet.press("escape")
        assert fleet.line_with("--seed 101").startswith("▸")


async def test_a_host_that_is_not_there_yet_says_what_it_waits_for() -> None:
    async with watched(*HOSTS) as fleet:
        await fleet.press("down", "enter")
        assert "connecting to node1" in fleet.lines[0]
        fleet.sources["node1"].link = UP
        await fleet.second()
        assert "waiting for the driver" in fleet.lines[0]


async def test_the_heading_says_what_a_host_has_not() -> None:
    smi_only = HostLink("connected", "nvidia-smi", age=0.1)
    async with watched(*HOSTS, settings=Session(readonly=True)) as fleet:
        await fleet.tell("node1", busy("node1"), smi_only)
        await fleet.press("home", "enter")
        assert isinstance(fleet.app.screen, MainScreen)
        assert "read only, nvidia-smi only  node1" in fleet.lines[0]
        await fleet.press("q", "f9")
        assert "SIGTERM" not in fleet.text


async def test_a_verdict_of_a_host_that_is_not_open_any_more() -> None:
    """The machine is asked for a frame all the same, and nothing of it is on another's screen."""
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("home", "enter", "down", "down", "f9")
        source = fleet.sources["node1"]
        [check] = [request for request in source.requests if isinstance(request, Signal)]
        order = replace(check, id="order", number=15)
        fleet.machine.request(order)
        await fleet.press("escape", "q", "down", "enter")
        assert "node2" in fleet.lines[0]
        source.queue.put(Reply(request="order", verdicts=(verdict_of(order),)))
        source.queue.join()
        await fleet.tick()
        assert source.requests[-1] == Refresh()
        assert "under way" not in fleet.text
        assert "ended at once" not in fleet.text


async def test_a_signal_whose_host_was_left_and_breaks() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("home", "enter", "down", "down", "f9")
        source = fleet.sources["node1"]
        [check] = [request for request in source.requests if isinstance(request, Signal)]
        fleet.machine.request(replace(check, id="order", number=15))
        await fleet.press("escape", "q")
        await fleet.tell("node1", SourceError("the connection was cut"))
        await fleet.press("r")
        await fleet.tell("node1", busy("node1"))
        await fleet.press("enter")
        assert "outcome of 1 signal unknown" in fleet.lines[0]


async def test_a_signal_whose_host_was_left_before_its_outcome() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("home", "enter", "down", "down", "f9")
        source = fleet.sources["node1"]
        [check] = [request for request in source.requests if isinstance(request, Signal)]
        await fleet.show(request=check.id, verdicts=(replace(verdict_of(check), outcome="alive"),))
        await fleet.press("enter")
        order = [request for request in source.requests if isinstance(request, Signal)][-1]
        assert order.number == 15
        await fleet.press("escape", "q")
        source.queue.put(Reply(request=order.id, verdicts=(verdict_of(order),)))
        source.queue.join()
        await fleet.tick()
        assert source.requests[-1] == Refresh()


async def test_a_host_that_is_not_open_keeps_a_past_in_brief() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        for second in range(1, 5):
            await fleet.tell("node1", busy("node1", second=second))
        await fleet.press("down", "enter")
        picture = fleet.machine.snapshot
        assert picture is not None
        key = picture.frame.gpus[0].key
        assert len(picture.history.values(key, "utilization")) == 5
        assert not picture.history.knows(key, "temperature")
        await fleet.tell("node1", busy("node1", second=5))
        assert picture.history.knows(key, "temperature")
        await fleet.press("q")
        await fleet.tell("node1", busy("node1", second=6))
        assert not picture.history.knows(key, "temperature")


async def test_a_host_that_breaks_while_it_is_open() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("down", "down", "enter", "H")
        await fleet.tell("node2", SourceError("the connection was cut"))
        assert isinstance(fleet.app.screen, ProblemScreen)
        assert "The connection was cut." in fleet.text
        assert "gputop  node2" in fleet.text
        assert "Esc hosts" in fleet.text
        assert "demo" not in fleet.text
        await fleet.press("d", "escape")
        assert isinstance(fleet.app.screen, HostsScreen)
        assert "! the connection was cut; again in" in fleet.line_with("node2")
        for _ in range(3):
            await fleet.second()
        assert fleet.sources["node2"].reconnects == 1
        assert "the connection was cut; connecting" in fleet.line_with("node2")
        await fleet.tell("node2", busy("node2"))
        assert "1/2" in fleet.line_with("node2")


async def test_a_host_comes_back_on_its_own_screen() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("down", "enter")
        await fleet.tell("node1", SourceError("the connection was cut"))
        await fleet.press("r")
        assert fleet.sources["node1"].reconnects == 1
        rebooted = busy("node1", 333)
        rebooted = replace(rebooted, host=replace(rebooted.host, boot_id="another"))
        await fleet.tell("node1", rebooted)
        assert isinstance(fleet.app.screen, MainScreen)
        assert "--seed 333" in fleet.text
        await fleet.press("q")
        assert "rebooted 0s ago" in fleet.line_with("node1")


async def test_a_pause_holds_the_picture_of_all() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("p")
        await fleet.tell("node1", busy("node1", 999))
        await fleet.second()
        await fleet.second()
        assert re.search(r"PAUSED, \ds old", fleet.lines[0])
        assert "--seed 999" not in fleet.text
        await fleet.press("p")
        await fleet.tick()
        assert "PAUSED" not in fleet.text
        assert "--seed 999" in fleet.text


async def test_a_picture_that_is_held_can_be_sorted_and_filtered() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("p")
        await fleet.tell("node1", busy("node1", 999))
        await fleet.press("s", "plus", "/")
        await fleet.type("host:node1")
        await fleet.press("enter")
        assert hosts_of(fleet) == ["node1"]
        assert "sorted by free GPUs" in fleet.lines[0]
        assert "--seed 100" in fleet.text
        assert "--seed 999" not in fleet.text


async def test_r_shows_one_new_picture_in_a_pause() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("p")
        await fleet.second()
        await fleet.press("r")
        assert "PAUSED, 1s old" in fleet.lines[0]
        await fleet.tell("node1", busy("node1", 888))
        assert "PAUSED  3 hosts" in fleet.lines[0]
        assert "--seed 888" in fleet.text
        await fleet.tell("node1", busy("node1", 999))
        assert "--seed 999" not in fleet.text


async def test_interval_and_refresh_are_for_all() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.tell("node3", SourceError("cut"))
        await fleet.press("plus", "r")
        assert fleet.lines[0].endswith(" 2s ")
        for host in ("node1", "node2"):
            assert fleet.sources[host].requests[-2:] == [SetInterval(2.0), Refresh()]
        assert fleet.sources["node3"].reconnects == 1


async def test_hosts_out_of_sight_are_asked_less_often() -> None:
    """Those of which neither the row nor a process is in sight, once they have been seen."""
    hosts = [f"node{number:02}" for number in range(30)]
    async with watched(*hosts, size=(100, 30)) as fleet:
        await fleet.second()
        for host in hosts:
            assert fleet.sources[host].requests == []
            await fleet.tell(host, busy(host))

        def asked() -> dict[float, list[str]]:
            """The hosts by the interval that they were last asked for."""
            by: dict[float, list[str]] = {}
            for host in hosts:
                last = [r for r in fleet.sources[host].requests if isinstance(r, SetInterval)][-1:]
                by.setdefault(last[0].seconds if last else 1.0, []).append(host)
            return by

        in_sight = hosts_of(fleet)
        assert asked() == {1.0: hosts[: len(in_sight)], 3.0: hosts[len(in_sight) :]}
        await fleet.press("end")
        await fleet.second()
        rows, processes = hosts_of(fleet), fleet.text.count("train.py")
        assert rows[-1] == hosts[-1]
        assert asked() == {1.0: [*hosts[:processes], *rows], 3.0: hosts[processes : -len(rows)]}
        assert len(asked()[3.0]) > 3
        before = asked()
        await fleet.press("enter")
        assert asked() == {1.0: hosts[-1:], 3.0: hosts[:-1]}
        await fleet.press("q")
        assert asked() == before
        late = UP._replace(age=4.0)
        for host in hosts:
            fleet.sources[host].link = late
        await fleet.second()
        assert f"{len(asked()[1.0])} alarms" in fleet.lines[0]
        for _ in range(3):
            await fleet.press("plus")
        assert asked() == {10.0: hosts}


async def test_the_interval_of_a_host_is_that_of_all() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("plus", "home", "enter")
        assert fleet.lines[0].endswith(" 2s ")
        await fleet.press("plus", "q")
        assert fleet.lines[0].endswith(" 5s ")
        assert fleet.sources["node3"].requests[-1] == SetInterval(5.0)


async def test_hosts_in_another_order() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.tell("node2", frame_on("node2", frame_of()))
        assert hosts_of(fleet) == ["node1", "node2", "node3"]
        await fleet.press("s")
        assert hosts_of(fleet) == ["node2", "node1", "node3"]
        assert "sorted by free GPUs" in fleet.lines[0]
        await fleet.press("s", "s")
        assert "sorted by attention" in fleet.lines[0]


async def test_only_who_wants_a_login_is_logged_in_to() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("L")
        assert fleet.line_with("node1").startswith("▸")
        await fleet.press("L")
        assert "node1 needs no login" in fleet.lines[0]


async def test_an_open_host_says_why_there_can_be_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(*HOSTS) as fleet:
        await fleet.tell("node1", LoginError("login wanted: publickey"))
        await fleet.press("home", "enter")

        def refuse() -> None:
            raise SourceError("no folder for the login")

        monkeypatch.setattr(fleet.machine, "login_command", refuse)
        await fleet.press("L")
        assert "No folder for the login." in fleet.text


async def test_three_hundred_hosts_and_small_screens() -> None:
    names = [f"node{number:03d}" for number in range(300)]
    async with watched(*names, size=(80, 24)) as fleet:
        for name in names:
            source = fleet.sources[name]
            source.link = UP
            source.queue.put(busy(name))
            source.queue.join()
        await fleet.tick()
        assert "300 hosts · 600 GPUs, 300 free · 1 user" in fleet.lines[0]
        assert "1-8 of 300" in fleet.text
        await fleet.press("end")
        assert fleet.line_with("▸").startswith("▸node299")
        await fleet.press("enter")
        assert "node299" in fleet.lines[0]
        await fleet.press("q")
        for size in ((40, 12), (10, 3), (200, 50)):
            await fleet.resize(*size)
        assert fleet.line_with("▸").startswith("▸node299")
        assert " hosts" in fleet.line_with("free  node")


async def test_another_size_while_gputop_ends_is_no_error() -> None:
    """The parts of a screen go one by one then."""
    async with watched(*HOSTS) as fleet:
        await fleet.app.screen.query_one(FreeLine).remove()
        await fleet.resize(100, 30)
        assert "node1" in fleet.text


async def test_the_keys_of_a_fleet_are_those_that_do_something() -> None:
    async with watched(*HOSTS, settings=Session(readonly=True)) as fleet:
        assert "read only" in fleet.lines[0]
        await fleet.press("question_mark")
        assert "A row per user; Enter: theirs" in fleet.text
        assert "Log in to this host by hand" not in fleet.text
        assert "in use, but its processes do no work" in await fleet.whole_page()
        await fleet.press("escape")
        assert "L log in" not in fleet.lines[-1]
        await fleet.tell("node3", LoginError("login wanted: publickey"))
        assert "L log in" in fleet.lines[-1]
        await fleet.press("question_mark")
        here = await fleet.whole_page()
        assert "Log in to this host by hand" in here
        for words in ("Try a CUDA_VISIBLE_DEVICES", "Tag the process", "Minute back or forward"):
            assert words not in here


def palette_of(fleet: Fleetful) -> str:
    """The titles of all actions that the palette has for the screen."""
    return "\n".join(c.title for c in fleet.app.get_system_commands(fleet.app.screen))


async def test_the_palette_of_a_fleet_has_what_does_something() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        assert "scroll left" in palette_of(fleet)
        assert "step back" not in palette_of(fleet)
        await fleet.press("down", "enter")
        assert "step back" in palette_of(fleet)


async def test_the_keys_of_a_host_are_those_of_its_machine() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("down", "enter", "question_mark")
        assert "Try a CUDA_VISIBLE_DEVICES" in fleet.text
        assert "Minute back or forward" in fleet.text
        assert "All, my own, a row a user" not in await fleet.whole_page()


async def test_the_numbers_of_a_host_are_whole() -> None:
    big = Host(name="big", memory_used=1100 * GIB, memory_total=2015 * GIB)
    async with watched("big", "small", size=(200, 30)) as fleet:
        await fleet.tell("big", frame_of(host=big), HostLink("connected", age=700.0))
        assert {"1100/2015G", "11m40s"} <= set(fleet.line_with("big").split())
    [age] = [column for column in NodeColumns(Session().thresholds).all if column.id == "age"]
    assert width_of(age.draw(ClusterNode("big", age=700.0), age.most)) <= age.most


async def test_the_narrowest_screen_still_has_the_names_of_hosts() -> None:
    name = "a-node-with-a-long-name"
    async with watched(name, "b", size=(22, 12)) as fleet:
        frame = frame_of(*map(gpu_of, range(8)))
        await fleet.tell(name, frame_on(name, frame))
        assert any(host.startswith("a-node-with") for host in hosts_of(fleet)), fleet.text


async def test_a_long_name_does_not_hide_how_many_users_there_are_besides() -> None:
    node = ClusterNode("node1", users=("bartholomew.longfellow", "bob", "carol"))
    async with shown(size=(60, 12)) as screen:
        columns = NodeColumns(Session().thresholds)
        table = HostTable(columns.sentence)
        await screen.main.mount(table, before="KeyLine")
        table.styles.height = 2
        await screen.drawn()
        table.show_hosts([node], columns.all)
        await screen.drawn()
        assert re.search(r" barth\w*… \+2 ", screen.line_with("node1"))


async def test_the_cursor_is_as_wide_on_a_host_that_is_down() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.tell("node3", SourceError("no route to host"))
        for host in ("node3", "node1"):
            await fleet.press("down")
            line = next(line for line in fleet.segments if host in "".join(s.text for s in line))
            assert all(segment.style and segment.style.reverse for segment in line), host


async def test_the_focus_of_the_terminal_connects_to_nobody() -> None:
    async with watched("node1", "node2", "node3") as fleet:
        await fleet.tell("node1", SourceError("no route to host"))
        await fleet.tell("node2", LoginError("node2 asks for a password"))
        await fleet.tell("node3", frame_of())
        for _ in range(5):
            fleet.app.post_message(events.AppBlur())
            fleet.app.post_message(events.AppFocus())
            await fleet.drawn()
        assert [source.reconnects for source in fleet.sources.values()] == [0, 0, 0]
        assert Refresh() in fleet.sources["node3"].requests
        assert Refresh() not in fleet.sources["node1"].requests
        await fleet.press("r")
        assert fleet.sources["node1"].reconnects == 1


async def test_a_host_that_comes_back_without_the_focus_is_asked_as_seldom() -> None:
    async with watched("node1", "node2", settings=Session(unfocused=10.0)) as fleet:
        await fleet.tell("node1", busy("node1"))
        await fleet.press("home", "enter")
        fleet.app.post_message(events.AppBlur())
        await fleet.tell("node1", SourceError("the connection was cut"))
        while not fleet.sources["node1"].reconnects:
            await fleet.second()
        assert fleet.sources["node1"].requests[-1] == SetInterval(10.0)


async def test_the_focus_of_the_terminal_leaves_a_silent_agent_its_signals() -> None:
    async with shown(frame_of()) as screen:
        screen.app.silence = 9
        screen.app.post_message(events.AppFocus())
        await screen.pilot.pause()
        assert screen.source.reconnects == 0
