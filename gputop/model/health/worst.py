"""The worst that a machine has, in a word or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gputop.model.health.findings import Finding, FindingLevel, findings
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import ranges


class Worst(NamedTuple):
    """The worst finding of a frame."""

    level: FindingLevel | None
    """None where all is well."""
    remark: str
    """The finding and where: `XID 79 GPU 6`; empty where all is well."""


def worst_of(frame: Frame) -> Worst:
    """Return the worst finding of all GPUs of a frame."""
    worst = [(found[0], gpu.index) for gpu in frame.gpus if (found := findings(frame, gpu))]
    worst.sort(key=lambda item: item[0].level != "alarm")
    return Worst(worst[0][0].level if worst else None, _remark(worst))


def _remark(worst: Sequence[tuple[Finding, int]]) -> str:
    """Name the first of what was found, the GPUs that have it, and how many have something else."""
    if not worst:
        return ""
    code = worst[0][0].code
    same = [index for finding, index in worst if finding.code == code]
    others = len(worst) - len(same)
    return f"{code} GPU {ranges(sorted(same))}" + (f" +{others}" if others else "")
