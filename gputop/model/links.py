"""How well GPUs are connected, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

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
"""Of `NV18` by its letters."""

ITSELF = "X"
_PCIE = ("SYS", "NODE", "PHB", "PXB", "PIX")


def rating(link: str | None) -> int:
    """The better a connection, the more; 0: not known."""
    if link is None:
        return 0
    if link.startswith("NV") and link[2:].isdecimal():
        return len(_PCIE) + int(link[2:])
    return _PCIE.index(link) + 1 if link in _PCIE else 0


def connection(links: Links | None, indices: Collection[int]) -> tuple[int, int]:
    """Rate a set of GPUs: its worst connection, then all of them together."""
    if links is None or not all(index < len(links) for index in indices):
        return 0, 0
    rated = [rating(links[a][b]) for a, b in combinations(sorted(indices), 2)]
    return min(rated, default=0), sum(rated)
