"""Where the GPUs stand: asked of the driver, and of the PCI bus where that is silent."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pynvml

from gputop.agent.gpu.links import ask
from gputop.agent.host import FolderPath, card_file
from gputop.model.machine.topology import Topology, cpu_list

_READ, _WRITE = 0, 1  # NVML_P2P_CAPS_INDEX_*; pynvml's own READ is a tuple by a slip
_WORDS = 128
"""Of 64 bits: room for 8192 CPUs, the most that Linux knows."""
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?\Z", re.ASCII)


def read_topology(gpus: Sequence[tuple[Any, str | None]], sys: FolderPath = "/sys") -> Topology:
    """Of GPUs (handle, PCI bus id). May hang as any driver call."""
    allowed = os.sched_getaffinity(0)
    near = [_cpus(handle) or _local_cpus(sys, bus_id) for handle, bus_id in gpus]
    return Topology(
        p2p=tuple(
            tuple(a is not b and _reaches(a, b) for b, _ in gpus) if a else (None,) * len(gpus)
            for a, _ in gpus
        ),
        cpus=tuple(map(cpu_list, near)),
        usable_cpus=tuple(cpu_list(allowed.intersection(cpus)) for cpus in near),
        numa=tuple(_node(handle, sys, bus_id) for handle, bus_id in gpus),
        gpu_numa=tuple(_own_node(handle) for handle, _ in gpus),
    )


def _reaches(a: Any, b: Any) -> bool | None:
    answers = {ask(pynvml.nvmlDeviceGetP2PStatus, a, b, cap) for cap in (_READ, _WRITE) if b}
    if answers == {pynvml.NVML_P2P_STATUS_OK}:
        return True
    return None if answers <= {None, pynvml.NVML_P2P_STATUS_UNKNOWN} else False


def _cpus(handle: Any) -> Collection[int]:
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    mask = ask(pynvml.nvmlDeviceGetCpuAffinityWithinScope, handle, _WORDS, scope)
    return _bits(mask or ask(pynvml.nvmlDeviceGetCpuAffinity, handle, _WORDS) or ())


def _node(handle: Any, sys: FolderPath, bus_id: str | None) -> int | None:
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    nodes = _bits(ask(pynvml.nvmlDeviceGetMemoryAffinity, handle, _WORDS, scope) or ())
    if nodes:
        return nodes[0] if len(nodes) == 1 else None
    text = card_file(bus_id, "numa_node", sys) or ""
    return int(text) if text.isdecimal() else None  # -1: the firmware does not say


def _own_node(handle: Any) -> int | None:
    node = ask(pynvml.nvmlDeviceGetNumaNodeId, handle)
    return None if node is None or node < 0 else node


def _local_cpus(sys: FolderPath, bus_id: str | None) -> Collection[int]:
    text = card_file(bus_id, "local_cpulist", sys) or ""
    return [cpu for part in text.split(",") for cpu in _range(part)]


def _range(part: str) -> Iterable[int]:
    match = _RANGE.match(part)
    return range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()


def _bits(words: Iterable[int]) -> list[int]:
    return [64 * n + bit for n, word in enumerate(words) for bit in range(64) if word >> bit & 1]
