"""CPUs as `taskset -c` takes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model.machine.topology import cpu_list


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        ([], None),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([*range(16), *range(64, 80)], "0-15,64-79"),
        (range(0, 64, 2), "0-62:2"),
        (range(1, 64, 2), "1-63:2"),
        ([0, 2], "0,2"),
        ([0, 2, 3, 4], "0,2-4"),
        ([4, 0, 1, 1, 2], "0-2,4"),
        ([0, 2, 4, 5, 6], "0-4:2,5-6"),
    ],
)
def test_lists(cpus: list[int], text: str | None) -> None:
    assert cpu_list(cpus) == text


@given(st.sets(st.integers(0, 300)))
def test_a_list_names_what_it_was_made_of(cpus: set[int]) -> None:
    named: set[int] = set()
    for part in (cpu_list(cpus) or "").split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        if part:
            named |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    assert named == cpus
