"""Times as people write them: local, also where clocks are put forward and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest

from gputop.model.instants import is_span, parse_instant


def utc(*parts: int) -> float:
    return datetime(*parts, tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type, misc]


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CET, and CEST from the end of March to the end of October."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


NOW = utc(2026, 11, 22, 14, 3, 22)  # 15:03:22 there


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-21 03:00", utc(2026, 11, 21, 2)),
        ("2026-11-21T03:00:30", utc(2026, 11, 21, 2, 0, 30)),
        ("2026-7-1", utc(2026, 6, 30, 22)),
        (" 03:00 ", utc(2026, 11, 22, 2)),
        ("3:05:07", utc(2026, 11, 22, 2, 5, 7)),
        ("23:00", utc(2026, 11, 22, 22)),
        ("24:00", utc(2026, 11, 22, 23)),
        ("-2h", NOW - 7200),
        ("-90s", NOW - 90),
        ("+10m", NOW + 600),
        ("-7d", NOW - 7 * 86400),
        ("2026-03-29 02:30", utc(2026, 3, 29, 1, 30)),  # left out
        ("2026-10-25 02:30", utc(2026, 10, 25, 0, 30)),  # there twice
        ("2026-10-25 03:00", utc(2026, 10, 25, 2)),
    ],
)
def test_what_is_meant(text: str, instant: float) -> None:
    assert parse_instant(text, NOW) == instant


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "03:60", "2026-02-30", "2026-13-01 00:00", "-2", "2h", "-h", "1e3",
     "0001-01-01 00:00:00:00", "99999-01-01", "03:00x", "٠٣:٠٠", "-9999999999d", "\x1b[31m"],
)  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_instant(text, NOW)


@pytest.mark.parametrize("text", ["0000-01-01", "0001-01-01", "9999-12-31 24:00"])
def test_years_beyond_all_clocks(text: str) -> None:
    try:
        parse_instant(text, NOW)
    except ValueError as error:
        assert "is not a time" in str(error)  # noqa: PT017 - or it is one, which depends on the zone


def test_spans() -> None:
    assert [is_span(text) for text in ("-2h", "+3m", "2h", "-x", "-H")] == [
        True,
        True,
        *[False] * 3,
    ]
