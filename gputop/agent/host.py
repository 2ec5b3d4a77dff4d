"""The machine around the GPUs, and what its PCI bus says of them."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

import psutil

from gputop.agent.process.namespaces import in_first_namespace
from gputop.model.frame import Host, PciCard
from gputop.model.text import printable

_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"


class HostFacts:
    """Host facts of now; CPU use is since the call before."""

    def __init__(self) -> None:
        self._name = printable(socket.gethostname(), 64)
        self._boot_id = read_file(Path("/proc/sys/kernel/random/boot_id"))
        self._cpu_count = os.cpu_count()
        self._asked = False
        self.nested = not in_first_namespace()

    def read(self) -> Host:
        """The host now."""
        cpu = psutil.cpu_percent(interval=None) / 100
        memory = psutil.virtual_memory()
        asked, self._asked = self._asked, True
        return Host(
            name=self._name,
            boot_id=self._boot_id,
            cpu=cpu if asked else None,
            cpu_count=self._cpu_count,
            memory_total=memory.total,
            memory_used=memory.total - memory.available,
            nested=self.nested,
            wsl=is_wsl(),
        )


@cache
def is_wsl(version: Path = Path("/proc/version")) -> bool:
    """Whether this is the Windows Subsystem for Linux, by the name of its kernel."""
    return "microsoft" in (read_file(version) or "").lower()


def nvidia_cards(sys: Path = Path("/sys")) -> tuple[PciCard, ...]:
    """The NVIDIA display controllers of the PCI bus, found without a driver."""
    cards = []
    for device in sorted((sys / "bus/pci/devices").glob("*")):
        if read_file(device / "vendor") != _NVIDIA:
            continue
        if not (read_file(device / "class") or "").startswith(_DISPLAY_CLASS):
            continue
        driver = device / "driver"
        cards.append(
            PciCard(
                bus_id=device.name,
                device_id=(read_file(device / "device") or "").removeprefix("0x"),
                driver=driver.resolve().name if driver.exists() else None,
            )
        )
    return tuple(cards)


def card_file(bus_id: str | None, name: str, sys: Path = Path("/sys")) -> str | None:
    """A file of the PCI bus about the card at a bus id as NVML writes it; None where there is
    none."""
    if bus_id is None:
        return None
    domain, _, rest = bus_id.lower().partition(":")
    return read_file(sys / f"bus/pci/devices/{domain[-4:]}:{rest}" / name)


def kernel_module_version(root: Path = Path("/")) -> str | None:
    """Of the loaded NVIDIA kernel module; None where none is loaded."""
    places = "proc/driver/nvidia/version", "sys/module/nvidia/version"
    text = read_file(root / places[0]) or read_file(root / places[1])
    for word in (text or "").split():
        if word[:1].isdigit() and word.count(".") >= 1:
            return printable(word, 32)
    return None


def read_file(path: Path) -> str | None:
    """Its text without the blanks around it; None where it cannot be read."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None
