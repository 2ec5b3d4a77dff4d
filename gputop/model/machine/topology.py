"""Where GPUs are in the machine: how they are connected, which one reaches the memory of which, and
which CPUs are near."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations

import msgspec

_LEAST = 3
"""Fewest CPUs at equal distances that are written with a stride."""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """By NVML's index; None if neither the driver nor the PCI bus reports it."""

    p2p: tuple[tuple[bool | None, ...], ...] = ()
    """Whether the GPU of the row can read and write the memory of the column's; false for itself,
    as StreamExecutor prints it."""
    cpus: tuple[str | None, ...] = ()
    """The CPUs of its NUMA node, in the form of `taskset -c`."""
    usable_cpus: tuple[str | None, ...] = ()
    """Those of them on which gputop may run; None if there are none."""
    numa: tuple[int | None, ...] = ()
    """The NUMA node of those CPUs."""
    gpu_numa: tuple[int | None, ...] = ()
    """The NUMA node that the GPU's own memory is, if it is one (Grace Hopper)."""


def cpu_list(cpus: Iterable[int]) -> str | None:
    """Return CPUs as `0-15,64-79`, or `0-62:2` for every other one; None for no CPU.

    `taskset -c` reads both (its manual: "0-31:2").
    """
    left = sorted(set(cpus))
    parts = []
    while left:
        step = left[1] - left[0] if len(left) > 1 else 1
        end = 1
        while end < len(left) and left[end] - left[end - 1] == step:
            end += 1
        if step > 1 and end < _LEAST:
            end = 1
        stride = f":{step}" if step > 1 else ""
        parts.append(f"{left[0]}-{left[end - 1]}{stride}" if end > 1 else str(left[0]))
        left = left[end:]
    return ",".join(parts) or None


Links = tuple[tuple[str | None, ...], ...]
"""Row and column by NVML index; the diagonal is `X`; None: not known."""

MEANINGS = {
    "NV": "a bond of so many NVLinks, also through NVSwitches",
    "PIX": "at most one PCIe bridge between them",
    "PXB": "several PCIe bridges, and no host bridge",
    "PHB": "a PCIe host bridge, typically the CPU",
    "NODE": "the interconnect between host bridges of one NUMA node",
    "SYS": "the interconnect between NUMA nodes",
}
"""What each rating means; `NV` stands for `NV18` and the like."""

ITSELF = "X"
_PCIE = ("SYS", "NODE", "PHB", "PXB", "PIX")


def rating(link: str | None) -> int:
    """Return a number, the greater the better the connection; 0: not known."""
    if link is None:
        return 0
    if many := nvlinks(link):
        return len(_PCIE) + many
    return _PCIE.index(link) + 1 if link in _PCIE else 0


def nvlinks(link: str | None) -> int:
    """Return of how many NVLinks a connection is a bond; 0 if of none."""
    return int(link[2:]) if link and link[:2] == "NV" and link[2:].isdecimal() else 0


def connection(links: Links | None, indices: Collection[int]) -> tuple[int, int]:
    """Rate a set of GPUs: its worst connection, then the sum of all; 0, 0 if not known."""
    if links is None or not all(index < len(links) for index in indices):
        return 0, 0
    rated = [rating(links[a][b]) for a, b in combinations(sorted(indices), 2)]
    return min(rated, default=0), sum(rated)
