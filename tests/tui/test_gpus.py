"""The GPU pane and the heading on the screen: colours, sizes, keys. Cells: test_gpu_columns.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.sections import Activity
from gputop.settings import Session, Thresholds
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of, shown


async def test_a_gpu_that_sleeps_says_so_quietly() -> None:
    nothing = dict.fromkeys(("memory_used", "utilization", "temperature", "power"))
    async with shown(frame_of(gpu_of(0, state="asleep", **nothing), gpu_of(1))) as screen:
        assert screen.gpu_cell(0, "WHO") == "asleep"
        assert "1 free" in screen.text
        [word] = [gpu for gpu in screen.segments[screen.gpus.region.y + 1] if "asleep" in gpu.text]
        assert word.style is not None
        assert word.style.dim
        await screen.press("shift+tab", "enter")
        assert "asleep: the kernel has powered it down" in screen.text
        assert "not supported" not in screen.text


async def colours_of(
    loads: Sequence[float], thresholds: Thresholds
) -> Sequence[tuple[object, object]]:
    """The colours of each GPU's UTIL, bar and number."""
    gpus = [gpu_of(index, utilization=load) for index, load in enumerate(loads)]
    processes = [process_of(100 + index, index) for index in range(len(gpus))]
    settings = Session(theme="dark", thresholds=thresholds)
    async with shown(frame_of(*gpus, *processes), settings=settings) as screen:
        begin = screen.lines[1].index("UTIL")
        colours = []
        for n in range(len(gpus)):
            cells: list[object] = []
            for segment in screen.segments[screen.gpus.region.y + 1 + n]:
                cells += [segment.style.color if segment.style else None] * segment.cell_length
            end = screen.gpu_line(n).index("%")
            colours.append((cells[begin], cells[end]))
        return colours


async def test_a_load_has_its_colour_in_steps() -> None:
    loads = (0.01, 0.09, 0.1, 0.79, 0.8, 1.0)
    light, light2, moderate, moderate2, heavy, heavy2 = await colours_of(loads, Thresholds())
    assert (light, moderate, heavy) == (light2, moderate2, heavy2)
    assert len({light, moderate, heavy}) == 3
    assert all(bar == number for bar, number in (light, moderate, heavy))
    own = await colours_of((0.4, 0.5, 0.6), Thresholds(moderate=0.45, heavy=0.55))
    assert own == [light, moderate, heavy]


async def test_a_free_row_is_plainly_free() -> None:
    """By the word, and by what has a colour: nothing else in it."""
    frame = frame_of(gpu_of(0), gpu_of(1, memory_used=20 * GIB), process_of(100, 1))
    async with shown(frame, theme="dark") as screen:
        free, used = screen.segments[screen.gpus.region.y + 1 :][:2]
        colours = {segment.text.strip(): segment.style.color for segment in free if segment.style}
        assert colours["0"] == colours["free"] is not None
        grey = [text for text, colour in colours.items() if text and colour != colours["free"]]
        assert "H200" in grey
        assert len({colours[text] for text in grey}) == 2  # words, and the empty bars
        assert colours["free"] not in {device.style.color for device in used if device.style}


async def test_a_user_has_one_colour_everywhere() -> None:
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(1), process_of(2, gpu=1, user="bob"))
    async with shown(frame, theme="dark") as screen:
        seen: dict[str, set[object]] = {"alice": set(), "bob": set()}
        for segment in (segment for line in screen.segments for segment in line):
            if segment.text.strip() in seen and segment.style is not None:
                seen[segment.text.strip()].add(segment.style.color)
        assert len(seen["alice"]) == len(seen["bob"]) == 1
        assert seen["alice"] != seen["bob"]


async def test_the_short_history_does_not_repeat_the_graphs() -> None:
    """Below the processes there is the utilization of each GPU; with few GPUs, also its memory."""
    few, many = frame_of(gpu_of(0)), frame_of(*(gpu_of(n) for n in range(8)))
    for frame, least in ((few, "power"), (many, "memory")):
        async with shown(frame, size=(200, 50)) as screen:
            rule = screen.line_with("last 1 min")
            for _ in range(9):
                word = screen.lines[1].rstrip().rpartition(" of ")[2]
                assert word not in rule.lower()
                await screen.press("g")
            await screen.press("G")
            assert screen.lines[0].split()[0] != "UTIL"  # as it was chosen
        async with shown(frame, size=(200, 50)) as screen:
            assert screen.lines[1].rstrip().endswith(f" of {least}")
            await screen.press("G")
            assert screen.lines[0].split()[0] == "UTIL"
            await screen.press("escape")
            crowd = [process_of(100 + n) for n in range(60)]
            await screen.show(frame_of(*frame.gpus, *crowd, time=NOON + 1))
            assert "last 1 min" not in screen.text
            assert screen.lines[1].rstrip().endswith(" of utilization")


async def test_the_short_history_shows_what_g_says() -> None:
    """What no GPU has is passed over; where there are no labels, the rule says it."""
    loads = {"utilization": 1.0, "memory_used": 70 * GIB, "power": 175.0, "temperature": 100.0}
    words = (("utilization", "█"), ("memory", "▅"), ("power", "▃"), ("temperature", "█"))
    frame = frame_of(gpu_of(0, **loads, activity=Activity(tensor=0.0)))
    settings = Session(theme="ansi-dark", panes=("gpus", "processes", "mapping"))
    async with shown(frame, size=(200, 40), settings=settings) as screen:
        for label, drawn in (*words, ("SM clock", "▆"), ("tensor cores", "▁"), words[0]):
            assert screen.lines[1].rstrip().endswith(f" of {label}")
            assert screen.lines[2][-1] == drawn, label
            await screen.press("g")
        await screen.resize(80, 24)
        assert screen.lines[1].rstrip().endswith(" memory 15 s")
        assert screen.lines[2][-1] == "▅"
        await screen.resize(80, 6)
        assert "history: memory ── Processes" in screen.text


