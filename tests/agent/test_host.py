"""What the PCI bus says of NVIDIA cards, from a folder laid out as /sys is; Windows below."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gputop.agent.host import is_wsl, nvidia_cards
from gputop.model.machine.frame import PciCard
from tests.agent.driving import Json
from tests.conftest import NESTED, MachineFactory, needs_root, require_root

WINDOWS = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1) (gcc) #1 SMP\n"
UNDER_WINDOWS = [
    "unshare", "--mount", "sh", "-c",
    'mount -t tmpfs none "$0" && cd "$0" && touch dxg && ln -s /proc/self/fd fd &&'
    " for node in null zero full random urandom tty; do"
    ' touch $node && mount --bind /dev/$node $node || exit; done; mount --move "$0" /dev &&'
    ' cd / && exec "$@"',
]  # fmt: skip
"""Runs what follows a folder with a /dev of its own that has the device of WSL."""


def _device(sys: Path, bus_id: str, vendor: str, kind: str, driver: str | None = None) -> None:
    device = sys / "bus/pci/devices" / bus_id
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    (device / "device").write_text("0x2335\n")
    if driver is not None:
        (sys / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(sys / "drivers" / driver)


def test_nvidia_cards_are_named_with_bus_id_and_driver(tmp_path: Path) -> None:
    _device(tmp_path, "0000:3b:00.0", "0x10de", "0x030200", driver="nouveau")
    _device(tmp_path, "0000:17:00.0", "0x10de", "0x030000")
    _device(tmp_path, "0000:17:00.1", "0x10de", "0x040300")  # the card's sound
    _device(tmp_path, "0000:01:00.0", "0x1002", "0x030000")  # another vendor's
    (tmp_path / "bus/pci/devices/0000:99:00.0").mkdir()  # going away
    assert nvidia_cards(tmp_path) == (
        PciCard(bus_id="0000:17:00.0", device_id="2335", driver=None),
        PciCard(bus_id="0000:3b:00.0", device_id="2335", driver="nouveau"),
    )
    assert [str(card) for card in nvidia_cards(tmp_path)] == [
        "0000:17:00.0 (10de:2335, no driver)",
        "0000:3b:00.0 (10de:2335, driver nouveau)",
    ]


def test_no_pci_bus_is_no_card(tmp_path: Path) -> None:
    assert nvidia_cards(tmp_path) == ()


def test_windows_is_told_by_the_device_that_leads_there(tmp_path: Path) -> None:
    """The one rule for doctor and for all else; a kernel of Microsoft's alone says nothing."""
    (tmp_path / "dxg").touch()
    assert is_wsl(tmp_path / "dxg") is True
    assert is_wsl(tmp_path / "none") is False


@pytest.mark.system
def test_a_kernel_of_microsofts_alone_is_no_windows(
    machine: MachineFactory, tmp_path: Path
) -> None:
    """As in Azure: there the driver lists its processes, and none is none, but in a container."""
    require_root()
    version = tmp_path / "version"
    version.write_text(WINDOWS)
    mount = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /proc/version && exec "$@"']
    here = machine({"base": "h200x8", "gpus": 1, "processes": None, "gpu": {"memory": {"used": 0}}})
    done = here.run([*mount, str(version), sys.executable, "-m", "gputop", "--json"])
    frame = json.loads(done.stdout)
    assert frame["host"]["wsl"] is False
    [gpu] = frame["gpus"]
    assert gpu["listed"] == ("ours" if NESTED else "all")


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("listed", [None, []])
def test_no_gpu_is_free_under_windows(
    listed: list[Json] | None, machine: MachineFactory, tmp_path: Path
) -> None:
    """Whether the driver refuses the list of processes or gives an empty one."""
    here = machine({"base": "wsl", "gpu": {"compute": listed, "memory": {"used": 0}}})

    def run(flag: str) -> str:
        done = here.run([*UNDER_WINDOWS, str(tmp_path), sys.executable, "-m", "gputop", flag])
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    frame = json.loads(run("--json"))
    assert frame["host"]["wsl"] is True
    assert frame["gpus"][0]["listed"] == "none"
    text = run("--once")
    assert "  1 GPU  " in text  # not "0 free": that is not known
    assert "\nGPU 0: WSL: Windows runs the driver, which lists no processes here\n" in text
    assert text.endswith("the driver does not list the processes here: Windows runs it (WSL)\n")
