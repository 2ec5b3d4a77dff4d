"""What was found, and how bad it is: on a GPU, in an installation, in a value of
CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from gputop.model.machine.text import printable

Level = Literal["error", "warning", "info", "ok"]
"""
error    it fails, or does not do what it could or should: somebody has to act
warning  it may not be as it is meant to be
info     worth knowing
ok       looked at, and as it should be
"""

_LEVELS: tuple[Level, ...] = get_args(Level)


class Finding(msgspec.Struct, frozen=True):
    """Something that was found."""

    level: Level
    """`error`, `warning`, `info` or `ok`."""
    code: str
    """What it is about, in a word or two: `XID 79`, `libcuda`, `value-range`."""
    text: str
    """What was found."""
    advice: str = ""
    """What to do; empty if nothing, or if the text says it."""

    def harmless(self) -> Finding:
        """Return it safe to print: names of files, versions and errors come from elsewhere."""
        return Finding(self.level, *map(printable, (self.code, self.text, self.advice)))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, the worst first; those of one level stay in their order."""
    return sorted(findings, key=lambda finding: _LEVELS.index(finding.level))


def has_error(findings: Iterable[Finding]) -> bool:
    """Return whether something fails, so that nothing should be offered that repeats it."""
    return any(finding.level == "error" for finding in findings)
