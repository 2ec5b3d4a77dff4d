"""Views: some of the processes, a line a user, a tree."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.model.machine.frame import Process
from gputop.model.metrics.process import PROCESS
from gputop.model.processes import process_rows
from gputop.model.processes.views import View, ViewRow
from tests.builders import GIB, frame, gpu, process

BY_MEMORY = ("gpu_memory", True)
TREE, USERS = View("tree"), View("users")


def entries(*processes: Process) -> list[ViewRow]:
    here = frame([gpu(0), gpu(1), gpu(2)], processes)
    rows = process_rows.rows(here)
    return list(map(ViewRow, rows, process_rows.row_keys(here, rows)))


def told(lines: list[ViewRow]) -> list[tuple[int, int, int]]:
    """Depth, pid and how many rows each line stands for."""
    return [(line.depth, line.row.process.pid, len(line.members) or 1) for line in lines]


def opened(view: View, found: list[ViewRow], order: tuple[str, bool] = BY_MEMORY) -> list[ViewRow]:
    """With all groups open, whatever their depth."""
    keys: set[Any] = set()
    while True:
        lines = view.lines(found, order, keys)
        more = {line.key for line in lines if line.members} - keys
        if not more:
            return lines
        keys |= more


def rank(pid: int, **fields: Any) -> Process:
    usual: dict[str, Any] = {"parent": 50, "command": f"python train.py --rank {pid}"}
    return process(pid, **{"gpu_memory": pid, "start_time": 100.0 + pid, **usual, **fields})


def test_ranks_of_a_launcher_are_one_line_with_totals() -> None:
    ranks = [
        rank(101, sm_utilization=0.5, cpu=1.0, rss=GIB, on=0),
        rank(101, sm_utilization=None, cpu=1.0, rss=GIB, on=1, gpu_memory=5),
        rank(102, sm_utilization=0.25, cpu=0.5, rss=GIB, on=1),
    ]
    [line] = TREE.lines(entries(*ranks), BY_MEMORY)
    total = line.row.process
    assert (total.pid, total.user, total.gpu_memory) == (50, "alice", 208)
    assert (total.sm_utilization, total.cpu, total.rss) == (0.75, 1.5, 2 * GIB)
    assert (line.row.gpu, line.row.age, line.note) == (None, 1799.0, "[+]")
    assert total.command == "2 x train.py, children of this PID"
    assert told(opened(TREE, entries(*ranks))) == [
        (0, 50, 3),
        (1, 102, 1),
        (1, 101, 1),
        (1, 101, 1),
    ]


def test_what_differs_is_not_of_one_launcher() -> None:
    found = entries(
        rank(101),
        rank(102, parent=51),
        rank(103, user="bob"),
        rank(104, command="python eval.py"),
        rank(105, parent=1),
        rank(106, parent=1),
        rank(107, parent=None),
        rank(108, parent=None),
        rank(109, command=None),
        rank(110, command=None),
    )
    assert not any(line.members for line in TREE.lines(found, BY_MEMORY))


def test_children_fold_under_their_parent() -> None:
    found = entries(
        rank(101),
        rank(102),
        rank(201, parent=102, command="pt_data_worker"),
        rank(202, parent=102, command="pt_data_worker"),
    )
    assert told(opened(TREE, found)) == [
        (0, 50, 4), (1, 102, 3), (2, 202, 1), (2, 201, 1), (2, 102, 1), (1, 101, 1),
    ]  # fmt: skip
    assert [line.last for line in opened(TREE, found)] == [True, False, False, False, True, True]


def test_a_younger_parent_is_another_process_with_the_number() -> None:
    found = entries(rank(101, start_time=500.0), rank(201, parent=101, start_time=400.0))
    assert told(TREE.lines(found, BY_MEMORY)) == [(0, 201, 1), (0, 101, 1)]
    unknown = entries(rank(101, start_time=None), rank(201, parent=101))
    assert not any(line.members for line in TREE.lines(unknown, BY_MEMORY))


def test_a_long_chain_of_parents_is_shown_whole() -> None:
    chain = [rank(100 + n, parent=99 + n) for n in range(500)]
    assert {line.row.process.pid for line in opened(TREE, entries(*chain))} == {
        entry.pid for entry in chain
    }


def test_groups_and_processes_sort_together() -> None:
    found = entries(rank(101), rank(102), rank(300, parent=60), rank(150, parent=61))
    assert told(TREE.lines(found, BY_MEMORY)) == [(0, 300, 1), (0, 50, 2), (0, 150, 1)]
    assert told(TREE.lines(found, ("gpu_memory", False)))[0] == (0, 150, 1)


def test_a_line_a_user() -> None:
    found = entries(
        process(1, user="alice", on=0, gpu_memory=5, start_time=1000.0),
        process(1, user="alice", on=2, gpu_memory=6, start_time=1000.0),
        process(2, user="alice", on=2, gpu_memory=None, start_time=1500.0),
        process(3, user="bob", on=1, gpu_memory=20),
        process(4, user=None, on=1, gpu_memory=None),
    )
    found.append(replace(found[0], kind="ended"))
    lines = USERS.lines(found, BY_MEMORY)
    assert [(line.row.process.user, line.row.process.command) for line in lines] == [
        ("bob", "GPU 1: 1 process"),
        ("alice", "GPU 0,2: 2 processes"),
        (None, "GPU 1: 1 process"),
    ]
    assert [PROCESS["gpu_memory"].text(line.row) for line in lines] == ["20", "11", "-"]
    assert lines[1].row.age == 1000.0
    assert lines[0].row.gpu is not None
    assert lines[1].row.gpu is None


def test_a_view_holds_one_user_or_one_gpu() -> None:
    rows = [row.row for row in entries(process(1), process(2, user=None), process(3, on=1))]
    assert [View(whose=("alice",)).holds(row) for row in rows] == [True, False, True]
    assert [View(whose=(None,)).holds(row) for row in rows] == [False, True, False]
    assert [View(gpu="GPU-1").holds(row) for row in rows] == [False, False, True]
    assert View(whose=("alice",), gpu="GPU-1", shape="tree").words([gpu(1)]) == (
        "of alice, on GPU 1, tree"
    )


def test_a_view_holds_one_mig_device() -> None:
    parts = (process(1, gpu_instance=2, compute_instance=0), process(2, gpu_instance=3), process(3))
    rows = [entry.row for entry in entries(*parts)]
    view = View(gpu="GPU-0", instance=(2, 0))
    assert [view.holds(row) for row in rows] == [False, True, False]
    assert view.words([gpu(0), gpu(1)]) == "on GPU 0:2"


PROCESSES = st.builds(
    process,
    pid=st.integers(2, 12),
    on=st.sampled_from([0, 1, None]),
    parent=st.none() | st.integers(0, 12),
    start_time=st.none() | st.floats(0, 3),
    user=st.sampled_from(["a", "b", None]),
    command=st.sampled_from(["python x1.py", "python x2.py", "", None]),
    gpu_memory=st.none() | st.integers(0, 9),
)


@given(st.lists(PROCESSES, max_size=12, unique_by=lambda process: (process.pid, process.gpu_uuid)))
def test_no_row_is_lost_and_none_comes_twice(processes: list[Process]) -> None:
    """Every row stands once in an open tree, and counts once in the lines of a closed one."""
    found = entries(*processes)
    keys = sorted(map(repr, (view_row.key for view_row in found)))
    assert sorted(repr(entry.key) for entry in opened(TREE, found) if not entry.members) == keys
    for view in (TREE, USERS):
        lines = view.lines(found, BY_MEMORY)
        assert len({line.key for line in lines}) == len(lines)
        assert sum(len(line.members) or 1 for line in lines) == len(found)
        assert sum(line.row.process.gpu_memory or 0 for line in lines) == sum(
            process.gpu_memory or 0 for process in processes
        )
