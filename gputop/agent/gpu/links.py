"""How the GPUs are connected, as `nvidia-smi topo -m` writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pynvml

from gputop.model.cuda.enumeration import normalize_bus_id
from gputop.model.machine.topology import ITSELF, Links

T = TypeVar("T")
_PciAddress = tuple[int, int, int]
_SWITCH = (-1, -1, -1)

UP, ASLEEP = 1, 2
"""Of NVML_NVLINK_STATE_*; 3 (R615) is a link that is up and carries no traffic."""

_LEVELS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",  # two GPUs of one board
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}


def read_links(gpus: Sequence[tuple[Any, str | None]]) -> Links:
    """The connection of every pair of GPUs (handle, PCI bus id); None where it is not known.

    May hang as any driver call; a GPU without a handle has no known connection.
    """
    count = len(gpus)
    ports = [_ports(handle) for handle, _ in gpus]
    rows: list[list[str | None]] = [[None] * count for _ in range(count)]
    for a in range(count):
        rows[a][a] = ITSELF
        for b in range(a + 1, count):
            links = _between(ports[a], ports[b], normalize_bus_id(gpus[b][1]))
            rows[a][b] = rows[b][a] = f"NV{links}" if links else _level(gpus[a][0], gpus[b][0])
    return tuple(map(tuple, rows))


def link_states(ask: Callable[[Callable[[Any, int], int], int], int | None]) -> list[int]:
    """The state of every NVLink that the GPU has which `ask` asks, as NVML_NVLINK_STATE_*."""
    states: list[int] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = ask(pynvml.nvmlDeviceGetNvLinkState, link)
        if state is None:
            break
        states.append(state)
    return states


def _ports(handle: Any) -> Counter[_PciAddress]:
    """By what is at their other end, how many of its NVLinks work; switches are all one."""
    ports: Counter[_PciAddress] = Counter()
    for link, state in enumerate(link_states(lambda call, link: ask(call, handle, link))):
        if state not in (UP, ASLEEP):  # which is where it was
            continue
        kind = ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ports[_SWITCH] += 1
        elif info := ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link):
            ports[info.domain, info.bus, info.device] += 1
    return ports


def _between(
    a: Counter[_PciAddress], b: Counter[_PciAddress], b_address: _PciAddress | None
) -> int:
    direct = a[b_address] if b_address is not None else 0
    return direct or min(a[_SWITCH], b[_SWITCH])


def _level(a: Any, b: Any) -> str | None:
    level = None
    if a is not None and b is not None:
        level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
    return None if level is None else _LEVELS.get(level)


def ask(call: Callable[..., T], *arguments: Any) -> T | None:
    """What a GPU answers; None where it does not, or where there is no handle of it yet."""
    if arguments[0] is None:
        return None
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None
