"""Reads the machine around the GPUs, and what its PCI bus says about them."""

from __future__ import annotations

import math
import os
import socket
import time
from functools import cache

import psutil
from msgspec.structs import replace

from gputop.agent.process.cuda_context import surroundings
from gputop.agent.process.namespaces import in_first_namespace
from gputop.agent.process.procfs import read_short
from gputop.model.machine.frame import Host, PciCard
from gputop.model.machine.text import printable

FolderPath = str | os.PathLike[str]

_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
_LEAST = 0.05
"""The shortest span, in seconds, to report CPU use for: the kernel counts in hundredths."""


class HostFacts:
    """Reads the host. CPU use is measured since the `read` before."""

    def __init__(self) -> None:
        self.nested = not in_first_namespace()
        self._fixed = Host(
            name=printable(socket.gethostname(), 64),
            boot_id=read_line("/proc/sys/kernel/random/boot_id") or None,
            cpu_count=psutil.cpu_count(),
            nested=self.nested,
            wsl=is_wsl(),
            surroundings=surroundings(),
        )
        self._counted = math.inf

    def read(self) -> Host:
        before, self._counted = self._counted, time.monotonic()
        cpu, memory = psutil.cpu_percent(), psutil.virtual_memory()
        return replace(
            self._fixed,
            cpu=cpu / 100 if self._counted - before >= _LEAST else None,
            memory_total=memory.total,
            memory_used=memory.total - memory.available,
        )


@cache
def is_wsl(device: FolderPath = "/dev/dxg") -> bool:
    """Return whether Windows runs the GPUs' driver, as in WSL (Windows Subsystem for Linux): by a
    device, which containers there have too. Microsoft's kernels also run elsewhere."""
    return os.path.exists(device)


def nvidia_cards(sys: FolderPath = "/sys") -> tuple[PciCard, ...]:
    """Return the NVIDIA display controllers on the PCI bus, found without a driver."""
    cards = []
    bus = f"{sys}/bus/pci/devices"
    for bus_id in sorted(os.listdir(bus)) if os.path.isdir(bus) else ():
        device = f"{bus}/{bus_id}"
        is_display = read_line(f"{device}/class").startswith(_DISPLAY_CLASS)
        if not is_display or read_line(f"{device}/vendor") != _NVIDIA:
            continue
        driver = os.path.realpath(f"{device}/driver")
        cards.append(
            PciCard(
                bus_id=bus_id,
                device_id=read_line(f"{device}/device").removeprefix("0x"),
                driver=os.path.basename(driver) if os.path.exists(driver) else None,
            )
        )
    return tuple(cards)


def card_file(bus_id: str | None, name: str, sys: FolderPath = "/sys") -> str:
    """Return the text of a PCI bus file about the card with a bus id as NVML writes it; empty if it
    cannot be read."""
    domain, _, rest = (bus_id or "").lower().partition(":")
    return read_line(f"{sys}/bus/pci/devices/{domain[-4:]}:{rest}/{name}")


def kernel_module_version(root: FolderPath = "/") -> str | None:
    paths = "proc/driver/nvidia/version", "sys/module/nvidia/version"
    text = read_line(f"{root}/{paths[0]}") or read_line(f"{root}/{paths[1]}")
    for word in text.split():
        if word[:1].isdigit() and word.count(".") >= 1:
            return printable(word, 32)
    return None


def read_line(path: str) -> str:
    """Return a short file's text without blanks around it; empty if it cannot be read."""
    return read_short(path).decode("utf-8", "replace").strip()
