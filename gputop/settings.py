"""What a user can set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

THEMES = ("ansi-dark", "ansi-light", "dark", "light")
"""The first two are drawn in the terminal's own 16 colours."""

GlyphChoice = Literal["auto", "unicode", "ascii"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the screen."""

    interval: float = 1.0
    """Seconds between two frames."""
    theme: str = "ansi-dark"
    glyphs: GlyphChoice = "auto"
    user: str | None = None
    """Whose processes are shown at first; None for everybody's."""
    me: str | None = None
    """Whose the own processes are."""
    readonly: bool = False
    """Without any way to signal a process."""
    idle_after: float = 600.0
    """Seconds without work after which who holds memory is marked."""


def wants_readonly(environ: Mapping[str, str]) -> bool:
    """Whether GPUTOP_READONLY is set to anything but 0."""
    return environ.get("GPUTOP_READONLY", "") not in ("", "0")
