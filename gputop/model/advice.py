"""Mistakes around CUDA_VISIBLE_DEVICES that are worth a word, and the words."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "info"]


class Advice(msgspec.Struct, frozen=True):
    """What is wrong or easily misread, and what to do."""

    id: str
    """Names the rule; the same mistake always has the same."""
    severity: Severity
    message: str
    """For people, printable."""
