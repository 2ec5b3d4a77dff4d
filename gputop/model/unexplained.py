"""Memory that nobody admits to: in use, and of no process that the driver lists.

A healthy H200 shows about 20 MiB of it, a MIG device about 13 MiB, where the driver tells apart
what it reserves. Workers that outlive their job hold all that the job had: its descriptors keep
the memory alive, and the driver lists only who made the context (fuser -v /dev/nvidia* finds them).
"""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.gpu import Gpu, Opener
from gputop.model.text import MIB

NOTABLE = 1024 * MIB
"""Worth a row from here on, which is where a GPU ceases to be free (`summary.is_free`): less takes
no room from a job, and drivers that count what they reserve show up to 600 MiB of it for ever."""

_WORDS = {
    "orphan": "its job has ended and it still holds the GPU open: end it (kill {pid})",
    "zombie_child": "left by a process that is a zombie, and holds the GPU open: end it "
    "(kill {pid})",
    "other_namespace": "in a container, and not listed by the driver: look there",
    "open": "has the GPU open, and is not listed by the driver: ask its owner",
    "monitor": "watches the GPUs, and holds no memory",
}


def unexplained(used: int | None, held: Iterable[int | None], known: bool | None) -> int | None:
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


def suspects(gpu: Gpu) -> tuple[Opener, ...]:
    """Who may hold it: all that have the GPU open, unlisted, and are no monitors."""
    return tuple(one for one in gpu.openers if one.reason != "monitor")


def words(opener: Opener) -> str:
    """Why it is here, and what to do."""
    return _WORDS[opener.reason].format(pid=opener.pid)


def remark(gpu: Gpu, *, nested: bool) -> str:
    """What to do where nobody is suspect. `nested`: as `Host.nested`."""
    if nested:
        return "held outside of this container: look from the host"
    node = f"/dev/nvidia{'*' if gpu.minor is None else gpu.minor}"
    return f"nobody seen: managed memory is told of no process; root sees all (fuser -v {node})"
