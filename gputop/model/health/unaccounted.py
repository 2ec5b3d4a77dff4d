"""Memory that nobody admits to: in use, and of no process that the driver lists.

A healthy H200 shows about 20 MiB of it, a MIG device about 13 MiB, where the driver tells apart
what it reserves. Workers that outlive their job hold all that the job had: its descriptors keep
the memory alive, and the driver lists only who made the context (fuser -v /dev/nvidia* finds them).
"""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.machine.gpu import DeviceHolder, Gpu
from gputop.model.machine.text import MIB

NOTABLE = 1024 * MIB
"""Worth a row from here on, and so much in use makes a GPU not free (`model.health.free`): less
takes no room from a job, and drivers that count what they reserve always show up to 600 MiB."""

_WORDS = {
    "orphan": "its job has ended and it still holds the GPU open: end it (kill {pid})",
    "zombie_child": "left by a process that is a zombie, and holds the GPU open: end it "
    "(kill {pid})",
    "other_namespace": "in a container, and not listed by the driver: look there",
    "open": "has the GPU open, and is not listed by the driver: ask its owner",
    "monitor": "watches the GPUs, and holds no memory",
}


def unaccounted(used: int | None, held: Iterable[int | None], known: bool | None) -> int | None:
    """Bytes in use that the listed processes do not hold.

    None where one of them is not told how much it holds, or processes are not listed at all.
    """
    amounts = list(held)
    if used is None or known is False or None in amounts:
        return None
    return max(0, used - sum(amount or 0 for amount in amounts))


def is_notable(amount: int | None) -> bool:
    """Whether it is more than a healthy GPU shows."""
    return amount is not None and amount >= NOTABLE


def suspects_or_none(gpu: Gpu) -> tuple[DeviceHolder | None, ...]:
    """Those to show: who has the GPU open, unlisted, and is no monitor, and None for others of whom
    nothing is known; empty where all is as usual."""
    holders = tuple(holder for holder in gpu.holders if holder.reason != "monitor")
    others = gpu.holders_known is False
    if is_notable(gpu.memory_unaccounted):
        return (*holders, None) if others or not holders else holders
    if gpu.processes_known is False:
        return (*holders, None) if others else holders
    return ()


def words(holder: DeviceHolder) -> str:
    """Say why a process is suspect, and what to do."""
    return _WORDS[holder.reason].format(pid=holder.pid)


def remark(gpu: Gpu, *, nested: bool) -> str:
    """Say who holds it where no process is suspect, and what to try. `nested`: as `Host.nested`."""
    if nested:
        return "held by no process in this container. Look from the host"
    sudo = "sudo " * (gpu.holders_known is False)  # whoever may not look at all processes
    node = f"/dev/nvidia{'*' if gpu.minor is None else gpu.minor}"
    return f"held by no visible process. Try: {sudo}fuser -v {node}"
