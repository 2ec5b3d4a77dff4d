"""What a user can set."""

from __future__ import annotations

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
    idle_after: float = 600.0
    """Seconds without work after which who holds memory is marked."""
