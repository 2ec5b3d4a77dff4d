"""What `gputop doctor` says, a line each; and what it tells of a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.gpu_metrics import SECTIONS
from gputop.model.health import findings
from gputop.model.limits import limits
from gputop.model.text import duration, printable, short_name

Level = Literal["ok", "notice", "problem"]

_UNSAID = {"memory_unexplained", "idle_for", "activity.verdict", "throttle.shares", "mig"}
_UNSAID |= {"processes_known", "stale_for", "error"}
"""None also where all is well, or before there was time to tell."""


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: Level
    subject: str
    text: str
    advice: str | None = None
    """What to do, where something is to be done."""

    def harmless(self) -> Check:
        """The same, fit to print: names of files, versions and errors are others' words."""
        advice = self.advice and printable(self.advice)
        return Check(self.level, printable(self.subject), printable(self.text), advice)


def frame_checks(frames: Sequence[Frame]) -> Iterator[Check]:
    """What looks at a machine, the last one first in weight, say of its driver and its GPUs."""
    frame = frames[-1]
    if frame.problem is not None:
        yield Check("problem", "driver", frame.problem.message, frame.problem.advice)
        return
    count = len(frame.gpus)
    yield Check("ok", "driver", f"{frame.driver_version}, runs CUDA up to {frame.cuda_version}, "
                f"{count} GPU{'s' * (count != 1)}")  # fmt: skip
    for gpu in frame.gpus:
        yield from _gpu_checks(frame, gpu)
    yield from _not_available(frames)


def _gpu_checks(frame: Frame, gpu: Gpu) -> Iterator[Check]:
    subject = f"GPU {gpu.index}"
    if gpu.stale_for is not None:
        yield Check("problem", subject, f"has not answered for {duration(gpu.stale_for)}",
                    "look at dmesg for its XID; a reboot may be needed")  # fmt: skip
    if gpu.asleep:
        yield Check("ok", subject, "asleep, and not asked, which would wake it")
    for one in findings(frame, gpu):
        yield Check("problem" if one.level == "alarm" else "notice", subject, one.text, one.advice)
    for sentence in limits(frame, gpu):
        yield Check("notice", subject, sentence)
    if gpu.processes_known is False and not frame.host.wsl:
        yield Check("notice", subject, "the driver does not list its processes, as without"
                    " permission: who uses it is not known")  # fmt: skip


def _not_available(frames: Sequence[Frame]) -> Iterator[Check]:
    """What no look knew, by the headings of the detail page; GPUs with the same gaps together."""
    gaps: dict[str, list[Gpu]] = {}
    for gpu in frames[-1].gpus:
        looks = [one for frame in frames for one in frame.gpus if one.key == gpu.key]
        if (
            gpu.error is None
            and gpu.stale_for is None
            and not gpu.asleep
            and (text := _gaps(looks))
        ):
            gaps.setdefault(text, []).append(gpu)
    for text, gpus in gaps.items():
        names = ", ".join(dict.fromkeys(short_name(gpu.name) for gpu in gpus))
        who = "GPU " + ", ".join(str(gpu.index) for gpu in gpus)
        if len(gpus) == len(frames[-1].gpus):
            who = "every GPU"
        yield Check("ok", "N/A", f"{who} ({names}), by card or driver: {text}")


def _gaps(looks: Sequence[Gpu]) -> str:
    parts = []
    for heading, metrics in SECTIONS.items():
        asked = [metric for metric in metrics if metric.id not in _UNSAID]
        gaps = [one.label for one in asked if all(one.read(gpu) is None for gpu in looks)]
        if gaps:
            parts.append(f"{heading} ({'all' if len(gaps) == len(asked) else ', '.join(gaps)})")
    return "; ".join(parts)
