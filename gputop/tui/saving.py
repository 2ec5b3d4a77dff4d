"""What is chosen on the screen is kept in the settings, where the user wants so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.files import reason_of
from gputop.model.machine.text import printable
from gputop.settings import Session, keep_settings

NOTE_SECONDS = 6.0
"""For how long it is said that something was not saved."""


def save(settings: Session, chosen: Mapping[str, Any]) -> str:
    """Save what was chosen; why that failed, or nothing."""
    if settings.path is None:
        return ""
    try:
        keep_settings(settings.path, chosen)
    except (OSError, ValueError) as error:
        return printable(f"not saved: {reason_of(error)}", 160)
    return ""
