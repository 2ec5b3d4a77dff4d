"""`gputop usage`: who held GPUs, what is not known; as a table, JSON (manual/json.md) or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import compress

from gputop.export.table import aligned
from gputop.model.machine.text import (
    MISSING,
    counted,
    date_time,
    duration,
    printable,
    size,
    three_digits,
)
from gputop.model.usage.count import UnknownReason, UsageRow
from gputop.model.usage.grouping import UsageKey
from gputop.model.usage.spans import Coverage
from gputop.model.usage.totals import UsageTotals

_HOUR = 3600.0
_KWH = 3.6e6
_DIGITS = 6
NOT_KNOWN = "(not known)"
_WIDEST = 40
"""Characters of a name in the table."""
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""Spreadsheets take a cell that begins with one of these for a formula; the last four are the
full-width forms."""
_REASONS: dict[UnknownReason, str] = {
    "silent": "the GPU did not answer",
    "unlisted": "its processes were not listed",
    "instance": "which MIG device was in use",
}


def _known_hours(hours: Callable[[UsageRow], float]) -> Callable[[UsageRow], float | None]:
    """Return a function that reads hours of work, or None if no work of the held time is known."""
    return lambda row: None if row.held == row.work_unknown > 0 else hours(row) / _HOUR


FIGURES: dict[str, Callable[[UsageRow], float | None]] = {
    "held_gpu_hours": lambda row: row.held / _HOUR,
    "worked_gpu_hours": _known_hours(lambda row: row.worked),
    "idle_gpu_hours": _known_hours(lambda row: row.idle),
    "unknown_gpu_hours": lambda row: row.work_unknown / _HOUR,
    "peak_memory_bytes": lambda row: row.peak_memory,
    "energy_kwh": lambda row: None if row.held == row.energy_unknown > 0 else row.energy / _KWH,
}
"""The figures of a row in JSON and CSV; see `model.usage.count`."""


def _unheld_kwh(report: UsageTotals) -> float | None:
    """Return the energy of unheld hours as far as known; None if none is."""
    return None if report.unheld > 0 == report.unheld_energy else report.unheld_energy / _KWH


def _sorted_rows(report: UsageTotals) -> list[tuple[UsageKey, UsageRow]]:
    """Return the rows, those with most hours held first."""
    return sorted(
        report.rows.items(),
        key=lambda item: (-item[1].held, [cell or "" for cell in item[0]]),
    )


# Text


def usage_table(report: UsageTotals) -> str:
    """Return the table, the notes below it, and a line break at the end."""
    since, until = date_time(report.since)[:-3], date_time(report.until)[:-3]
    # A UUID would make the table too wide, and one host needs no name.
    is_one_host = len(report.coverages) == 1 and "host" not in report.by.split(",")
    left_out = {"uuid", *(["host"] if is_one_host else [])}
    shown = [name not in left_out for name in report.columns]
    names = list(compress(report.columns, shown))
    rows = [_cells(compress(key, shown), row) for key, row in _sorted_rows(report)]
    heads = [f"{name.upper()}<" for name in names]
    heads += ["HELD", "WORKED", "IDLE", "UNKNOWN", "PEAK-MEM", "ENERGY"]
    total = _cells(("total", *[""] * (len(names) - 1)), report.total)
    title = f"GPU-hours by {report.by.replace(',', ' and ')}, {since} to {until}"
    return "\n\n".join([title, aligned(heads, [*rows, total]), "\n".join(notes(report))]) + "\n"


def _cells(key: Iterable[str | None], row: UsageRow) -> list[str]:
    hours = (_figure(FIGURES[name](row)) for name in list(FIGURES)[:4])
    return [
        *(printable(NOT_KNOWN if cell is None else cell, _WIDEST) for cell in key),
        *hours,
        size(row.peak_memory),
        _energy(FIGURES["energy_kwh"](row)),
    ]


def _energy(value: float | None) -> str:
    return MISSING if value is None else f"{_figure(value)} kWh"


def _figure(value: float | None) -> str:
    """Return hours or kWh as text; only zero is shown as 0."""
    if value is None:
        return MISSING
    return ("<0.01" if value < 0.005 else three_digits(value)) if value else "0"


def notes(report: UsageTotals) -> list[str]:
    """Return sentences on unheld time, and on what is not known."""
    return [*_time_notes(report), *_coverage_notes(report), *report.losses]


def _time_notes(report: UsageTotals) -> Iterator[str]:
    yield f"nobody: {_figure(report.unheld / _HOUR)} GPU-hours, {_energy(_unheld_kwh(report))}"
    if report.unknown:
        reasons = ", ".join(
            f"{_figure(seconds / _HOUR)} {_REASONS[reason]}"
            for reason, seconds in report.unknown.items()
        )
        whole = _figure(sum(report.unknown.values()) / _HOUR)
        yield f"not known who: {whole} GPU-hours ({reasons})"
    if report.total.energy_unknown:
        yield f"energy not known: {_figure(report.total.energy_unknown / _HOUR)} GPU-hours held"
    if sum(row.held for row in report.rows.values()) > report.total.held * 1.0001:
        yield "A GPU that several shared is held by each of them, and once in the total."


def _coverage_notes(report: UsageTotals) -> Iterator[str]:
    span = duration(report.until - report.since)
    for host, coverage in report.coverages.items():
        name = f"{printable(host, 100)}: " if len(report.coverages) > 1 else ""
        if coverage.gaps:
            yield (
                f"{name}not recorded: {duration(coverage.missing)} of {span}"
                f" ({counted(coverage.gaps, 'gap')})"
            )
        if coverage.unread:
            yield f"{name}the driver could not be read for {duration(coverage.unread)}"


# For programs


def usage_json(report: UsageTotals) -> str:
    """Return one line of JSON without its line break."""
    unknown = {reason: _rounded(seconds / _HOUR) for reason, seconds in report.unknown.items()}
    return json.dumps(
        {
            "by": report.by,
            "since": report.since,
            "until": report.until,
            "rows": [_fields(report, key, row) for key, row in _sorted_rows(report)],
            "total": _figures(report.total),
            "unheld_gpu_hours": _rounded(report.unheld / _HOUR),
            "unheld_kwh": _rounded(_unheld_kwh(report)),
            "unknown_gpu_hours": unknown,
            "hosts": [_host(name, coverage) for name, coverage in report.coverages.items()],
            "losses": list(report.losses),
        }
    )


def usage_csv(report: UsageTotals) -> str:
    """Return a heading and the rows. Unknown values are empty cells; no cell is a formula."""
    text = io.StringIO()
    names = [*report.columns, *FIGURES]
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    for key, row in _sorted_rows(report):
        fields = _fields(report, key, row)
        table.writerow({name: _harmless_cell(value) for name, value in fields.items()})
    return text.getvalue()


def _harmless_cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _fields(report: UsageTotals, key: UsageKey, row: UsageRow) -> dict[str, object]:
    return {**dict(zip(report.columns, key, strict=True)), **_figures(row)}


def _figures(row: UsageRow) -> dict[str, object]:
    return {name: _rounded(read(row)) for name, read in FIGURES.items()}


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else round(value, _DIGITS)


def _host(name: str, coverage: Coverage) -> dict[str, object]:
    return {
        "host": name,
        "recorded_seconds": round(coverage.recorded, 3),
        "missing_seconds": round(coverage.missing, 3),
        "gaps": coverage.gaps,
        "unread_seconds": round(coverage.unread, 3),
    }
