"""The report of `pytest -m gpu`: what was compared with what, and each difference."""

from __future__ import annotations

import json
import platform
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gputop.version import __version__

Row = Mapping[str, object]
"""A row of a table, by heading."""


class Report:
    """What the tests of one run have found out."""

    def __init__(self, machine: Mapping[str, Any]) -> None:
        """machine: a frame of it, as --json prints it."""
        self._driver = machine["driver_version"] or "unknown"
        self._cards = [str(gpu["name"] or "unknown") for gpu in machine["gpus"]]
        self._about: dict[str, object] = {
            "gputop": __version__,
            "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "driver": self._driver,
            "CUDA": machine["cuda_version"],
            "cards": ", ".join(f"{n} x {card}" for card, n in Counter(self._cards).items()),
            "in a container": machine["host"]["nested"],
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": platform.python_version(),
        }
        self._differences: list[str] = []
        self._sections: dict[str, dict[str, Any]] = {}

    def differ(self, subject: str, differences: Sequence[str]) -> None:
        """Note differences between gputop and the driver; AssertionError if there is one."""
        self._differences += [f"{subject}: {difference}" for difference in differences]
        assert not differences, "\n".join(("gputop and the driver differ:", *differences))

    def note(self, section: str, facts: Mapping[str, object]) -> None:
        """Note facts: numbers, texts, lists of texts."""
        self._sections.setdefault(section, {}).update(facts)

    def table(self, section: str, title: str, rows: Sequence[Row]) -> None:
        """Note rows that have the same headings."""
        self._sections.setdefault(section, {})[title] = [dict(row) for row in rows]

    def write(self, folder: Path, ended: str) -> Path:
        """Write both files and return the page. `ended`: how the tests ended. OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        words = ("gputop", self._driver, self._cards[0] if self._cards else "no-gpu")
        page = folder / (re.sub(r"[^\w.]+", "-", "-".join(words)) + ".md")
        whole = {**self._about, "tests": ended, "differences": self._differences, **self._sections}
        page.with_suffix(".json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        about = {**self._about, "tests": ended}
        lines = ["# gputop on real GPUs", "", *_facts(about), "", "## Differences", ""]
        lines += [f"- {text}" for text in self._differences] or ["None."]
        for section, facts in self._sections.items():
            lines += ["", f"## {section}", ""]
            tables = {title: value for title, value in facts.items() if _is_table(value)}
            lines += _facts({key: value for key, value in facts.items() if key not in tables})
            for title, rows in tables.items():
                lines += ["", f"### {title}", "", *_table(rows)]
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return page


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _facts(facts: Mapping[str, object]) -> list[str]:
    lines = []
    for key, value in facts.items():
        if isinstance(value, (list, tuple)):
            lines += [f"- {key}: {len(value)}", *(f"  - `{item}`" for item in value)]
        else:
            lines.append(f"- {key}: {_cell(value)}")
    return lines


def _table(rows: Sequence[Row]) -> list[str]:
    headings = list(rows[0])
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    for row in rows:
        lines.append("| " + " | ".join(_cell(row.get(heading)) for heading in headings) + " |")
    return lines


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
