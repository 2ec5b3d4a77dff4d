"""Which processes are shown, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.metrics.process import PROCESS, ProcessRow
from gputop.model.processes import process_rows
from gputop.model.processes.views import View, ViewRow
from tests.builders import frame, gpu, matching, process


def pids(found: list[ProcessRow]) -> list[int]:
    return [row.process.pid for row in found]


def test_rows_are_in_the_order_of_gpus_and_pids() -> None:
    processes = [process(9, on=1), process(3, on=1), process(7), process(5, on=2), process(4)]
    found = process_rows.rows(frame([gpu(2), gpu(1), gpu(0)], processes))
    assert [(row.gpu and row.gpu.index, row.process.pid) for row in found] == [
        (0, 4),
        (0, 7),
        (1, 3),
        (1, 9),
        (2, 5),
    ]


def test_instances_follow_each_other() -> None:
    processes = [
        process(1, gpu_instance=2, compute_instance=0),
        process(2, gpu_instance=1, compute_instance=1),
        process(3, gpu_instance=1, compute_instance=0),
    ]
    assert pids(process_rows.rows(frame(processes=processes))) == [3, 2, 1]


def test_a_row_without_its_gpu_is_kept() -> None:
    found = process_rows.rows(frame(processes=[process(1, on=5), process(2, on=None), process(3)]))
    assert {(row.process.pid, row.gpu is None) for row in found} == {
        (1, True),
        (2, True),
        (3, False),
    }


@pytest.mark.parametrize(("start", "age"), [(None, None), (1900.0, 100.0), (2001.0, 0.0)])
def test_age(start: float | None, age: float | None) -> None:
    [row] = process_rows.rows(frame(processes=[process(1, start_time=start)]))
    assert row.age == age


def test_a_rows_key_is_the_process_and_its_place() -> None:
    """The same while values change; another for a reused number, another GPU or instance."""
    here = frame(
        [gpu(0), gpu(1)],
        [
            process(1),
            process(1, start_time=1001.0),
            process(1, on=1),
            process(1, gpu_instance=1),
            process(1, gpu_instance=1, compute_instance=1),
            process(2),
        ],
    )
    keys = process_rows.row_keys(here, process_rows.rows(here))
    assert len(set(keys)) == 6
    later = frame(processes=[process(1, cpu=0.5, gpu_memory=7, command="x")])
    assert set(process_rows.row_keys(later, process_rows.rows(later))) < set(keys)


# Order

VALUES: dict[str, tuple[Any, Any]] = {
    "idle_for": (1.0, 2.0),
    "pid": (1, 2),
    "user": ("alice", "bob"),
    "type": ("C", "G"),
    "gpu_memory": (0, 5),
    "sm_utilization": (0.0, 0.5),
    "cpu": (0.0, 1.5),
    "rss": (0, 100),
    "state": ("R", "S"),
    "command": ("a", "b"),
}


def ordered(rows: list[ProcessRow], metric_id: str, descending: bool = False) -> list[ProcessRow]:
    lines = View().lines([ViewRow(row, None) for row in rows], (metric_id, descending))
    return [line.row for line in lines]


def masked(value: str) -> CudaContext:
    return CudaContext(Environ({"CUDA_VISIBLE_DEVICES": value}))


@pytest.mark.parametrize("column", PROCESS)
@pytest.mark.parametrize("descending", [False, True])
def test_every_column_sorts_both_ways_with_the_unknown_last(column: str, descending: bool) -> None:
    field = {"age": "start_time", "gpu": "gpu_uuid", "cuda": "cuda_context"}.get(column, column)
    small, great = {
        **VALUES,
        "start_time": (1500.0, 1000.0),
        "gpu_uuid": ("GPU-0", "GPU-1"),
        "cuda_context": (masked("GPU-0"), masked("GPU-1,GPU-0")),
    }[field]
    nothing = None if field not in ("pid", "type") else great
    processes = [
        process(pid, **({field: value} if field != "pid" else {}))
        for pid, value in ((1, small), (2, great), (3, nothing), (4, small))
    ]
    found = process_rows.rows(frame([gpu(0), gpu(1)], processes))
    told = pids(ordered(found, column, descending))
    if field == "pid":
        assert told == ([4, 3, 2, 1] if descending else [1, 2, 3, 4])
    elif nothing is None:
        assert told == ([2, 1, 4, 3] if descending else [1, 4, 2, 3])
    else:
        assert told == ([2, 3, 1, 4] if descending else [1, 4, 2, 3])


@pytest.mark.parametrize("descending", [False, True])
def test_equal_values_keep_their_order(descending: bool) -> None:
    processes = [process(pid, gpu_memory=5) for pid in (5, 1, 4, 2, 3)]
    found = process_rows.rows(frame(processes=processes))
    assert pids(ordered(found, "gpu_memory", descending)) == [1, 2, 3, 4, 5]


def test_gpus_sort_by_number_and_instance() -> None:
    processes = [
        process(1, on=10),
        process(2, on=2),
        process(3, on=2, gpu_instance=10, compute_instance=0),
        process(4, on=2, gpu_instance=9, compute_instance=0),
    ]
    found = process_rows.rows(frame([gpu(2), gpu(10)], processes))
    told = ordered(found, "gpu")
    assert pids(told) == [2, 4, 3, 1]
    assert [PROCESS["gpu"].text(row) for row in told] == ["2", "2:9", "2:10", "10"]


# Filter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [11, 12, 13, 21]),
        ("   ", [11, 12, 13, 21]),
        ("alice", [11, 13]),
        ("ALICE", [11, 13]),
        ("train", [11, 12]),
        ("train.py alice", [11]),
        ("alice  train.py", [11]),
        ("lr=3", [11]),
        ("21", [21]),
        ("gpu:1", [13, 21]),
        ("GPU1", [13, 21]),
        ("gpu:01", [13, 21]),
        ("gpu:0 bob", [12]),
        ("gpu:9", []),
        ("straße", [21]),
        ("STRASSE", [21]),
        ("[/]", [13]),
        (".*", []),
        ("alice bob", []),
        ("gpu:１", []),
    ],
)
def test_filter(text: str, expected: list[int]) -> None:
    processes = [
        process(11, user="alice", command="python train.py --lr=3"),
        process(12, user="bob", command="python train2.py"),
        process(13, on=1, user="alice", command="[/]"),
        process(21, on=1, user=None, command="Straße"),
    ]
    found = process_rows.rows(frame([gpu(0), gpu(1)], processes))
    assert pids(matching(found, text)) == expected


def test_a_filter_on_what_is_unknown() -> None:
    found = process_rows.rows(frame(processes=[process(7, on=None, user=None, command=None)]))
    assert pids(matching(found, "none")) == []
    assert pids(matching(found, "gpu:0")) == []
    assert pids(matching(found, "7")) == [7]
