"""What the PCI bus says of NVIDIA cards, from a folder laid out as /sys is."""

from __future__ import annotations

from pathlib import Path

from gputop.agent.host import nvidia_cards
from gputop.model.frame import PciCard


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
