"""The table of the manual: medians of short runs, with date, commit and machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measures import Values, medians
from bench.report import label, ratio, shown

Results = Mapping[str, Mapping[str, Values]]
"""The values of each program, by case and program."""

PAGE = Path(__file__).parent.parent / "gputop/manual/bench.md"
_BLOCK = re.compile(r"(?<=<!-- measured -->\n\n).*?(?=\n<!-- end -->\n)", re.S)
_NUMBERS = {1: "one run", 2: "medians of two runs", 3: "medians of three runs"}
ROWS = {
    "screen 8x200 200x50": (
        "", "first_gpu all_rows cpu_per_min bytes_per_s pss_mib key_p50 key_p95 keys_lost "
        "scroll_cpu_percent quit",
    ),
    "once 8x200": ("", "text_wall text_cpu json_wall json_cpu"),
    "screen 8x1000 200x50": ("1,000 processes: ", "all_rows cpu_per_min pss_mib"),
    "hung 8x200 200x50": ("one GPU hangs: ", "all_rows key_p95"),
    "slow 8x200 200x50": ("every call takes 20 ms: ", "all_rows key_p95"),
}  # fmt: skip
"""For each case, the words before its labels, and the values to show."""


def write(about: Sequence[Mapping[str, Any]], runs: Sequence[Results], page: Path = PAGE) -> None:
    """Write the table of some runs into the page, in place of the one before. `about`: what `facts`
    says of each."""
    text = f"{sentence(about)}\n\n{table(about[0]['versions'], runs)}\n"
    old = page.read_text(encoding="utf-8")
    page.write_text(_BLOCK.sub(lambda _: text, old), encoding="utf-8")


def sentence(about: Sequence[Mapping[str, Any]]) -> str:
    """Return when, of what and on what the runs were made."""
    first, count = about[0], len(about)
    loads = sorted(one["load"][0] for one in about)
    load = f"{loads[0]:g} to {loads[-1]:g}" if count > 1 else f"{loads[0]:g}"
    made = _NUMBERS.get(count, f"medians of {count} runs")
    system = f"Linux {first['kernel'].partition('-')[0]}, Python {first['python']}"
    when = f"Measured on {first['time'][:10]}, commit {first['commit']}"
    return f"{when}: {made} on {first['cpus']} cores, load {load} before it ({system})."


def table(versions: Mapping[str, str], runs: Sequence[Results]) -> str:
    """Return the medians, a column for each program, and gputop's figure divided by each peer's; a
    row without values is left out."""
    peers = [name for name in versions if name != "gputop"]
    heading = [f"{name} {version}" for name, version in versions.items()]
    heading += [f"of {name}" for name in peers]
    rows = [["", *heading], ["---", *["---:"] * len(heading)]]
    for case, (before, values) in ROWS.items():
        told = [run[case] for run in runs if case in run]
        found = {name: medians([one[name] for one in told if name in one]) for name in versions}
        for one in values.split():
            if any(one in of for of in found.values()):
                cells = [shown(one, found[name]) for name in versions]
                cells += [ratio(one, found, peer) for peer in peers]
                rows.append([before + label(one), *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def commit() -> str:
    """Return the commit that is measured, and whether files differ from it."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty= with changes"]
    done = subprocess.run(command, cwd=PAGE.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