@pytest.mark.parametrize("width", [200, 80, 40])
async def test_heading(width: int) -> None:
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(1), host=Host(name="node-07"))
    async with shown(frame, size=(width, 24)) as screen:
        head = screen.lines[0]
        assert head.startswith(" gputop  node-07")
        assert head.rstrip().endswith("1s")
        facts = {
            200: ["driver 580.95.05", "CUDA 13.0", "2 GPUs, 1 free", "1 user "],
            80: ["2 GPUs, 1 free", "1 user "],
            40: ["1 of 2 free"],
        }
        assert [fact for fact in facts[width] if fact not in head] == []


async def test_loads_of_the_host_have_bars() -> None:
    host = Host(name="node", cpu=0.5, memory_total=1008 * GIB, memory_used=212 * GIB)
    frame = frame_of(host=host)
    async with shown(frame, size=(160, 40)) as screen:
        assert " CPU 50% ████░░░░  RAM 212/1008G █▋░░░░░░ " in screen.lines[0]
        await screen.resize(80, 24)
        assert " CPU 50%  RAM 212/1008G " in screen.lines[0]


@pytest.mark.parametrize("name", ["a-very-long-name-of-a-pod-" * 4, "機械" * 40])
async def test_a_long_host_name_leaves_room(name: str) -> None:
    async with shown(frame_of(host=Host(name=name)), size=(80, 24)) as screen:
        assert "…" in screen.lines[0]
        assert screen.lines[0].rstrip().endswith("1s")


async def test_before_the_first_frame_and_on_an_invented_machine() -> None:
    async with shown() as screen:
        assert "waiting for the driver" in screen.lines[0]
        assert screen.process_lines == []
        await screen.show(frame_of(demo=True))
        assert "DEMO" in screen.lines[0]
        assert "no process is on a GPU" in screen.text


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_eight_gpus_leave_room_for_all_else(size: tuple[int, int]) -> None:
    gpus = [gpu_of(index) for index in range(8)]
    frame = frame_of(*gpus, *(process_of(100 + n) for n in range(30)))
    async with shown(frame, size=size) as screen:
        assert [screen.gpu_line(index).split()[0] for index in range(8)] == list("01234567")
        assert len(screen.process_lines) >= 8
        assert "CUDA_VISIBLE_DEVICES" in screen.text
        assert "F9 signal" in screen.lines[-1]
        assert screen.pane.size.height == 1
        assert "WHO" in screen.lines[1]


async def test_one_gpu_shows_all_panes_on_a_small_terminal() -> None:
    async with shown(frame_of(gpu_of(0)), size=(80, 24)) as screen:
        assert "WHO" in screen.lines[1]
        assert "COMMAND" in screen.lines[4]
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.lines[-2]


async def test_sixteen_gpus_scroll_and_say_so() -> None:
    frame = frame_of(*(gpu_of(index) for index in range(16)), *map(process_of, range(100, 130)))
    async with shown(frame, size=(80, 24)) as screen:
        room = screen.gpus.visible_rows
        assert room < 16
        assert "WHO" in screen.lines[1]
        assert f"GPU 0-{room - 1} of 16 ── Processes" in screen.text
        await screen.press("shift+tab", "end")
        assert screen.gpu_line(room - 1).split()[0] == "15"
        assert f"GPU {16 - room}-15 of 16" in screen.text
        await screen.resize(80, 60)
        assert "of 16 ──" not in screen.text
        assert screen.gpu_line(0).split()[0] == "0"
        await screen.resize(80, 24)
        await screen.press("m")
        await screen.resize(40, 12)
        assert "─ GPU 15 of 16 ─" in screen.text


async def test_what_is_hidden_is_said_as_the_rows_are_now() -> None:
    """Not as they were when the pane last told of it, which it may do before it has its size."""
    frame = frame_of(*(gpu_of(index) for index in range(16)), *map(process_of, range(100, 130)))
    async with shown(frame, size=(80, 24)) as screen:
        assert "of 16 ──" in screen.text
        screen.gpus.scrolled = lambda: None
        await screen.resize(80, 60)
        assert "of 16 ──" not in screen.text


async def test_a_gpu_that_comes_back_keeps_the_cursor() -> None:
    def at(*indices: int) -> Frame:
        return frame_of(*(gpu_of(index) for index in indices))

    async with shown(at(0, 1, 2)) as screen:
        await screen.press("shift+tab", "down")
        for frame, expected in ((at(0, 2), None), (at(0, 1, 2), 1)):
            await screen.show(frame)
            selected = screen.gpus.current
            assert (selected and selected.gpu.index) == expected


async def test_full_memory_does_not_flicker_about_the_limit() -> None:
    total = gpu_of(0).memory_total or 0
    shares = ((0.94, False), (0.96, True), (0.94, True), (0.92, False), (0.94, False))
    async with shown(size=(120, 20)) as screen:
        for n, (share, stands_out) in enumerate(shares):
            used = gpu_of(0, memory_used=int(share * total))
            await screen.show(frame_of(used, process_of(100), time=NOON + n))
            top = screen.gpus.region.y + screen.gpus.head_lines
            number = f"{share * total / GIB:.1f}"
            [style] = [piece.style for piece in screen.segments[top] if number in piece.text]
            assert (style == screen.gpus.role_style("notice")) == stands_out, share
