"""A GPU that the kernel has switched off is left alone until somebody else wakes it."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from gputop.agent.host import card_file
from tests.agent.driving import Agent, Json, plain
from tests.agent.test_calls import UNDIVIDED
from tests.conftest import MachineFactory, needs_everybody, needs_root
from tests.driver import Machine
from tests.patience import until

IDENTITY = {"index", "uuid", "name", "pci_bus_id", "minor", "sm_clock_max", "cores", "sm"}
"""Without what is asked as a section."""


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine({**UNDIVIDED, "gpu": {**UNDIVIDED["gpu"], "compute": []}}, log=True)


@pytest.fixture
def status(here: Machine, tmp_path: Path) -> Path:
    """The file that says whether GPU 1 sleeps, below a /sys that has nothing else."""
    bus_id: str = here.gpu(1)["pci"]["bus_id"][4:].lower()
    path = tmp_path / "sys/bus/pci/devices" / bus_id / "power/runtime_status"
    path.parent.mkdir(parents=True)
    path.write_text("active\n")
    return path


def below(status: Path) -> tuple[str, ...]:
    """The prefix for those who are to see it."""
    sys_ = str(status).partition("/bus/")[0]
    return ("unshare", "--mount", "sh", "-c", 'mount --rbind "$0" /sys && exec "$@"', sys_)


def told(gpu: Json) -> set[str]:
    return {name for name, value in plain(gpu).items() if value not in (None, [], False)}


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("word", ["suspended", "suspending"])
def test_no_call_while_it_sleeps(word: str, here: Machine, status: Path) -> None:
    with Agent(here, prefix=below(status)) as agent:
        awake = agent.line()["gpus"][1]
        assert (awake["state"], awake["memory_used"] is None) == ("answers", False)
        until(lambda: ("nvmlEventSetFree", None) in here.calls())
        until(lambda: None not in map(agent.refresh().get, ("links", "topology")))
        status.write_text(f"{word}\n")
        here.forget_calls()
        for _ in range(12):  # what is asked seldom would be due, too
            other, gpu = agent.refresh()["gpus"]
        calls = Counter(index for _, index in here.calls())
        assert (calls[1], calls[0] > 12) == (0, True)
        assert (gpu["state"], gpu["error"], gpu["stale_for"]) == ("asleep", None, None)
        assert told(gpu) == IDENTITY | {"state", "listed"}
        assert {name: gpu[name] for name in IDENTITY} == {name: awake[name] for name in IDENTITY}
        assert gpu["identity"] == awake["identity"]
        assert (other["state"], other["utilization"] is None) == ("answers", False)
        status.write_text("active\n")
        again = agent.refresh()["gpus"][1]
        assert told(again) == told(awake)
        assert Counter(index for _, index in here.calls())[1] > 0


@pytest.mark.system
@needs_root
@needs_everybody
def test_once_says_so_and_it_is_not_free(here: Machine, status: Path) -> None:
    """With fine-grained power control processes may hold memory of a GPU that sleeps."""
    here.change(gpu=0, utilization={"gpu": 0}, ecc={"uncorrected": 0})
    status.write_text("suspended\n")
    prefix, gputop = below(status), [sys.executable, "-m", "gputop"]
    done = here.run([*prefix, *gputop, "--once"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 GPUs, 1 free" in done.stdout
    [_, row] = [line for line in done.stdout.splitlines() if "NVIDIA H200" in line]
    assert row.endswith("  asleep")
    done = here.run([*prefix, *gputop, "doctor"])
    assert "ok       GPU 1: asleep, and not queried, since that would wake it" in done.stdout
    assert "GPU 1 (H200), because of the card or the driver" not in done.stdout


def test_where_the_bus_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "bus/pci/devices/0000:0a:00.0").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:0a:00.0/numa_node").write_text("1\n")
    assert card_file("00000000:0A:00.0", "numa_node", tmp_path) == "1"
    assert card_file("00000000:0A:00.0", "power/runtime_status", tmp_path) == ""
    assert card_file("00000000:0B:00.0", "numa_node", tmp_path) == ""
    assert card_file(None, "numa_node", tmp_path) == ""
