"""Parts of a Frame from what nvidia-smi and /proc write; None for what is not a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from gputop.model.machine.gpu import Gpu
from gputop.model.machine.proc_stat import ProcStat, parse_stat
from gputop.model.machine.text import MIB

_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_SWITCH = {"Enabled": True, "Disabled": False}
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,9})?", re.ASCII)


def number(text: str | None) -> float | None:
    """Return a number; None for `[N/A]`, `[Insufficient Permissions]` and all else."""
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def whole(text: str | None) -> int | None:
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None


def mib(text: str) -> int | None:
    return None if (value := number(text)) is None else round(value * MIB)


def _percent(text: str) -> float | None:
    return None if (value := number(text)) is None else value / 100


def _megahertz(text: str) -> int | None:
    return None if (value := number(text)) is None else round(value * 1e6)


def _text(text: str) -> str | None:
    return None if text.startswith("[") else text


_VALUES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "uuid": ("uuid", _text),
    "name": ("name", _text),
    "pci.bus_id": ("pci_bus_id", _text),
    "pstate": ("pstate", lambda text: whole(text.removeprefix("P"))),
    "compute_mode": ("compute_mode", lambda text: _text(text.lower())),
    "memory.total": ("memory_total", mib),
    "memory.used": ("memory_used", mib),
    "memory.free": ("memory_free", mib),
    "utilization.gpu": ("utilization", _percent),
    "utilization.memory": ("memory_utilization", _percent),
    "temperature.gpu": ("temperature", number),
    "power.draw": ("power", number),
    "power.limit": ("power_limit", number),
    "clocks.sm": ("sm_clock", _megahertz),
    "clocks.max.sm": ("sm_clock_max", _megahertz),
    "clocks.mem": ("memory_clock", _megahertz),
    "fan.speed": ("fan", _percent),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", whole),
    "persistence_mode": ("persistence_mode", _SWITCH.get),
    "display_active": ("display_active", _SWITCH.get),
    "mig.mode.current": ("mig_mode", _SWITCH.get),  # not before R450
}
"""What is known of a GPU: nvidia-smi's name, ours, and how it is read without its unit."""
FIELDS = ("index", "count", "driver_version", *_VALUES)
"""The fields of a GPU that nvidia-smi is asked for: first its index, then the number of GPUs."""
FEWER_FIELDS = FIELDS[:-1]
"""Those that older drivers know as well."""


def gpu_of(row: Mapping[str, str]) -> Gpu:
    """Return the GPU of a row, by nvidia-smi's names of its fields. ValueError without an index."""
    values = {field: read(row[name]) for name, (field, read) in _VALUES.items() if name in row}
    return Gpu(index=int(row["index"]), **values)


def stat_of(text: str) -> tuple[int, ProcStat] | None:
    """Return the PID and the facts of a process, by proc_pid_stat(5); None for any other text."""
    pid = whole(text.partition(" ")[0])
    with suppress(ValueError):
        return None if pid is None else (pid, parse_stat(text.encode("utf-8", "replace")))
    return None


class Counters(NamedTuple):
    """Counters at one moment, to make rates of: `uptime` in seconds, the others in ticks."""

    uptime: float
    cpu_all: int
    cpu_idle: int
    processes: Mapping[int, ProcStat]


def counters_of(uptime: str, cpu: str, stats: Mapping[int, ProcStat]) -> Counters | None:
    """Read /proc/uptime and the first line of /proc/stat (guests are in `user` already)."""
    seconds = number(uptime.partition(" ")[0])
    ticks = [whole(word) or 0 for word in cpu.split()[1:9]]
    if seconds is None or len(ticks) < 5:
        return None
    return Counters(seconds, sum(ticks), ticks[3] + ticks[4], dict(stats))


def host_cpu(before: Counters, now: Counters) -> float | None:
    """Return the share of all CPUs' time in use between two moments."""
    all_, idle = now.cpu_all - before.cpu_all, now.cpu_idle - before.cpu_idle
    return min(1.0, max(0.0, (all_ - idle) / all_)) if all_ > 0 else None
