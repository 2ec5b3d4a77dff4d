"""The screen of many hosts: what its filter leaves, and keys that act on a process of a host."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Signal
from gputop.settings import Session
from gputop.tui.hosts import HostsScreen
from gputop.tui.main import MainScreen
from tests.builders_tui import NOON, frame_of, process_of
from tests.conftest import rest_long
from tests.tui.fleets import Fleetful, watched
from tests.tui.test_fleet import HOSTS, all_seen, busy, hosts_of


@rest_long(
    ("typed", "hosts"),
    ("de2", ["node2"]),
    ("node", list(HOSTS)),
    ("host:node3", ["node3"]),
    ("host:node1 or host:node3", ["node1", "node3"]),
    ("carol", ["node3"]),  # by a process there
    ("!node2", ["node1", "node3"]),
    ("host:nobody", []),
)
async def test_the_filter_leaves_hosts_as_it_is_typed(typed: str, hosts: list[str]) -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("/")
        await fleet.type(typed)
        assert hosts_of(fleet)[: len(hosts)] == (hosts or [])
        assert sum(name in "".join(hosts_of(fleet)) for name in HOSTS) == len(hosts)
        assert (f"{len(hosts)} of 3 hosts" in fleet.lines[0]) is (len(hosts) < 3)
        assert ("no host fits the filter; Esc drops it" in fleet.text) is (not hosts)
        await fleet.press("escape")
        assert hosts_of(fleet) == list(HOSTS)


async def test_free_gpus_are_those_of_the_hosts_that_the_filter_leaves() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        assert fleet.line_with(" free  ").split()[1:4] == ["node1:1", "node2:1", "node3:1"]
        await fleet.press("/")
        await fleet.type("node2")
        assert fleet.line_with(" free  ").split()[1:3] == ["node2:1"]


async def test_what_hosts_have_gives_way_by_rank() -> None:
    async with watched(*HOSTS, size=(200, 30)) as fleet:
        await all_seen(fleet)
        labels = fleet.lines[1].split()
        assert labels[3:6] == ["MODEL", "UTIL", "MEM-FREE"]
        assert "DRIVER" in labels
        assert "580.95.05" in fleet.line_with("node1")
        await fleet.resize(80, 24)
        labels = fleet.lines[1].split()
        assert labels[:7] == ["HOST", "GPUS", "FREE", "MODEL", "UTIL", "MEM-FREE", "WHO"]
        assert "DRIVER" not in labels
        await fleet.resize(40, 12)
        assert fleet.lines[1].split() == ["HOST", "GPUS", "FREE", "ATTENTION"]
        head = fleet.line_with("COMMAND").split()
        assert head == ["HOST", "GPU", "USER", "COMMAND"]


async def test_processes_have_the_columns_of_a_machine() -> None:
    async with watched(*HOSTS, size=(150, 40)) as fleet:
        await all_seen(fleet)
        head = fleet.line_with("COMMAND").split()
        assert head[:6] == ["HOST", "GPU", "PID", "USER", "GPU-MEM", "SM%"]
        await fleet.press("down", "enter")
        of_machine = [label for label in fleet.line_with("COMMAND").split() if label != "CUDA"]
        assert ["HOST", *of_machine] == head


async def test_a_column_that_told_something_is_hidden_again() -> None:
    async with watched("node1", "node2", size=(150, 40)) as fleet:
        waiting = frame_of(process_of(1, state="D"), time=NOON)
        for second, frame in ((0, waiting), (1, frame_of(process_of(1), time=NOON + 1))):
            await fleet.tell("node1", frame)
            assert " S " in fleet.line_with("COMMAND"), second
        await fleet.tell("node1", frame_of(process_of(1), time=NOON + 62))
        assert " S " not in fleet.line_with("COMMAND")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("m", "mapping"),
        ("H", "health"),
        ("7", "pid search"),
        ("comma", "step back"),
        ("z", "ended"),
    ],
)
async def test_a_key_of_a_host_says_that_it_is_one(key: str, words: str) -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press(key)
        assert f"{words}: open a host first, with Enter" in fleet.lines[0]
        assert isinstance(fleet.app.screen, HostsScreen)


async def chosen(fleet: Fleetful) -> None:
    """Choose the process of node2 among those of all hosts."""
    await all_seen(fleet)
    await fleet.press("tab", "down")
    assert fleet.line_with("--seed 101").startswith("▸node2")


async def test_w_waits_for_a_process_on_its_host() -> None:
    async with watched(*HOSTS) as fleet:
        await chosen(fleet)
        await fleet.press("W")
        assert "node2" in fleet.lines[0]
        assert fleet.line_with("--seed 101").startswith("W")
        await fleet.press("q")
        assert isinstance(fleet.app.screen, HostsScreen)
        assert fleet.line_with("--seed 101").startswith("W")
        assert not fleet.line_with("--seed 100").startswith("W")


async def test_space_tags_a_process_on_its_host() -> None:
    async with watched(*HOSTS) as fleet:
        await chosen(fleet)
        await fleet.press("space")
        assert "node2" in fleet.lines[0]
        assert "1 tagged" in fleet.text
        assert fleet.line_with("--seed 101").startswith("»")


def _rebooted(frame: Frame) -> Frame:
    return replace(frame, host=replace(frame.host, boot_id="another"))


def _reused(frame: Frame) -> Frame:
    later = process_of(101, user="bob", start_ticks=999_999)
    [process] = frame.processes
    return replace(frame, processes=(replace(later, gpu_uuid=process.gpu_uuid),))


@pytest.mark.parametrize("key", ["f9", "W", "space"])
@pytest.mark.parametrize("change", [_rebooted, _reused])
async def test_no_key_is_for_another_process_with_that_pid(
    key: str, change: Callable[[Frame], Frame]
) -> None:
    async with watched(*HOSTS) as fleet:
        await chosen(fleet)
        await fleet.press("p")  # the list stands still, and the host goes on
        await fleet.tell("node2", change(busy("node2", 101, "bob", second=5)))
        await fleet.press(key)
        assert isinstance(fleet.app.screen, MainScreen)
        assert "PID 101: it has ended, or left the GPUs" in fleet.text
        assert not fleet.line_with("--seed 101")[0].strip()
        assert "tagged" not in fleet.text
        assert not any(isinstance(r, Signal) for r in fleet.sources["node2"].requests)


async def test_a_group_is_no_process_to_act_on() -> None:
    async with watched(*HOSTS) as fleet:
        await all_seen(fleet)
        await fleet.press("u", "u", "tab", "down", "W")
        assert "select a process first" in fleet.lines[0]
        assert isinstance(fleet.app.screen, HostsScreen)


async def test_a_process_opens_though_its_pane_was_closed() -> None:
    async with watched(*HOSTS, settings=Session(me="alice", panes=("gpus",))) as fleet:
        await chosen(fleet)
        await fleet.press("enter")
        assert fleet.line_with("--seed 101").startswith("▸")
