"""Who is on which GPU."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.machine.gpu import Listing
from gputop.model.machine.summary import (
    count_of_users,
    count_without_user,
    draws_only,
    is_full,
    users,
)
from tests.builders import frame, gpu, process


def test_users_are_those_with_compute_processes_most_memory_first() -> None:
    processes = [
        process(1, user="bob", gpu_memory=5),
        process(2, user="alice", gpu_memory=3),
        process(3, on=1, user="alice", gpu_memory=4),
        process(4, user="gdm", gpu_memory=90, type="G"),
        process(5, user=None, gpu_memory=90),
        process(6, on=1, user="zoe", gpu_memory=None),
        process(7, on=1, user="carl", gpu_memory=0),
    ]
    now = frame([gpu(0), gpu(1)], processes)
    assert users(now) == ["alice", "bob", "carl", "zoe"]
    assert users(now, now.gpus[0]) == ["bob", "alice"]
    assert users(now, now.gpus[1]) == ["alice", "carl", "zoe"]


@pytest.mark.parametrize("listing", ["ours", "none", "unknown"])
def test_where_processes_are_not_listed_nobody_is_counted(listing: Listing) -> None:
    """Nor where no list has been read yet, as of a GPU that never answered."""
    listed, unlisted = gpu(0), gpu(1, listed=listing)
    assert count_of_users(frame([listed], [])) == "0 users"
    assert count_of_users(frame([listed], [process(1)])) == "1 user"
    assert count_of_users(frame([listed, unlisted], [])) == "users unknown"
    assert count_of_users(frame([listed, unlisted], [process(1)])) == "1 user seen"


@pytest.mark.parametrize(
    ("fields", "count"),
    [({}, 0), ({"user": None}, 1), ({"user": None, "type": "G"}, 0), ({"user": None, "on": 1}, 0)],
)
def test_processes_without_a_user(fields: dict[str, Any], count: int) -> None:
    now = frame([gpu(0), gpu(1)], [process(1, **fields)])
    assert count_without_user(now, now.gpus[0]) == count


BOTH = [process(2, type="G", on=2), process(3, on=2)]


def test_draws_only() -> None:
    now = frame([gpu(0), gpu(1), gpu(2)], [process(1, type="G"), *BOTH])
    assert [draws_only(now, gpu) for gpu in now.gpus] == [True, False, False]


def test_processes_by_mig_device() -> None:
    parts = [process(1, gpu_instance=2, compute_instance=0), process(2, gpu_instance=2),
             process(3, gpu_instance=2, compute_instance=0, on=1), process(4)]  # fmt: skip
    found = frame([gpu(), gpu(1)], parts).by_instance
    assert {place: [process.pid for process in here] for place, here in found.items()} == {
        ("GPU-0", 2, 0): [1],
        ("GPU-0", 2, None): [2],
        ("GPU-1", 2, 0): [3],
        ("GPU-0", None, None): [4],
    }


def test_memory_that_is_full_stays_so_until_it_is_clearly_less() -> None:
    shares, was_full, states = (0.94, 0.95, 0.949, 0.95, 0.94, 0.931, 0.92, 0.94), False, []
    for share in shares:
        was_full = is_full(share, was_full)
        states.append(was_full)
    assert states == [False, True, True, True, True, True, False, False]
