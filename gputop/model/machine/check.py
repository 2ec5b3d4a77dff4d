"""What `gputop doctor` says of one thing."""

from __future__ import annotations

from typing import Literal

import msgspec

from gputop.model.machine.text import printable

CheckLevel = Literal["ok", "notice", "problem"]


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: CheckLevel
    subject: str
    text: str
    advice: str | None = None
    """What to do, where something is to be done."""

    def harmless(self) -> Check:
        """The same, fit to print: names of files, versions and errors are others' words."""
        advice = self.advice and printable(self.advice)
        return Check(self.level, printable(self.subject), printable(self.text), advice)
