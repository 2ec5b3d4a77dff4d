"""What `gputop doctor` says about one thing."""

from __future__ import annotations

from typing import Literal

import msgspec

from gputop.model.machine.text import printable

CheckLevel = Literal["ok", "notice", "problem"]


class Check(msgspec.Struct, frozen=True):
    """One thing that was checked."""

    level: CheckLevel
    subject: str
    text: str
    advice: str | None = None
    """What to do; None if nothing."""

    def harmless(self) -> Check:
        """Return it safe to print: names of files, versions and errors come from elsewhere."""
        advice = self.advice and printable(self.advice)
        return Check(self.level, printable(self.subject), printable(self.text), advice)
