"""What has been measured, as tables and JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from bench.measures import Values
from bench.programs import Program

REFERENCE = "nvitop"

_LABELS = {
    "first_gpu": ("first GPU row on screen", "ms", 1000),
    "all_gpus": ("all GPU rows", "ms", 1000),
    "all_rows": ("all visible rows", "ms", 1000),
    "gpus_shown": ("GPU rows that are visible", "", 1),
    "processes_shown": ("process rows that are visible", "", 1),
    "cpu_per_min": ("CPU of the tree", "s/min", 1),
    "bytes_per_s": ("to the terminal", "bytes/s", 1),
    "rss_mib": ("RSS of the tree", "MiB", 1),
    "pss_mib": ("PSS of the tree", "MiB", 1),
    "calls_per_s": ("NVML calls", "1/s", 1),
    "looks_per_s": ("readings of GPU 0", "1/s", 1),
    "key_p50": ("key to screen, p50", "ms", 1000),
    "key_p95": ("key to screen, p95", "ms", 1000),
    "key_max": ("key to screen, max", "ms", 1000),
    "keys_lost": ("lost of 300 keys", "", 1),
    "scroll_cpu_percent": ("CPU at 20 keys/s", "%", 1),
    "quit": ("quit", "ms", 1000),
    "text_wall": ("one snapshot as text", "ms", 1000),
    "text_cpu": ("one snapshot as text, CPU", "ms", 1000),
    "json_wall": ("one snapshot as JSON", "ms", 1000),
    "json_cpu": ("one snapshot as JSON, CPU", "ms", 1000),
}
"""Label, unit, and the factor from the measured value to that unit."""
_COUNTS = ("gpus_shown", "processes_shown", "keys_lost", "looks_per_s")
_INSTEAD = {"json_wall": "text_wall", "json_cpu": "text_cpu"}
"""The value of nvitop to compare with, which lacks the one measured."""


def facts(programs: Sequence[Program], driver: str) -> dict[str, Any]:
    """Return when and on what was measured, with which driver and which versions."""
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "driver": driver,
        "versions": {program.name: program.version for program in programs},
    }


def table(title: str, found: Mapping[str, Values]) -> str:
    """Return a row for each value, a column for each program, and one for `ratio`."""
    names = list(found)
    measured = [one for one in _LABELS if any(one in values for values in found.values())]
    rows = [[title, *names, f"of {REFERENCE}"]]
    for one in measured:
        cells = [shown(one, found[name]) for name in names]
        rows.append([label(one), *cells, ratio(one, found)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def dump(about: Mapping[str, Any], results: Mapping[str, Mapping[str, Values]]) -> str:
    """Return all values as JSON; times in seconds, null for what never happened."""
    return json.dumps({**about, "results": results}, indent=2) + "\n"


def label(one: str) -> str:
    """Return the label of a value, with its unit."""
    text, unit, _ = _LABELS[one]
    return f"{text}, {unit}" if unit else text


def shown(one: str, values: Values) -> str:
    """Return a value in its unit; empty if it was not measured, "-" if it never happened."""
    if one not in values:
        return ""
    value = values[one]
    if value is None:
        return "-"
    value *= _LABELS[one][2]
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(one: str, found: Mapping[str, Values], peer: str = REFERENCE) -> str:
    """Return gputop's value divided by a peer's; empty if there is nothing to divide."""
    mine, theirs = found.get("gputop", {}), found.get(peer, {})
    instead = _INSTEAD.get(one, "") if peer == REFERENCE else ""
    ours, other = mine.get(one), theirs.get(one, theirs.get(instead))
    return "" if one in _COUNTS or ours is None or not other else f"{ours / other:.2f}"
