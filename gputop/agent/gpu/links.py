"""How the GPUs are connected, as `nvidia-smi topo -m` writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pynvml

from gputop.model.enumeration import normalize_bus_id
from gputop.model.links import ITSELF, Links

T = TypeVar("T")
_Place = tuple[int, int, int]
_SWITCH = (-1, -1, -1)

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
            known = f"NV{links}" if links else _level(gpus[a][0], gpus[b][0])
            rows[a][b] = rows[b][a] = known
    return tuple(map(tuple, rows))


def link_states(ask: Callable[[Callable[[Any, int], int], int], int | None]) -> list[bool]:
    """Of every NVLink that the GPU has which `ask` asks, whether it is up."""
    found: list[bool] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = ask(pynvml.nvmlDeviceGetNvLinkState, link)
        if state is None:
            break
        found.append(bool(state))
    return found


def _ports(handle: Any) -> Counter[_Place]:
    """By what is at their other end, how many of its NVLinks are up; switches are all one."""
    found: Counter[_Place] = Counter()
    for link, up in enumerate(link_states(lambda call, link: ask(call, handle, link))):
        if not up:
            continue
        kind = ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            found[_SWITCH] += 1
        elif place := _place_of(ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)):
            found[place] += 1
    return found


def _between(a: Counter[_Place], b: Counter[_Place], place: _Place | None) -> int:
    direct = a[place] if place is not None else 0
    return direct or min(a[_SWITCH], b[_SWITCH])


def _level(a: Any, b: Any) -> str | None:
    level = None
    if a is not None and b is not None:
        level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
    return None if level is None else _LEVELS.get(level)


def _place_of(info: Any) -> _Place | None:
    return None if info is None else (info.domain, info.bus, info.device)


def ask(call: Callable[..., T], *arguments: Any) -> T | None:
    """What a GPU answers; None where it does not, or where there is no handle of it yet."""
    if arguments[0] is None:
        return None
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None
