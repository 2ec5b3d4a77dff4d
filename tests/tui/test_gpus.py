"""The GPU rows and the heading: what each column says, and what unknown looks like."""

from __future__ import annotations

import pytest

from gputop.model.frame import Frame, Host
from gputop.model.sections import Activity, Identity
from gputop.settings import Session, Thresholds
from gputop.tui.glyphs import UNICODE
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of, shown, silent_gpu

BUSY = gpu_of(
    0,
    memory_used=int(98.1 * GIB),
    utilization=0.97,
    temperature=61.0,
    power=540.4,
    sm_clock=1_980_000_000,
    pstate=2,
)


@pytest.mark.parametrize(
    ("width", "words", "absent"),
    [
        (200, ["H200", "98.1/140G", "70%", "97%", "61°C", "540/700W", "1980", "P2", "alice"], []),
        (120, ["H200", "98.1/140G", "70%", "97%", "61°C", "540", "1980", "P2", "alice"], []),
        (80, ["H200", "98.1/140G", "97%", "61°C", "540", "alice"], ["700W"]),
        (40, ["98.1/140G", "97%", "61°C", "alice"], ["H200", "540"]),
    ],
)
async def test_columns_of_a_width(width: int, words: list[str], absent: list[str]) -> None:
    async with shown(frame_of(BUSY, process_of(100)), size=(width, 40)) as screen:
        line = screen.gpu_line(0)
        assert [word for word in words if word not in line] == []
        assert [word for word in absent if word in line] == []
        at = [line.index(word) for word in words]
        assert at == sorted(at)
        head = screen.lines[1]
        assert head.index("WHO") == line.index("alice")
        assert head.index("TEMP") + 4 == line.index("61°C") + 4


async def test_a_bar_is_as_long_as_its_ratio() -> None:
    half = gpu_of(0, memory_used=70 * GIB, utilization=1.0)
    async with shown(frame_of(half, gpu_of(1)), size=(200, 40)) as screen:
        line = screen.gpu_line(0)
        assert "█" * 12 + "░" * 12 in line
        assert "█" * 16 + "  100%" in line
        assert "░" * 16 + "    0%" in screen.gpu_line(1)


async def test_kinds_of_nothing_look_different() -> None:
    missing = dict.fromkeys(
        ("memory_used", "utilization", "temperature", "power", "sm_clock", "pstate")
    )
    gpus = (
        gpu_of(0),
        gpu_of(1, **missing),
        gpu_of(2, stale_for=12.4),
        gpu_of(3, error="GPU is lost"),
        silent_gpu(4),
        silent_gpu(5, stale_for=3.2),
    )
    async with shown(frame_of(*gpus), size=(200, 40)) as screen:
        zero, absent, stale, lost, never, waiting = (screen.gpu_line(i) for i in range(6))
        assert "0%" in zero
        assert "free" in zero
        assert UNICODE.not_available not in zero
        assert absent.count(UNICODE.not_available) >= 7
        assert "0%" not in absent
        assert "free" not in absent
        assert "≈ stale 12s" in stale
        assert "0%" in stale
        assert "GPU is lost" in lost
        assert "%" not in lost
        assert "has not answered yet" in never
        assert "no answer for 3s" in waiting
        assert len({line[4:] for line in (zero, absent, stale, lost, never, waiting)}) == 6


async def test_unified_memory_says_so() -> None:
    spark = gpu_of(
        0, memory_total=None, memory_used=None, identity=Identity(compute_capability="12.1")
    )
    async with shown(frame_of(spark), size=(120, 40)) as screen:
        line = screen.gpu_line(0)
        assert " unified " in line
        assert line.rstrip().endswith("no process")


async def test_a_gpu_that_sleeps_says_so_quietly() -> None:
    nothing = dict.fromkeys(("memory_used", "utilization", "temperature", "power"))
    async with shown(frame_of(gpu_of(0, asleep=True, **nothing), gpu_of(1))) as screen:
        assert screen.gpu_line(0).endswith(" asleep")
        assert "1 free" in screen.text
        [word] = [one for one in screen.segments[screen.gpus.region.y + 1] if "asleep" in one.text]
        assert word.style is not None
        assert word.style.dim
        await screen.press("shift+tab", "down", "enter")
        assert "asleep: the kernel has switched it off" in screen.text
        assert "not supported" not in screen.text


async def test_old_values_are_quiet_and_the_age_grows() -> None:
    frames = [frame_of(gpu_of(0, stale_for=age, temperature=77.0)) for age in (2.0, 3.0)]
    async with shown(frames[0]) as screen:
        assert "stale 2s" in screen.gpu_line(0)
        row = screen.segments[screen.gpus.region.y + 1]
        (temperature,) = (segment for segment in row if "77" in segment.text)
        assert temperature.style is not None
        assert temperature.style.dim
        await screen.show(frames[1])
        assert "stale 3s" in screen.gpu_line(0)
        await screen.show(frame_of(gpu_of(0)))
        assert "stale" not in screen.text


@pytest.mark.parametrize(("thresholds", "marked"), [(Thresholds(), []),
    (Thresholds(hot=60.0), ["61"]), (Thresholds(full=0.5), ["98.1"])])  # fmt: skip
async def test_values_stand_out_from_where_the_settings_say(
    thresholds: Thresholds, marked: list[str]
) -> None:
    async with shown(frame_of(BUSY), settings=Session(thresholds=thresholds)) as screen:
        row = screen.segments[screen.gpus.region.y + 1]
        texts = [one for one in row if one.text.strip() in ("61", "98.1")]
        assert len(texts) == 2
        assert [one.text.strip() for one in texts if one.style and one.style.bold] == marked


