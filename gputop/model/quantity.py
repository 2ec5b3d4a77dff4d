"""Sizes and durations as people write them: `20GiB`, `500M`, `90`, `2h`."""

from __future__ import annotations

import re
from collections.abc import Mapping

SIZES: Mapping[str, float] = {
    unit + end: 1024**k for k, unit in enumerate(("", *"kmgt")) for end in ("", "b", "ib")
}
"""Bytes of each unit."""
DURATIONS: Mapping[str, float] = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds of each unit."""
MAX_BYTES = 2**60
_NUMBER = re.compile(r"([0-9]{1,15}(?:\.[0-9]*)?|\.[0-9]+) ?([a-z%]*)", re.ASCII)


def read_quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Return a number with one of `units`, whatever its case; None if the text is none."""
    match = _NUMBER.fullmatch(text.lower())
    factor = units.get(match[2]) if match else None
    return None if match is None or factor is None else float(match[1]) * factor
