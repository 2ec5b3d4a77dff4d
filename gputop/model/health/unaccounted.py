"""Unaccounted memory: in use, but of no process that the driver lists.

A healthy H200 shows about 20 MiB of it, a MIG device about 13 MiB, if the driver counts apart what
it reserves. Workers that outlive their job hold all its memory: open descriptors keep it alive, and
the driver lists only the process that made the context (fuser -v /dev/nvidia* finds the workers).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import DeviceHolder, Gpu
from gputop.model.machine.text import MIB, size

UNACCOUNTED = "UNACCOUNTED"
"""The code of its finding."""
NOTABLE = 1024 * MIB
"""Bytes worth a row; this much in use also makes a GPU not free (`model.health.free`). Less takes
no room from a job, and drivers that count what they reserve always show up to 600 MiB."""

_WORDS = {
    "orphan": "its job has ended and it still holds the GPU open: end it (kill {pid})",
    "zombie_child": "left by a process that is a zombie, and holds the GPU open: end it "
    "(kill {pid})",
    "other_namespace": "in a container, and not listed by the driver: look there",
    "open": "has the GPU open, and is not listed by the driver: ask its owner",
    "monitor": "watches the GPUs, and holds no memory",
}


def unaccounted(used: int | None, held: Iterable[int | None], listed: bool) -> int | None:
    """Return the bytes in use that the listed processes do not hold.

    None if the memory in use, or that of a process, is not known, or they are not `listed`.
    """
    amounts = list(held)
    if used is None or not listed or None in amounts:
        return None
    return max(0, used - sum(amount or 0 for amount in amounts))


def is_notable(amount: int | None) -> bool:
    """Whether an amount in bytes is more than a healthy GPU shows."""
    return amount is not None and amount >= NOTABLE


def suspects_or_none(gpu: Gpu) -> tuple[DeviceHolder | None, ...]:
    """Return the suspects to show: unlisted processes that have the GPU open and are no monitors,
    and None for others that are not known; empty if all is as usual."""
    holders = tuple(holder for holder in gpu.holders if holder.reason != "monitor")
    others = gpu.holders_known is False
    if is_notable(gpu.memory_unaccounted):
        return (*holders, None) if others or not holders else holders
    if gpu.listed == "none":
        return (*holders, None) if others else holders
    return ()


def words(holder: DeviceHolder) -> str:
    """Say why a process is suspect, and what to do."""
    return _WORDS[holder.reason].format(pid=holder.pid)


def remark(gpu: Gpu, *, nested: bool) -> str:
    """Say who holds it if no process is suspect, and what to try. `nested`: as `Host.nested`."""
    who = "held by no process in this container" if nested else "held by no visible process"
    why = "not every process was searched in time" if gpu.holders_known is False else who
    return f"{why}. {_next_step(gpu, nested)}"


def _next_step(gpu: Gpu, nested: bool) -> str:
    node = f"/dev/nvidia{'*' if gpu.minor is None else gpu.minor}"
    return "Look from the host" if nested else f"Try: sudo fuser -v {node}"


def findings(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    """Yield the finding if the amount is notable."""
    if is_notable(gpu.memory_unaccounted):
        suspects = [holder for holder in suspects_or_none(gpu) if holder is not None]
        said = [f"PID {holder.pid}: {words(holder)}" for holder in suspects]
        text = f"{size(gpu.memory_unaccounted)} of its memory is held by no process that is listed"
        advice = next(iter(said), _next_step(gpu, frame.host.nested))
        yield Finding("info", UNACCOUNTED, text, advice)
