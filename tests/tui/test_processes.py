"""The process table: order, cursor, filter, command."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Host, Process
from gputop.model.metrics.process import PROCESS
from tests.builders_tui import GIB, NOON, Screenful, frame_of, gpu_of, process_of, shown


def masked(value: str, **around: Any) -> CudaContext:
    """Of a process that was started with CUDA_VISIBLE_DEVICES=`value`."""
    return CudaContext(Environ({"CUDA_VISIBLE_DEVICES": value}), **around)


MIXED = (
    process_of(
        301, gpu=1, user="bob", type="C", gpu_memory=3 * GIB, sm_utilization=0.1, cpu=0.0,
        idle_for=0.0, rss=GIB, state="D", start_time=NOON - 5, command="python b.py",
        cuda_context=masked("1"),
    ),
    process_of(
        302, gpu=0, user="amy", type="C+G", gpu_memory=2 * GIB, sm_utilization=0.9, cpu=3.5,
        idle_for=900.0, rss=3 * GIB, state="R", start_time=NOON - 500, command="python c.py",
        cuda_context=masked("1,0"),
    ),
    process_of(
        303, gpu=2, user="eve", type="M", gpu_memory=5 * GIB, sm_utilization=0.0, cpu=1.0,
        idle_for=90.0, rss=2 * GIB, state="S", start_time=NOON - 50, command="python a.py",
        cuda_context=masked("0,1,2"),
    ),
)  # fmt: skip
UNKNOWN = process_of(
    304, gpu_uuid=None, user=None, gpu_memory=None, sm_utilization=None, cpu=None, rss=None,
    state=None, start_time=None, command=None,
)  # fmt: skip
GPUS = tuple(gpu_of(index) for index in range(3))
ASCENDING = {
    "gpu": [302, 301, 303],
    "gpu_memory": [302, 301, 303],
    "command": [303, 301, 302],
}


async def sort_by(screen: Screenful, metric_id: str) -> None:
    """As a person does it: the dialog, arrows, Enter."""
    ids = list(PROCESS)
    steps = ids.index(metric_id) - ids.index(screen.table.sort_id)
    await screen.press("s", *["down" if steps > 0 else "up"] * abs(steps), "enter")


async def test_a_column_sorts_both_ways_with_the_unknown_last() -> None:
    """As every other one does (tests/model/test_query.py)."""
    async with shown(frame_of(*GPUS, UNKNOWN, *MIXED)) as screen:
        for metric_id in ASCENDING:
            if metric_id != screen.table.sort_id:
                await sort_by(screen, metric_id)
            both = [await seen_order(screen, metric_id) for _ in range(2)]
            ascending = ASCENDING[metric_id]
            assert sorted(both) == [(False, ascending), (True, ascending[::-1])], metric_id


async def seen_order(screen: Screenful, metric_id: str) -> tuple[bool, list[int]]:
    """Whether it descends, and the processes of which the value is known; then turn it round."""
    pids, descending = screen.pids, screen.table.descending
    assert pids[-1] == 304
    mark = "↓" if descending else "↑" if metric_id != "gpu" else " "
    assert f"{PROCESS[metric_id].label}{mark}" in screen.lines[screen.table.region.y + 1]
    await screen.press("I")
    return descending, [pid for pid in pids if pid != 304]


async def test_text_sorts_from_a_and_numbers_from_the_highest() -> None:
    async with shown(frame_of(*GPUS, *MIXED)) as screen:
        assert screen.pids == [302, 301, 303]
        await sort_by(screen, "gpu_memory")
        assert screen.pids == [303, 301, 302]
        await sort_by(screen, "user")
        assert screen.pids == [302, 301, 303]
        await sort_by(screen, "cpu")
        assert screen.pids == [302, 303, 301]
        await sort_by(screen, "cpu")
        assert screen.pids == [301, 303, 302]


async def test_by_gpu_and_those_with_most_memory_first() -> None:
    held = {501: (1, 3), 502: (0, 1), 503: (1, 5), 504: (0, 2), 505: (2, 9), 506: (0, 2)}
    processes = [process_of(pid, gpu=gpu, gpu_memory=g * GIB) for pid, (gpu, g) in held.items()]
    async with shown(frame_of(*GPUS, *processes)) as screen:
        assert screen.pids == [504, 506, 502, 503, 501, 505]
        assert "─ by GPU ─" in screen.text
        await screen.press("I")
        assert screen.pids == [505, 503, 501, 504, 506, 502]
        assert "─ by GPU ↓ ─" in screen.text


async def test_a_column_that_tells_nothing_is_not_shown() -> None:
    """IDLE, TYPE and S; and it stays for a minute, so as not to come and go."""
    plain, *_ = ordinary = (process_of(401, idle_for=599.0), process_of(402, state="S"))

    async def heads(*processes: Process, time: float) -> set[str]:
        await screen.show(frame_of(*GPUS, *processes, time=time))
        return {"IDLE", "TYPE", "S"} & set(screen.line_with("COMMAND").split())

    async with shown(size=(160, 40)) as screen:
        assert await heads(*ordinary, time=NOON) == set()
        idle = replace(plain, idle_for=600.0)
        assert await heads(idle, time=NOON + 1) == {"IDLE"}
        assert await heads(*ordinary, time=NOON + 2) == {"IDLE"}
        assert await heads(*ordinary, replace(plain, state="D"), time=NOON + 62) == {"S"}
        assert await heads(*ordinary, process_of(403, type="G"), time=NOON + 63) == {"S", "TYPE"}
        assert await heads(*ordinary, time=NOON + 124) == set()
        assert await heads(replace(idle, gpu_memory=0), time=NOON + 125) == set()


async def test_equal_rows_stay_where_they_are() -> None:
    processes = [process_of(500 + n) for n in range(8)]
    chance = random.Random(1)
    async with shown(frame_of(*processes)) as screen:
        for _ in range(5):
            chance.shuffle(processes)
            await screen.show(frame_of(*processes))
            assert screen.pids == list(range(500, 508))


@pytest.mark.parametrize("key", ["s", "C"])
async def test_the_dialogs_keep_labels_and_words_apart(key: str) -> None:
    async with shown(frame_of(*GPUS, *MIXED), size=(120, 60)) as screen:
        await screen.press(key)
        assert " CONTAINER  name, or short id" in screen.text


async def test_escape_leaves_the_order_alone() -> None:
    async with shown(frame_of(*GPUS, *MIXED)) as screen:
        for key in ("escape", "q"):
            await screen.press("s", "down", key)
            assert screen.table.sort_id == "gpu"
        assert screen.app.is_running


@pytest.mark.parametrize("key", ["down", "j", "up", "k"])
async def test_the_first_key_selects_the_first_row(key: str) -> None:
    async with shown(frame_of(*(process_of(100 + n) for n in range(5)))) as screen:
        assert screen.selected is None
        assert "▸" not in screen.text
        await screen.press(key)
        assert screen.selected == 100
        assert screen.process_lines[0].startswith("▸")


async def test_moving() -> None:
    frame = frame_of(gpu_of(0), *(process_of(1000 + n) for n in range(100)))
    async with shown(frame, size=(80, 24)) as screen:
        room = screen.table.room
        for keys, expected in (
            (["j", "j", "down"], 1002),
            (["k"], 1001),
            (["end"], 1099),
            (["j"], 1099),
            (["pageup"], 1099 - room + 1),
            (["ctrl+b"], 1099 - 2 * (room - 1)),
            (["home"], 1000),
            (["up"], 1000),
            (["pagedown", "ctrl+f"], 1000 + 2 * (room - 1)),
            (["end"], 1099),
            (["home"], 1000),
        ):
            await screen.press(*keys)
            assert screen.selected == expected, keys
            (line,) = (line for line in screen.process_lines if line.startswith("▸"))
            assert str(expected) in line
            assert len(screen.process_lines) == room
        assert f"1-{room} of 100" in screen.text


async def test_the_cursor_follows_its_process() -> None:
    processes = [process_of(100 + n, gpu_memory=(50 - n) * GIB) for n in range(40)]
    async with shown(frame_of(*processes), size=(80, 24)) as screen:
        await sort_by(screen, "gpu_memory")
        await screen.press("j", "j")
        assert screen.selected == 101
        processes[1] = process_of(101, gpu_memory=GIB)  # from the second place to the last
        await screen.show(frame_of(*processes))
        assert screen.selected == 101
        assert screen.process_lines[-1].startswith("▸")
        await screen.press("I")
        assert screen.selected == 101
        assert screen.process_lines[0].startswith("▸")
        await sort_by(screen, "pid")
        assert screen.selected == 101


async def test_a_process_that_takes_its_place_is_not_selected() -> None:
    async with shown(frame_of(process_of(100), process_of(101), process_of(102))) as screen:
        await screen.press("j", "j")
        await screen.show(frame_of(process_of(100), process_of(102)))
        assert screen.selected is None
        assert "▸" not in screen.text
        await screen.press("j")
        assert screen.selected == 102
        await screen.show(frame_of())
        assert screen.selected is None
        await screen.press("j", "pagedown", "end")
        assert screen.selected is None


async def test_a_reused_pid_is_another_process() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j")
        await screen.show(frame_of(process_of(100, start_time=NOON - 1)))
        assert screen.selected is None
        await screen.show(frame_of(process_of(100)))
        assert screen.selected == 100


async def test_a_process_on_two_gpus_has_two_rows() -> None:
    async with shown(frame_of(process_of(100), process_of(100, gpu=1))) as screen:
        await screen.press("j", "j")
        assert [line[:5].split()[-1] for line in screen.process_lines] == ["0", "1"]
        assert [line[0] for line in screen.process_lines] == [" ", "▸"]


async def test_every_key_filters() -> None:
    frame = frame_of(process_of(100, user="bob"), process_of(200), process_of(201, gpu=1))
    async with shown(frame) as screen:
        await screen.press("slash")
        for text, shown_ in (("a", 3), ("l", 2), ("i", 2), (" ", 2), ("gpu:1", 1), ("2", 0)):
            await screen.type(text)
            assert f"{shown_} of 3" in screen.text
        assert "no process matches the filter" in screen.text
        await screen.press(*["backspace"] * 8)
        assert screen.pids == [200, 201]
        await screen.press("enter")
        assert "filter: al " in screen.text
        assert screen.app.focused is screen.table
        await screen.press("escape")
        assert "filter:" not in screen.text
        assert len(screen.pids) == 3


async def test_filtering_keeps_the_cursor_on_its_process() -> None:
    frame = frame_of(process_of(100), process_of(200, user="bob"), process_of(300, user="bob"))
    async with shown(frame) as screen:
        await screen.press("j", "slash")
        await screen.type("bob")
        assert screen.selected is None
        await screen.press("escape")
        assert screen.selected == 100
        await screen.press("j", "j", "slash")
        await screen.type("bob")
        assert screen.selected == 300
        assert screen.process_lines[1].startswith("·")  # the keys are for the filter


async def test_escape_goes_back_step_by_step() -> None:
    async with shown(frame_of(process_of(100), process_of(200)), size=(80, 24)) as screen:
        await screen.press("slash", "a", "enter", "j", "m", "1")
        steps = []
        for _ in range(3):
            await screen.press("escape")
            steps.append((screen.app.focused is screen.table, screen.selected, screen.table.filter))
        assert steps == [(True, 100, "a"), (True, None, "a"), (True, None, "")]
        assert screen.app.is_running


async def test_script_first_or_the_whole_line() -> None:
    command = "/opt/conda/bin/python3 -u /home/alice/train.py --lr 3e-4"
    async with shown(frame_of(process_of(100, command=command)), size=(200, 50)) as screen:
        assert screen.process_lines[0].endswith(" train.py --lr 3e-4")
        await screen.press("c")
        assert screen.process_lines[0].endswith(command)
        await screen.press("c")
        assert screen.process_lines[0].endswith(" train.py --lr 3e-4")


async def test_the_command_scrolls_sideways_and_says_so() -> None:
    frame = frame_of(process_of(100, command="x" + "0123456789" * 30), process_of(101))
    async with shown(frame, size=(80, 24)) as screen:
        before = screen.process_lines
        await screen.press("right")
        assert "COMMAND from 16" in screen.text
        assert "5678901234" in screen.process_lines[0]
        await screen.press(*["right"] * 50)
        assert screen.process_lines[0].endswith("123456789")
        assert screen.process_lines[1].endswith("1m00s")
        await screen.press(*["left"] * 50)
        assert screen.process_lines == before
        assert "COMMAND from" not in screen.text


async def test_what_is_not_known_of_a_process() -> None:
    async with shown(frame_of(UNKNOWN), size=(200, 40)) as screen:
        (line,) = screen.process_lines
        assert "not in this /proc" in line
        assert line.split("not in")[0].split() == ["–", "–", "304", *["–"] * 6]
        await screen.show(frame_of(replace(UNKNOWN, elsewhere=True)))
        assert screen.process_lines[0].endswith("may be a host PID")
        zeros = process_of(1000, gpu_memory=0, sm_utilization=0.0, cpu=0.0, rss=0)
        await screen.show(frame_of(zeros))
        assert screen.process_lines[0].split()[4:8] == ["0"] * 4


@pytest.mark.parametrize("width", [200, 120, 80, 40, 20])
async def test_columns_stand_under_their_labels(width: int) -> None:
    frame = frame_of(*GPUS, *MIXED, process_of(1234567, user="a" * 30, cpu=99.99, gpu_memory=0))
    async with shown(frame, size=(width, 40)) as screen:
        head = screen.lines[screen.table.region.y + 1]
        starts = [head.index(label) for label in ("USER", "COMMAND") if label in head]
        for line in screen.process_lines:
            assert len(line) <= width
            assert all(line.ljust(width)[start - 1] == " " for start in starts)
            for label in ("PID", "GPU-MEM↓", "CPU%"):
                if label in head:
                    end = head.index(label) + len(label)
                    assert line[end - 1] != " "
                    assert line.ljust(width + 1)[end] == " "


async def test_mig_instances_are_named() -> None:
    on_mig = process_of(100, gpu_instance=3, compute_instance=0)
    async with shown(frame_of(gpu_of(0, mig_mode=True), on_mig)) as screen:
        assert screen.process_lines[0].split()[0] == "0:3"
        parts = [process_of(pid, gpu_instance=13, compute_instance=pid) for pid in range(3)]
        await screen.show(frame_of(gpu_of(0, mig_mode=True), *parts))
        assert {line.split()[0] for line in screen.process_lines} == {"0:13", "0:13/1", "0:13/2"}
        head = screen.lines[screen.table.region.y + 1]
        assert head.index("GPU") == 4


def looked_at(**variables: str) -> CudaContext:
    return CudaContext(Environ(variables))


async def test_the_cuda_column_says_what_a_process_calls_its_gpu() -> None:
    gpus = [gpu_of(index) for index in range(4)]
    processes = [
        process_of(401, gpu=1, cuda_context=masked("3,1")),
        process_of(402, gpu=2, cuda_context=looked_at()),
        process_of(403, gpu=3, cuda_context=CudaContext(Environ({}, "unreadable"))),
        process_of(404, gpu=3, cuda_context=CudaContext(Environ({}, "overwritten"))),
        process_of(405, gpu=0),
    ]
    async with shown(frame_of(*gpus, *processes)) as screen:
        shown_as = {pid: screen.line_with(f" {pid} ").split()[1] for pid in range(401, 406)}
    assert list(shown_as.values()) == ["cuda:1?", "cuda:2?", "private", "env-lost", "–"]


async def test_a_misspelt_variable_is_a_warning_on_its_row() -> None:
    typo = process_of(401, cuda_context=looked_at(CUDA_VISIBLE_DIVICES="1"))
    async with shown(frame_of(gpu_of(0), gpu_of(1), typo)) as screen:
        assert "! CUDA_VISIBLE_DIVICES train.py" in screen.line_with("401").replace("▲", "!")


async def test_enter_shows_the_process_with_the_reasoning() -> None:
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(401, gpu=1, cuda_context=masked("1\x1b[2J")))
    async with shown(frame) as screen:
        await screen.press("enter")
        page = screen.text
        assert "It was started with CUDA_VISIBLE_DEVICES=1�[2J and CUDA_DEVICE_ORDER unset." in page
        assert "There cuda:0 is GPU 1" in page
        assert "The driver sees it on GPU 1, which fits." in page
        await screen.show(frame_of(gpu_of(0), gpu_of(1)))
        assert "it has ended" in screen.text
        await screen.press("down", "pagedown", "end", "home", "escape")
        assert "no process is on a GPU" in screen.text


@pytest.mark.parametrize(("windows", "end"), [(False, "here"), (True, "Windows runs it (WSL)")])
async def test_processes_that_are_not_listed_have_a_reason(windows: bool, end: str) -> None:
    host = Host(name="node", wsl=windows)
    async with shown(frame_of(gpu_of(0, listed="none"), host=host)) as screen:
        line = screen.line_with("the driver does not list the processes here")
        assert line.rstrip().endswith(end)


async def test_what_a_gpu_said_before_it_hung_is_dim_and_a_failed_one_has_no_name() -> None:
    hung, lost = gpu_of(1, stale_for=40.0), gpu_of(2, error="GPU is lost")
    context = looked_at()
    parts = [process_of(100 + gpu, gpu, cuda_context=context) for gpu in range(3)]
    async with shown(frame_of(gpu_of(0), hung, lost, *parts), theme="dark") as screen:
        roles = []
        for row in screen.table._rows:
            pieces = [piece for piece in screen.table.row_pieces(row, False) if "50" in piece[0]]
            roles.append(pieces[0][1])
        assert roles == ["text", "quiet", "quiet"]
        names = ["cuda:" in line for line in screen.process_lines]
        assert names == [True, True, False]
