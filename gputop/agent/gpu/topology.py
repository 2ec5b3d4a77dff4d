"""Reads where the GPUs are and how they are connected: from the driver, or from the PCI bus if the
driver does not answer.

Any of these calls may hang.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import pynvml

from gputop.agent.gpu.driver import ask_driver
from gputop.agent.host import FolderPath, card_file
from gputop.model.cuda.enumeration import normalize_bus_id
from gputop.model.machine.topology import ITSELF, Links, Topology, cpu_list

_PciAddress = tuple[int, int, int]
_SWITCH = (-1, -1, -1)

UP, ASLEEP = 1, 2
"""Values of NVML_NVLINK_STATE_*; 3 (R615) is a link that is up and carries no traffic."""
_IN_USE = UP, ASLEEP

_LEVELS: dict[int | None, str] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",  # two GPUs of one board
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
_READ, _WRITE = 0, 1  # NVML_P2P_CAPS_INDEX_*; pynvml's own READ is a tuple by mistake
_WORDS = 128
"""Words of 64 bits: room for 8192 CPUs, the most that Linux knows."""
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?\Z", re.ASCII)


class PlacedGpu(NamedTuple):
    """A GPU, and what is known of where it is."""

    handle: Any
    """NVML's handle; None while it does not answer."""
    bus_id: str | None
    numa_node: int | None = None
    """The NUMA node that its memory is."""
    link_states: Sequence[int] | None = None
    """Those of its NVLinks; None: they are not known yet."""


def read_links(gpus: Sequence[PlacedGpu]) -> Links:
    """Return the link of every pair of GPUs as `nvidia-smi topo -m` writes it; None if it is
    unknown."""
    count = len(gpus)
    ports = [_ports(gpu) for gpu in gpus]
    rows: list[list[str | None]] = [[None] * count for _ in range(count)]
    for a in range(count):
        rows[a][a] = ITSELF
        for b in range(a + 1, count):
            links = _between(ports[a], ports[b], normalize_bus_id(gpus[b].bus_id))
            level = None if links else _level(gpus[a].handle, gpus[b].handle)
            rows[a][b] = rows[b][a] = f"NV{links}" if links else level
    return tuple(map(tuple, rows))


def link_states(ask: Callable[[Callable[[Any, int], int], int], int | None]) -> list[int]:
    """Return the states (NVML_NVLINK_STATE_*) of all NVLinks of the GPU that `ask` is for."""
    states: list[int] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = ask(pynvml.nvmlDeviceGetNvLinkState, link)
        if state is None:
            break
        states.append(state)
    return states


def links_in_use(states: Sequence[int] | None) -> int | None:
    """Return how many NVLinks lead somewhere, those that sleep too; None if it is not known."""
    return None if states is None else sum(state in _IN_USE for state in states)


def _ports(gpu: PlacedGpu) -> Counter[_PciAddress]:
    """Count a GPU's working NVLinks by the PCI address at their other end; all switches are one."""
    ports: Counter[_PciAddress] = Counter()
    handle, states = gpu.handle, gpu.link_states
    if states is None:
        states = link_states(lambda call, link: ask_driver(call, handle, link))
    for link, state in enumerate(states):
        if state not in _IN_USE:
            continue
        kind = ask_driver(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ports[_SWITCH] += 1
        elif info := ask_driver(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link):
            ports[info.domain, info.bus, info.device] += 1
    return ports


def _between(
    a: Counter[_PciAddress], b: Counter[_PciAddress], b_address: _PciAddress | None
) -> int:
    direct = a[b_address] if b_address is not None else 0
    return direct or min(a[_SWITCH], b[_SWITCH])


def _level(a: Any, b: Any) -> str | None:
    return _LEVELS.get(ask_driver(pynvml.nvmlDeviceGetTopologyCommonAncestor, a, b))


def read_topology(gpus: Sequence[PlacedGpu], sys: FolderPath = "/sys") -> Topology:
    allowed = os.sched_getaffinity(0)
    near = [_cpus(gpu.handle) or _local_cpus(sys, gpu.bus_id) for gpu in gpus]
    handles = [gpu.handle for gpu in gpus]
    return Topology(
        p2p=tuple(
            tuple(a is not b and _reaches(a, b) for b in handles) if a else (None,) * len(gpus)
            for a in handles
        ),
        cpus=tuple(map(cpu_list, near)),
        usable_cpus=tuple(cpu_list(allowed.intersection(cpus)) for cpus in near),
        numa=tuple(_node(gpu.handle, sys, gpu.bus_id) for gpu in gpus),
        gpu_numa=tuple(gpu.numa_node for gpu in gpus),
    )


def _reaches(a: Any, b: Any) -> bool | None:
    answers = {ask_driver(pynvml.nvmlDeviceGetP2PStatus, a, b, cap) for cap in (_READ, _WRITE)}
    if answers == {pynvml.NVML_P2P_STATUS_OK}:
        return True
    return None if answers <= {None, pynvml.NVML_P2P_STATUS_UNKNOWN} else False


def _cpus(handle: Any) -> Collection[int]:
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    mask = ask_driver(pynvml.nvmlDeviceGetCpuAffinityWithinScope, handle, _WORDS, scope)
    return _bits(mask or ask_driver(pynvml.nvmlDeviceGetCpuAffinity, handle, _WORDS) or ())


def _node(handle: Any, sys: FolderPath, bus_id: str | None) -> int | None:
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    nodes = _bits(ask_driver(pynvml.nvmlDeviceGetMemoryAffinity, handle, _WORDS, scope) or ())
    if nodes:
        return nodes[0] if len(nodes) == 1 else None
    text = card_file(bus_id, "numa_node", sys)
    return int(text) if text.isdecimal() else None  # -1: the firmware does not say


def _local_cpus(sys: FolderPath, bus_id: str | None) -> Collection[int]:
    parts = card_file(bus_id, "local_cpulist", sys).split(",")
    return [cpu for part in parts for cpu in _range(part)]


def _range(part: str) -> Iterable[int]:
    match = _RANGE.match(part)
    return range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()


def _bits(words: Iterable[int]) -> list[int]:
    return [64 * n + bit for n, word in enumerate(words) for bit in range(64) if word >> bit & 1]
