"""The GPU rows and the heading: what each column says, and what unknown looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import le

import pytest

from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.gpu import MigDevice
from gputop.model.machine.sections import Activity, Ecc, Identity, Thermal, Throttle
from gputop.model.metrics.gpu import GPU
from gputop.settings import Session, Thresholds
from gputop.tui.glyphs import UNICODE
from gputop.tui.messages import Arrived
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of, shown, silent_gpu
from tests.conftest import rest_long

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
        (200, ["H200", "alice", "98.1/140G", "97%", "61°C", "540/700W", "1980", "·"], []),
        (120, ["H200", "alice", "98.1/140G", "97%", "61°C", "540/700W", "·"], ["1980"]),
        (80, ["H200", "alice", "98.1/140G", "97%", "61°C", "540/700W"], ["1980"]),
        (40, ["alice", "98.1/140G", "97%", "61°C"], ["H200", "540"]),
    ],
)
async def test_columns_of_a_width(width: int, words: list[str], absent: list[str]) -> None:
    """Who is on a GPU comes first, and is said at every width."""
    async with shown(frame_of(BUSY, process_of(100)), size=(width, 40)) as screen:
        line = screen.gpu_line(0)
        assert [word for word in words if word not in line] == []
        assert [word for word in absent if word in line] == []
        at = [line.index(word) for word in words]
        assert at == sorted(at)
        head = screen.lines[1]
        assert head.index("WHO") == line.index("alice")
        assert head.index("TEMP") + 4 == line.index("61°C") + 4


_EVERYTHING = frame_of(
    gpu_of(0, name="NVIDIA GeForce RTX 2080 Ti", fan=0.3, pstate=8, thermal=Thermal(margin=1.0,
           memory=2.0), throttle=Throttle(reasons=tuple(THROTTLE_REASONS)),
           activity=Activity(sm=0.5, tensor=0.5, dram=0.5, verdict="waiting for input")),
    gpu_of(1, power_limit=1000.0, power=1000.0, temperature=105.0, mig_mode=True,
           mig=(MigDevice(gi=13, ci=0, profile="1c.2g.20gb"),)),
    gpu_of(2, activity=Activity(verdict="busy (by UTIL)")),
)  # fmt: skip


@rest_long("frame", frame_of(BUSY), _EVERYTHING)
async def test_no_heading_is_cut_and_none_is_there_twice(frame: Frame) -> None:
    """At any width, whatever the short history shows."""
    whole = {*(metric.label for metric in GPU.values()), "WHO", "MEM", "DOING (by UTIL)",
             "the last", ""}  # fmt: skip
    async with shown(frame, size=(250, 40)) as screen:
        for width in range(250, 38, -7):
            await screen.resize(width, 40)
            for _ in range(2):
                pane = screen.gpus._cells
                labels = [column.label for column, _ in pane._columns]
                cells = [cells for _, cells in pane._columns]
                assert all(map(le, map(len, labels), cells)), (width, labels)
                assert len({label.upper() for label in labels}) == len(labels)
                for label in labels:
                    words = re.sub("(^|,? )15 s(econds)?$|^the last 15 seconds of ", "", label)
                    assert words in whole | {pane.history_words}, (width, labels)
                await screen.press("g")


async def test_a_bar_is_as_long_as_its_ratio() -> None:
    half = gpu_of(0, memory_used=70 * GIB, utilization=1.0)
    async with shown(frame_of(half, gpu_of(1)), size=(200, 40)) as screen:
        assert screen.gpu_cell(0, "MEM") == "███████▌░░░░░░░  70.0/140G"
        assert screen.gpu_cell(0, "UTIL") == "█" * 11 + " 100%"
        assert screen.gpu_cell(1, "UTIL") == "░" * 11 + "   0%"


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
        gpu_of(6, name=None),
    )
    async with shown(frame_of(*gpus), size=(200, 40)) as screen:
        zero, absent, stale, lost, never, waiting = (screen.gpu_line(i) for i in range(6))
        nameless = screen.gpu_line(6)
        assert "0%" in zero
        assert "free" in zero
        assert UNICODE.not_available not in zero
        assert absent.count(UNICODE.not_available) >= 6
        assert "0%" not in absent
        assert "free" not in absent
        assert "≈ no answer for 12s" in stale
        assert "%" not in stale
        assert "GPU is lost" in lost
        assert "%" not in lost
        assert "has not answered yet" in never
        assert "no answer for 3s" in waiting
        assert "answer" not in nameless
        assert "0%" in nameless
        assert "free" in nameless
        assert len({line[4:] for line in (zero, absent, stale, lost, never, waiting)}) == 6


async def test_unified_memory_says_so() -> None:
    spark = gpu_of(
        0, memory_total=None, memory_used=None, identity=Identity(compute_capability="12.1")
    )
    async with shown(frame_of(spark), size=(120, 40)) as screen:
        line = screen.gpu_line(0)
        assert " unified " in line
        assert screen.gpu_cell(0, "WHO") == "free"


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


async def test_old_values_are_quiet_and_the_age_grows() -> None:
    frames = [frame_of(gpu_of(0, stale_for=age, temperature=77.0)) for age in (2.0, 3.0)]
    async with shown(frames[0]) as screen:
        assert screen.gpu_cell(0, "WHO") == "– ≈ 2s"
        row = screen.segments[screen.gpus.region.y + 1]
        (temperature,) = (segment for segment in row if "77" in segment.text)
        assert temperature.style is not None
        assert temperature.style.dim
        await screen.show(frames[1])
        assert screen.gpu_cell(0, "WHO") == "– ≈ 3s"
        await screen.show(frame_of(gpu_of(0)))
        assert "≈" not in screen.text


@pytest.mark.parametrize("size", [(200, 50), (120, 40), (80, 24), (60, 20), (40, 12)])
async def test_a_hung_gpu_is_plainly_hung_and_keeps_its_user(size: tuple[int, int]) -> None:
    hung = gpu_of(0, memory_used=70 * GIB, utilization=0.95, stale_for=63.0)
    frame = frame_of(hung, gpu_of(1), process_of(100), process_of(101, user="bob"))
    async with shown(frame, size=size) as screen:
        line = screen.gpu_line(0)
        assert line.split()[:2] == ["0", "alice"] or line.split()[:3] == ["0", "H200", "alice"]
        assert "bob" in line or "+1" in line
        assert " ≈ " in line
        assert "1m03s" in line
        assert "95%" not in line  # it is of a minute ago
        segments = screen.segments[screen.gpus.region.y + screen.gpus.head_lines]
        [alarm] = [segment for segment in segments if "1m03s" in segment.text]
        assert alarm.style
        assert alarm.style.bold
        assert alarm.style.color


@pytest.mark.parametrize(("thresholds", "marked"), [(Thresholds(), []),
    (Thresholds(hot=60.0), ["61"]), (Thresholds(full=0.5), ["98.1"])])  # fmt: skip
async def test_values_stand_out_from_where_the_settings_say(
    thresholds: Thresholds, marked: list[str]
) -> None:
    async with shown(frame_of(BUSY), settings=Session(thresholds=thresholds)) as screen:
        row = screen.segments[screen.gpus.region.y + 1]
        texts = [segment for segment in row if segment.text.strip() in ("61", "98.1")]
        assert len(texts) == 2
        assert [
            segment.text.strip() for segment in texts if segment.style and segment.style.bold
        ] == marked


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


async def test_a_fan_column_only_where_a_fan_is() -> None:
    async with shown(frame_of(gpu_of(0))) as screen:
        assert " FAN " not in screen.text
        await screen.show(frame_of(gpu_of(0, fan=0.42), gpu_of(1)))
        assert " FAN " in screen.text
        assert " 42% " in screen.gpu_line(0)
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
        assert screen.gpu_cell(0, "WHO") == who


@pytest.mark.parametrize(
    ("width", "idle", "who"),
    [
        (200, 0.0, "averylongusername bob +2"),
        (120, 0.0, "averylonguse… +3"),
        (120, 2500.0, "averyl… idle 41m"),
        (120, 0.5, "averylonguse… +3"),
    ],
)
async def test_who_does_not_fit_is_counted(width: int, idle: float, who: str) -> None:
    users = ["averylongusername"] if idle > 1 else ["averylongusername", "bob", "carol", "dave"]
    processes = [process_of(100 + n, user=user, gpu_memory=(9 - n) * GIB)
                 for n, user in enumerate(users)]  # fmt: skip
    async with shown(frame_of(gpu_of(0, idle_for=idle), *processes), size=(width, 40)) as screen:
        assert screen.gpu_cell(0, "WHO") == who


async def test_an_alarm_is_never_cut() -> None:
    sick = gpu_of(0, ecc=Ecc(remap_failure=True), idle_for=2500.0)
    users = [process_of(100), process_of(101, user="averylongusername")]
    for size in ((200, 50), (80, 24), (40, 12)):
        async with shown(frame_of(sick, gpu_of(1), *users), size=size) as screen:
            line = screen.gpu_line(0)
            assert " ! REMAP" in line
            assert " ali" in line


async def test_memory_that_nobody_holds_is_said_beside_the_gpu() -> None:
    gpu = gpu_of(0, memory_used=40 * GIB, memory_unaccounted=40 * GIB, idle_for=2500.0)
    async with shown(frame_of(gpu), size=(120, 40)) as screen:
        assert screen.gpu_cell(0, "WHO") == "unaccounted"


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
        assert re.search("▁ +█$", screen.gpu_line(0))


async def test_the_short_history_is_as_wide_as_what_is_left() -> None:
    """It begins with the seconds that there are, and goes on to three minutes."""
    frames = [frame_of(gpu_of(0, utilization=0.5), time=NOON + second) for second in range(200)]
    async with shown(size=(160, 40)) as screen:
        feed = screen.machine.feed
        for begin, end, words in (
            (0, 11, "15 seconds"),
            (11, 51, "minute"),
            (51, 200, "3 minutes"),
        ):
            for frame in frames[begin:end]:  # of messages that wait the newest would be all
                screen.app.on_arrived(Arrived(feed, frame))
            await screen.drawn()
            begin = end
            cells = screen.lines[2][screen.lines[1].index(f"the last {words} of utilization") :]
            assert len(cells) >= 40
            assert len(cells.strip()) > len(cells) / 2
            assert set(cells.strip()) == {"▅"}


async def test_the_short_history_shows_what_g_says() -> None:
    """What no GPU has is passed over; where there are no labels, the rule says it."""
    loads = {"utilization": 1.0, "memory_used": 70 * GIB, "power": 175.0, "temperature": 100.0}
    words = (("utilization", "█"), ("memory", "▅"), ("power", "▃"), ("temperature", "█"))
    frame = frame_of(gpu_of(0, **loads, activity=Activity(tensor=0.0)))
    async with shown(frame, size=(200, 40)) as screen:
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
        room = screen.gpus.room
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
        screen.gpus.on_scrolled = lambda: None
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