async def test_a_fan_column_only_where_a_fan_is() -> None:
    async with shown(frame_of(gpu_of(0))) as screen:
        assert "FAN%" not in screen.text
        await screen.show(frame_of(gpu_of(0, fan=0.42), gpu_of(1)))
        assert "FAN%" in screen.text
        assert "42" in screen.gpu_line(0)
        assert UNICODE.not_available in screen.gpu_line(1)


@pytest.mark.parametrize(
    ("processes", "used", "who"),
    [
        ([process_of(1, user="bob", gpu_memory=1), process_of(2, user="amy")], 20 * GIB, "amy bob"),
        ([], GIB // 2, "free"),
        ([], 2 * GIB, "no process"),
        ([process_of(1, user=None, command=None)], 20 * GIB, "1 not in /proc"),
        (
            [process_of(1), process_of(2, user=None), process_of(3, user=None)],
            GIB,
            "alice 2 not in /proc",
        ),
        ([process_of(1, type="G")], 2 * GIB, "display"),
        ([process_of(1, type="G")], GIB // 2, "free"),
        ([process_of(1, type="C+G")], GIB // 2, "alice"),
        ([process_of(1, gpu=1)], GIB // 2, "free"),
    ],
)
async def test_who(processes: list[object], used: int, who: str) -> None:
    frame = frame_of(gpu_of(0, memory_used=used), gpu_of(1), *processes)  # type: ignore[arg-type]
    async with shown(frame, size=(200, 40)) as screen:
        at = screen.lines[1].index("WHO")
        assert screen.gpu_line(0)[at:] == who


async def test_a_user_has_one_colour_everywhere() -> None:
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(1), process_of(2, gpu=1, user="bob"))
    async with shown(frame, theme="dark") as screen:
        seen: dict[str, set[object]] = {"alice": set(), "bob": set()}
        for segment in (segment for line in screen.segments for segment in line):
            if segment.text.strip() in seen and segment.style is not None:
                seen[segment.text.strip()].add(segment.style.color)
        assert len(seen["alice"]) == len(seen["bob"]) == 1
        assert seen["alice"] != seen["bob"]


async def test_a_graph_has_gaps_where_nothing_was_measured() -> None:
    loads = (0.0, None, 1.0)
    async with shown(size=(200, 40)) as screen:
        for second, load in enumerate(loads, 1):
            await screen.show(frame_of(gpu_of(0, utilization=load), time=NOON + second))
        assert "▁ █" in screen.gpu_line(0)


async def test_the_short_history_shows_what_g_says() -> None:
    """What no GPU has is passed over; where there are no labels, the rule says it."""
    loads = {"utilization": 1.0, "memory_used": 70 * GIB, "power": 175.0, "temperature": 100.0}
    expected = (("UTIL", "█"), ("MEMORY", "▅"), ("POWER", "▃"), ("TEMP", "█"), ("CLOCK", "▆"))
    frame = frame_of(gpu_of(0, **loads, activity=Activity(tensor=0.0)))
    async with shown(frame, size=(200, 40)) as screen:
        for label, drawn in (*expected, ("TENSOR", "▁"), expected[0]):
            head = screen.lines[1]  # the column UTIL is before it, others are behind it
            begin = head.rindex(label) if label == "UTIL" else head.index(label)
            assert screen.gpu_line(0)[begin + len(label) - 1] == drawn, label
            await screen.press("g")
        await screen.resize(80, 10)
        assert "history: MEMORY ── Processes" in screen.text


@pytest.mark.parametrize("width", [200, 80, 40])
async def test_heading(width: int) -> None:
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(1), host=Host(name="node-07"))
    async with shown(frame, size=(width, 24)) as screen:
        head = screen.lines[0]
        assert head.startswith(" gputop  node-07")
        assert head.rstrip().endswith("1s")
        facts = {
            200: ["driver 580.95.05", "CUDA 13.0", "2 GPUs, 1 free", "1 user "],
            80: ["580.95.05", "CUDA 13.0", "1 of 2 free"],
            40: [],
        }
        assert [fact for fact in facts[width] if fact not in head] == []


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
        assert "q quit" in screen.lines[-1]
        whole = screen.pane.size.height > 1
        assert whole == (size != (80, 24))
        if whole:
            assert len([line for line in screen.mapping_lines if "cuda:" in line]) == 8


async def test_one_gpu_shows_all_panes_on_a_small_terminal() -> None:
    async with shown(frame_of(gpu_of(0)), size=(80, 24)) as screen:
        assert "WHO" in screen.lines[1]
        assert "unset CUDA_VISIBLE_DEVICES" in screen.text


async def test_sixteen_gpus_scroll_and_say_so() -> None:
    frame = frame_of(*(gpu_of(index) for index in range(16)), process_of(100))
    async with shown(frame, size=(80, 24)) as screen:
        room = screen.gpus.room
        assert room < 16
        assert f"GPU 0-{room - 1} of 16 ── Processes" in screen.text
        await screen.press("shift+tab", "end")
        assert screen.gpu_line(room - 1).split()[0] == "15"
        assert f"GPU {16 - room}-15 of 16" in screen.text
        await screen.resize(80, 60)
        assert "of 16 ──" not in screen.text
        assert screen.gpu_line(0).split()[0] == "0"


async def test_a_gpu_that_comes_back_keeps_the_cursor() -> None:
    def at(*indices: int) -> Frame:
        return frame_of(*(gpu_of(index) for index in indices))

    async with shown(at(0, 1, 2)) as screen:
        await screen.press("shift+tab", "down", "down")
        for frame, expected in ((at(0, 2), None), (at(0, 1, 2), 1)):
            await screen.show(frame)
            selected = screen.gpus.current
            assert (selected and selected.gpu.index) == expected
