"""Where GPUs stand in the machine: who reaches whose memory, and which CPUs are near.

How they are connected is `model.links`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_LEAST = 3
"""CPUs at equal distances that are worth a stride."""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """By NVML's index; None where neither the driver nor the PCI bus tells."""

    p2p: tuple[tuple[bool | None, ...], ...] = ()
    """Whether the GPU of the row can read and write the memory of the column's. False for itself,
    as StreamExecutor prints it."""
    cpus: tuple[str | None, ...] = ()
    """The CPUs of its NUMA node, in the form of `taskset -c`."""
    usable_cpus: tuple[str | None, ...] = ()
    """Those of them on which the agent may run; None where that is none of them."""
    numa: tuple[int | None, ...] = ()
    """The NUMA node of those CPUs."""
    gpu_numa: tuple[int | None, ...] = ()
    """The NUMA node that the GPU's own memory is, where it is one (Grace Hopper)."""


def cpu_list(cpus: Iterable[int]) -> str | None:
    """`0-15,64-79`, or `0-62:2` where every other one counts; None for no CPU.

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
