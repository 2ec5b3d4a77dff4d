"""What a GPU has been doing, in words: each answer, and both sides of each threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gputop.model.health.activity import FEWEST, WINDOW, WORDS, ActivityWindow, activity_words
from gputop.model.machine.sections import Activity


def looks(**columns: Any) -> list[Activity]:
    """As many as the longest column has; a number stands for a column of it."""
    usual: dict[str, Any] = {"graphics": 1.0, "sm": 0.9, "tensor": 0.0, "fp32": 0.0, "dram": 0.1}
    columns = {**usual, **columns}
    length = max((len(v) for v in columns.values() if isinstance(v, Sequence)), default=10)
    return [
        Activity(**{k: v[n] if isinstance(v, Sequence) else v for k, v in columns.items()})
        for n in range(length)
    ]


@pytest.mark.parametrize(
    ("doing", "columns"),
    [
        ("idle", {"graphics": 0.0, "sm": 0.0}),
        ("idle", {"sm": 0.019}),
        ("light load", {"sm": 0.02}),
        ("idle", {"sm": [0.0] * 8 + [0.9] * 2}),  # it has just begun
        ("compute-bound", {"sm": [0.0] * 7 + [0.9] * 3, "graphics": [0.0] * 7 + [1.0] * 3,
                           "tensor": 0.5}),
        # The first look at graphics is a mean that reaches back to before it began.
        ("compute-bound", {"sm": [0.0] * 5 + [0.9] * 5, "tensor": 0.5,
                           "graphics": [0.0] + [None] * 5 + [0.2] + [None] * 3}),
        ("waiting for input", {"sm": [0.0] + [0.9] * 9, "tensor": 0.5,
                               "graphics": [0.0, 0.2] + [None] * 4 + [0.6] + [None] * 3}),
        ("waiting for input", {"graphics": 0.69}),
        ("busy", {"graphics": 0.7}),
        ("busy", {"graphics": None}),
        ("waiting for input", {"sm": [0.9, 0.9, 0.1] * 2}),
        ("waiting for input", {"sm": [0.4, 0.2, 0.1, 0.4, 0.3, 0.1], "graphics": None}),
        ("busy", {"sm": [0.9, 0.9, 0.1]}),
        ("busy", {"sm": [0.9, 0.9, 0.11] * 3}),
        ("light load", {"sm": [0.39, 0.1, 0.1] * 3}),
        ("light load", {"sm": 0.249, "dram": 0.9}),
        ("busy", {"sm": 0.25}),
        ("memory-bound", {"dram": 0.6}),
        ("busy", {"dram": 0.599}),
        ("memory-bound", {"dram": 0.8, "tensor": 0.299}),
        ("compute-bound", {"dram": 0.8, "tensor": 0.3}),
        ("memory-bound", {"dram": 0.8, "fp32": 0.9}),
        ("tensor unused", {"fp32": 0.3, "tensor": 0.009}),
        ("tensor unused", {"fp16": 0.3}),
        ("busy", {"fp32": 0.299}),
        ("compute-bound", {"fp32": 0.3, "tensor": 0.01}),
        ("compute-bound", {"fp32": 0.5, "tensor": None}),
        ("compute-bound", {"fp64": 0.3}),
        ("busy", {"tensor": 0.299}),
        ("compute-bound", {"tensor": 0.3}),
        ("busy", {"tensor": None, "fp32": None, "dram": None}),
    ],
)  # fmt: skip
def test_doing(doing: str, columns: dict[str, Any]) -> None:
    assert activity_words(looks(**columns)) == doing


@pytest.mark.parametrize(
    ("doing", "ratios"),
    [
        ("idle", [0.0] * 5),
        ("idle", [0.0, 0.01, 0.01]),
        ("idle", [0.0] * 5 + [1.0] * 2),
        ("busy", [0.0] * 5 + [1.0] * 3),
        ("busy", [0.7] * 5),
        ("waiting for input", [0.69] * 5),
        ("waiting for input", [1.0, 1.0, 1.0, 1.0, 0.1] * 2),
        ("busy", [1.0, 1.0, 1.0, 1.0, 0.1]),
    ],
)
def test_by_utilization_and_it_says_so(doing: str, ratios: list[float]) -> None:
    assert activity_words([Activity(graphics=ratio) for ratio in ratios]) == f"{doing} (by UTIL)"


def test_too_few_looks_say_nothing() -> None:
    for count in range(FEWEST):
        assert activity_words(looks()[:count]) is None
        assert activity_words([Activity(graphics=1.0)] * count) is None
    # The first look with GPM has utilization alone; it does not make up the number.
    assert activity_words([Activity(graphics=1.0), *looks()[:2]]) is None
    assert activity_words([Activity()] * 9) is None


def test_every_one_is_short_and_explained() -> None:
    words = [word for word, _ in WORDS]
    assert all(len(word) <= 17 for word in words)
    assert all(str(number) in " ".join(text for _, text in WORDS) for number in ("60%", "30%"))


def test_only_the_window_counts() -> None:
    recent = ActivityWindow()
    busy, idle = looks(tensor=0.5)[0], looks(sm=0.0, graphics=0.0)[0]
    said = [recent.add(busy, None, float(now)) for now in range(5)]
    assert [activity and activity.doing for activity in said] == [
        None,
        None,
        *["compute-bound"] * 3,
    ]
    at_end = [recent.add(idle, None, 5.0 + now) for now in range(int(WINDOW) + 1)]
    assert at_end[-1]
    assert at_end[-1].doing == "idle"
    assert at_end[10]
    assert at_end[10].doing != "idle"


def test_seldom_looks_are_kept_for_longer() -> None:
    recent = ActivityWindow()
    said = [recent.add(looks()[0], None, now * 60.0) for now in range(4)]
    assert [activity and activity.doing for activity in said] == [None, None, "busy", "busy"]


def test_a_look_keeps_its_values_and_utilization_is_none_of_them() -> None:
    recent, plain = ActivityWindow(), ActivityWindow()
    for now in range(3):
        judged = recent.add(Activity(sm=0.5, dram=0.2), 0.9, float(now))
        other = plain.add(None, 0.9, float(now))
    assert judged == Activity(sm=0.5, dram=0.2, doing="busy")
    assert other == Activity(doing="busy (by UTIL)")
    assert ActivityWindow().add(None, None, 0.0) is None
