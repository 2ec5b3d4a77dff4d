"""The table of the manual: medians over files that `python -m bench --json` wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.measures import medians
from bench.report import REFERENCE, label, ratio, shown

_ROWS = {
    "screen 8x200 200x50": (
        "", "first_gpu all_rows cpu_per_min bytes_per_s pss_mib key_p50 key_p95 keys_lost "
        "scroll_cpu_percent quit",
    ),
    "once 8x200": ("", "text_wall text_cpu json_wall json_cpu"),
    "calls 8x200 200x50": ("", "looks_per_s"),
    "calls 16x1000 200x50": ("16 GPUs, 1,000 processes: ", "looks_per_s"),
    "screen 8x1000 200x50": ("1,000 processes: ", "cpu_per_min"),
    "hung 8x200 200x50": ("one GPU hangs: ", "all_rows key_p95"),
    "slow 8x200 200x50": ("every call takes 20 ms: ", "all_rows key_p95"),
}  # fmt: skip
"""For each case, the words before its labels, and the values to show."""


def markdown(paths: Sequence[Path]) -> str:
    """Return a table of medians over the files that have a case; a row without values is left out.

    OSError, ValueError or KeyError for a file that `python -m bench --json` did not write.
    """
    files = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    versions: dict[str, str] = files[0]["versions"]
    heading = [f"{name} {version}" for name, version in versions.items()]
    rows = [["", *heading, f"of {REFERENCE}"], ["---", *["---:"] * (len(heading) + 1)]]
    for case, (before, values) in _ROWS.items():
        runs = [file["results"][case] for file in files if case in file["results"]]
        found = {name: medians([run[name] for run in runs if name in run]) for name in versions}
        for one in values.split():
            if any(one in told for told in found.values()):
                cells = [shown(one, found[name]) for name in versions]
                rows.append([before + label(one), *cells, ratio(one, found)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
