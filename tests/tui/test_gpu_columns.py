"""The rows of GPUs and of their MIG devices without a pane: which columns fit, what each says."""

from __future__ import annotations

import re
from operator import le
from typing import Any

import pytest

from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu, MigDevice, parts_of
from gputop.model.machine.sections import Activity, Ecc, Identity, Pcie, Thermal, Throttle
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.history import History
from gputop.settings import Session, Thresholds
from gputop.tui.glyphs import ASCII, UNICODE, GlyphSet
from gputop.tui.panes.columns import heading
from gputop.tui.panes.gpu_columns import GpuColumns
from gputop.tui.panes.lines import Lines
from gputop.tui.panes.short_history import HISTORIES, ShortHistory
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of, silent_gpu

BUSY = gpu_of(
    0,
    memory_used=int(98.1 * GIB),
    utilization=0.97,
    temperature=61.0,
    power=540.4,
    sm_clock=1_980_000_000,
    pstate=2,
)
WORK = Activity(graphics=0.98, sm=0.91, tensor=0.44, dram=0.58, doing="compute-bound")


class Drawn:
    """The rows of the last of some frames in a width, and their heading."""

    frame: Frame

    def __init__(self, *frames: Frame, width: int = 200, settings: Session | None = None) -> None:
        self.settings = settings or Session()
        self.history, self.past = ShortHistory(self.settings.thresholds), History()
        for frame in frames:
            self.show(frame)
        self.fit(width)

    def show(self, frame: Frame) -> None:
        """Take another frame, without drawing it."""
        self.frame = frame
        self.past.append(frame)
        self.history.show(frame, self.past)
        self.columns = GpuColumns(frame, self.history, self.settings)

    def fit(self, width: int) -> None:
        """Take another width."""
        gap = 2 if width >= 110 else 1
        self.fitted = self.columns.fit(width, gap)
        self.head = text_of(heading(self.fitted, gap))[1:]
        self.rows = [self.columns.row(line) for line in parts_of(self.frame.gpus)]
        self.lines = [text_of(row) for row in self.rows]

    def cell(self, index: int, label: str) -> str:
        """What a row has under a label that stands at the left of its column, up to the next."""
        begins = [match.start() for match in re.finditer(r"\S+( \S+)*", self.head)] + [None]
        begin = f" {self.head}".index(f" {label}")
        return self.lines[index][begin : begins[begins.index(begin) + 1]].strip()

    def role(self, index: int, text: str) -> str:
        """The role of the piece that is this text, or has it."""
        roles = [role for piece, role in self.rows[index] if piece.strip() == text]
        return (roles or [role for piece, role in self.rows[index] if text in piece])[0]


def text_of(pieces: Any) -> str:
    return "".join(text for text, _ in pieces)


def part(gi: int, ci: int = 0, **values: Any) -> MigDevice:
    usual: dict[str, Any] = {
        "uuid": f"MIG-{gi}-{ci}",
        "profile": "2g.20gb",
        "memory_total": 20 * GIB,
        "memory_used": GIB // 8,
    }
    return MigDevice(gi=gi, ci=ci, **{**usual, **values})


def divided(index: int, *parts: MigDevice, **values: Any) -> Gpu:
    return gpu_of(index, **{"mig_mode": True, "mig": parts, "utilization": None, **values})


def on(pid: int, gi: int, ci: int = 0, **values: Any) -> Process:
    return process_of(pid, gpu_instance=gi, compute_instance=ci, **values)


FULL = frame_of(
    divided(
        0,
        part(2, memory_used=15 * GIB, activity=WORK),
        part(5, profile="1c.2g.20gb"),
        part(5, 1, profile=None, memory_used=None),
    ),
    gpu_of(1),
    on(100, 2),
    on(101, 5, user="bob"),
    on(102, 5, user=None),
    process_of(103, gpu=1, user="eve"),
)


# Which columns there are


@pytest.mark.parametrize(
    ("width", "words", "absent"),
    [
        (200, ["H200", "alice", "98.1/140G", "97%", "61°C", "540/700W", "1980", "·"], []),
        (120, ["H200", "alice", "98.1/140G", "97%", "61°C", "540/700W", "·"], ["1980"]),
        (80, ["H200", "alice", "98.1/140G", "97%", "61°C", "540/700W"], ["1980"]),
        (40, ["alice", "98.1/140G", "97%", "61°C"], ["H200", "540"]),
    ],
)
def test_columns_of_a_width(width: int, words: list[str], absent: list[str]) -> None:
    """Who is on a GPU comes first, and is said at every width."""
    drawn = Drawn(frame_of(BUSY, process_of(100)), width=width)
    [line] = drawn.lines
    assert [word for word in words if word not in line] == []
    assert [word for word in absent if word in line] == []
    at = [line.index(word) for word in words]
    assert at == sorted(at)
    assert drawn.head.index("WHO") == line.index("alice")
    assert drawn.head.index("TEMP") == line.index("61°C")


_EVERYTHING = frame_of(
    gpu_of(0, name="NVIDIA GeForce RTX 2080 Ti", fan=0.3, pstate=8, thermal=Thermal(margin=1.0,
           memory=2.0), throttle=Throttle(reasons=tuple(THROTTLE_REASONS)),
           activity=Activity(sm=0.5, tensor=0.5, dram=0.5, doing="waiting for input")),
    gpu_of(1, power_limit=1000.0, power=1000.0, temperature=105.0, mig_mode=True,
           mig=(MigDevice(gi=13, ci=0, profile="1c.2g.20gb"),)),
    gpu_of(2, activity=Activity(doing="busy (by UTIL)")),
)  # fmt: skip


@pytest.mark.parametrize("frame", [frame_of(BUSY), _EVERYTHING], ids=["one", "everything"])
def test_no_heading_is_cut_and_none_is_there_twice(frame: Frame) -> None:
    """At any width, whatever the short history shows."""
    whole = {*(metric.label for metric in GPU.values()), "WHO", "MEM", "DOING (by UTIL)",
             "the last", ""}  # fmt: skip
    drawn = Drawn(frame)
    for width in range(250, 38, -3):
        for _ in HISTORIES:
            drawn.fit(width)
            labels = [column.label for column, _ in drawn.fitted]
            cells = [cells for _, cells in drawn.fitted]
            assert all(map(le, map(len, labels), cells)), (width, labels)
            assert len({label.upper() for label in labels}) == len(labels)
            for label in labels:
                words = re.sub("(^|,? )15 s(econds)?$|^the last 15 seconds of ", "", label)
                assert words in whole | {drawn.history.words}, (width, labels)
            drawn.history.choose_next()


def test_a_fan_column_only_where_a_fan_is() -> None:
    assert "FAN" not in Drawn(frame_of(gpu_of(0))).head
    drawn = Drawn(frame_of(gpu_of(0, fan=0.42), gpu_of(1)))
    assert " FAN " in drawn.head
    assert " 42% " in drawn.lines[0]
    assert UNICODE.not_available in drawn.lines[1]


def test_degrees_left_where_they_are_known() -> None:
    assert "T.LIMIT" not in Drawn(frame_of(gpu_of(0)), width=230).head
    drawn = Drawn(frame_of(gpu_of(0, thermal=Thermal(margin=0.0))), width=230)
    at = drawn.head.index("T.LIMIT")
    assert drawn.lines[0][at : at + 7] == "      0"


# What they say


def test_a_bar_is_as_long_as_its_ratio() -> None:
    half = gpu_of(0, memory_used=70 * GIB, utilization=1.0)
    drawn = Drawn(frame_of(half, gpu_of(1)))
    assert drawn.cell(0, "MEM") == "███████▌░░░░░░░  70.0/140G"
    assert drawn.cell(0, "UTIL") == "█" * 11 + " 100%"
    assert drawn.cell(1, "UTIL") == "░" * 11 + "   0%"


def test_kinds_of_nothing_look_different() -> None:
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
    zero, absent, stale, lost, never, waiting, nameless = Drawn(frame_of(*gpus)).lines
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


def test_unified_memory_says_so() -> None:
    identity = Identity(compute_capability="12.1")
    spark = gpu_of(0, memory_total=None, memory_used=None, identity=identity)
    drawn = Drawn(frame_of(spark), width=120)
    assert " unified " in drawn.lines[0]
    assert drawn.cell(0, "WHO") == "free"


def test_old_values_are_quiet_and_the_age_grows() -> None:
    for age in (2.0, 3.0):
        drawn = Drawn(frame_of(gpu_of(0, stale_for=age, temperature=77.0)))
        assert drawn.cell(0, "WHO") == f"– ≈ {age:.0f}s"
        assert drawn.role(0, "77") == "quiet"
    drawn = Drawn(frame_of(gpu_of(0, temperature=77.0), process_of(100)))
    assert "≈" not in drawn.lines[0]
    assert drawn.role(0, "77") == "text"


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_a_hung_gpu_is_plainly_hung_and_keeps_its_user(width: int) -> None:
    hung = gpu_of(0, memory_used=70 * GIB, utilization=0.95, stale_for=63.0)
    frame = frame_of(hung, gpu_of(1), process_of(100), process_of(101, user="bob"))
    drawn = Drawn(frame, width=width)
    line = drawn.lines[0]
    assert line.split()[:2] == ["0", "alice"] or line.split()[:3] == ["0", "H200", "alice"]
    assert "bob" in line or "+1" in line
    assert " ≈ " in line
    assert drawn.role(0, "1m03s") == "alarm"
    assert "95%" not in line  # it is of a minute ago


@pytest.mark.parametrize(("thresholds", "marked"), [(Thresholds(), []),
    (Thresholds(hot=60.0), ["61"]), (Thresholds(full=0.5), ["98.1"])])  # fmt: skip
def test_values_stand_out_from_where_the_settings_say(
    thresholds: Thresholds, marked: list[str]
) -> None:
    frame = frame_of(BUSY, process_of(100))
    drawn = Drawn(frame, settings=Session(thresholds=thresholds))
    stands_out = {text for text in ("61", "98.1") if drawn.role(0, text) in ("alarm", "notice")}
    assert stands_out == set(marked)


def test_a_load_has_its_role_in_steps_and_none_on_a_free_gpu() -> None:
    loads = (0.0, 0.01, 0.09, 0.1, 0.79, 0.8, 1.0)
    gpus = [gpu_of(index, utilization=load) for index, load in enumerate(loads)]
    used = Drawn(frame_of(*gpus, *(process_of(100 + n, n) for n in range(len(loads)))))
    roles = [used.role(n, f"{load:.0%}") for n, load in enumerate(loads)]
    assert roles == ["quiet", "light", "light", "moderate", "moderate", "heavy", "heavy"]
    free = Drawn(frame_of(gpu_of(0)))
    assert (free.role(0, "0"), free.role(0, "free")) == ("good", "good")
    assert {role for text, role in free.rows[0] if text.strip()} == {"good", "quiet", "track"}


def test_what_holds_the_clocks_back_is_said_in_words() -> None:
    reasons = [("sw_power_cap",), ("hw_thermal_slowdown", "hw_slowdown"), ()]
    gpus = [gpu_of(n, throttle=Throttle(reasons=names)) for n, names in enumerate(reasons)]
    drawn = Drawn(frame_of(*gpus))
    cells = [drawn.cell(n, "THROTTLED") for n in range(3)]
    assert cells == ["power cap", "HW thermal +1", ""]


# What a GPU is doing


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"activity": WORK}, "compute-bound"),
        ({"activity": Activity(doing="busy (by UTIL)")}, "busy"),
        ({"activity": None}, UNICODE.pending),
        ({"activity": None, "utilization": None}, UNICODE.not_available),
    ],
)
def test_verdict(gpu: dict[str, Any], said: str) -> None:
    """What it rests on is said once, in the heading."""
    drawn = Drawn(frame_of(gpu_of(0, **gpu), process_of(100)))
    by_utilization = gpu["activity"] is not None and gpu["activity"].sm is None
    assert drawn.cell(0, "DOING (by UTIL)" if by_utilization else "DOING") == said
    assert f"{drawn.head}{drawn.lines}".count("(by UTIL)") == by_utilization
    assert ("TENSOR" in drawn.head) == (gpu["activity"] is WORK)
    drawn.fit(80)
    assert "DOING" not in drawn.head


def test_a_free_gpu_does_nothing() -> None:
    """Whatever a display's few percent look like without GPM."""
    gpu = gpu_of(0, utilization=0.05, activity=Activity(doing="waiting for input (by UTIL)"))
    assert Drawn(frame_of(gpu)).cell(0, "DOING (by UTIL)") == "idle"


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
def test_what_a_free_gpu_does_may_be_unknown(
    monkeypatch: pytest.MonkeyPatch, glyphs: GlyphSet
) -> None:
    monkeypatch.setattr(Lines, "glyphs", glyphs)
    drawn = Drawn(frame_of(gpu_of(0), gpu_of(1, utilization=None)))
    drawn.fit(200)
    assert [drawn.cell(n, "DOING") for n in (0, 1)] == [glyphs.pending, glyphs.not_available]


def test_what_is_to_be_mended_stands_out() -> None:
    words = ("busy", "waiting for input", "tensor unused")
    gpus = [gpu_of(n, activity=Activity(doing=word)) for n, word in enumerate(words)]
    drawn = Drawn(frame_of(*gpus, *(process_of(100 + n, n) for n in range(3))))
    assert [drawn.role(n, word) for n, word in enumerate(words)] == ["text", "text", "notice"]


# Who is on it


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
def test_who(processes: list[Process], used: int, who: str) -> None:
    drawn = Drawn(frame_of(gpu_of(0, memory_used=used), gpu_of(1), *processes))
    assert drawn.cell(0, "WHO") == who


@pytest.mark.parametrize(
    ("width", "idle", "who"),
    [
        (200, 0.0, "averylongusername bob +2"),
        (120, 0.0, "averylonguse… +3"),
        (120, 2500.0, "averyl… idle 41m"),
        (120, 0.5, "averylonguse… +3"),
    ],
)
def test_who_does_not_fit_is_counted(width: int, idle: float, who: str) -> None:
    users = ["averylongusername"] if idle > 1 else ["averylongusername", "bob", "carol", "dave"]
    processes = [process_of(100 + n, user=user, gpu_memory=(9 - n) * GIB)
                 for n, user in enumerate(users)]  # fmt: skip
    drawn = Drawn(frame_of(gpu_of(0, idle_for=idle), *processes), width=width)
    assert drawn.cell(0, "WHO") == who


@pytest.mark.parametrize("width", [200, 80, 40])
def test_an_alarm_is_never_cut(width: int) -> None:
    sick = gpu_of(0, ecc=Ecc(remap_failure=True), idle_for=2500.0)
    users = [process_of(100), process_of(101, user="averylongusername")]
    line = Drawn(frame_of(sick, gpu_of(1), *users), width=width).lines[0]
    assert " ! REMAP" in line
    assert " ali" in line


def test_memory_that_nobody_holds_is_said_beside_the_gpu() -> None:
    gpu = gpu_of(0, memory_used=40 * GIB, memory_unaccounted=40 * GIB, idle_for=2500.0)
    assert Drawn(frame_of(gpu), width=120).cell(0, "WHO") == "unaccounted"


# MIG devices


def test_a_part_has_its_own_memory_activity_and_users() -> None:
    drawn = Drawn(FULL)
    who = [drawn.cell(place, "WHO") for place in range(5)]
    assert who == ["alice bob 1 not in /proc", "alice", "bob 1 not in /proc", "–", "eve"]
    lines = drawn.lines
    assert [line.split()[:2] for line in lines] == [
        ["0", "H200"], ["0:2", "├─2g.20gb"], ["0:5", "├─1c.2g.20gb"], ["0:5/1", "└─MIG"],
        ["1", "H200"],
    ]  # fmt: skip
    for words in ("15.0/20.0G", "98%", "compute-bound", "91%", "44%", "58%"):
        assert words in lines[1]
    assert "compute-bound" not in lines[0]
    for column in ("TEMP", "POWER", "CLOCK"):  # they are the whole GPU's
        start = drawn.head.index(column)
        assert lines[0][start : start + len(column)].strip()
        assert not lines[1][start : start + len(column)].strip()
    assert UNICODE.not_available in lines[3]


@pytest.mark.parametrize(
    ("gpu", "device", "who"),
    [
        ({}, {}, "free"),
        ({}, {"memory_used": 2 * GIB}, "no process"),
        ({"listed": "none"}, {}, UNICODE.not_available),
        ({"stale_for": 5.0}, {}, UNICODE.not_available),
    ],
)
def test_a_part_without_a_process(gpu: dict[str, Any], device: dict[str, Any], who: str) -> None:
    frame = frame_of(divided(0, part(1, **device), **gpu), on(100, 2))
    assert Drawn(frame, width=120).cell(1, "WHO") == who


# The short history


def test_a_graph_has_gaps_where_nothing_was_measured() -> None:
    loads = (0.0, None, 1.0)
    frames = [frame_of(gpu_of(0, utilization=load), time=NOON + n) for n, load in enumerate(loads)]
    assert re.search("▁ +█$", Drawn(*frames).lines[0])


@pytest.mark.parametrize(
    ("count", "words"), [(11, "15 seconds"), (51, "minute"), (200, "3 minutes")]
)
def test_the_short_history_is_as_wide_as_what_is_left(count: int, words: str) -> None:
    """It begins with the seconds that there are, and goes on to three minutes."""
    frames = [frame_of(gpu_of(0, utilization=0.5), time=NOON + second) for second in range(count)]
    drawn = Drawn(*frames, width=160)
    cells = drawn.lines[0][drawn.head.index(f"the last {words} of utilization") :]
    assert len(cells) >= 40
    assert len(cells.strip()) > len(cells) / 2
    assert set(cells.strip()) == {"▅"}


def test_the_short_history_is_of_what_divided_gpus_have() -> None:
    drawn = Drawn(frame_of(divided(0, part(2))), width=160)
    assert drawn.head.rstrip().endswith(" of memory")
    assert drawn.lines[0][-1] != " "


def test_its_label_is_in_the_longest_words_that_fit() -> None:
    """Utilization has a column of its own, so that its name can be left out."""
    history = Drawn(frame_of(gpu_of(0))).history
    labels = ["the last 15 seconds of utilization", "the last 15 seconds", "15 s", ""]
    assert [history.fit(cells) for cells in (34, 33, 18, 3)] == labels
    history.choose_next()
    assert history.metric_id == "memory_used"
    labels = ["the last 15 seconds of memory", "memory, 15 seconds", "memory 15 s", "memory", ""]
    assert [history.fit(cells) for cells in (29, 28, 17, 10, 5)] == labels


@pytest.mark.parametrize("metric_id", ["utilization", "pcie.rx"])
def test_finished_cells_are_those_that_a_new_pane_would_draw(metric_id: str) -> None:
    """They are kept while they stand still, but not when their scale changes with the peak."""
    frames = [
        frame_of(
            gpu_of(0, utilization=(n * 7 % 11) / 10, pcie=Pcie(rx=2e7 * (1 + n * 7 % 11) * n)),
            time=NOON + n,
        )
        for n in range(45)
    ]

    def lines(drawn: Drawn, width: int) -> list[str]:
        while drawn.history.metric_id != metric_id:
            drawn.history.choose_next()
        drawn.fit(width)
        return drawn.lines

    kept = Drawn(frames[0])
    for n, frame in enumerate(frames[1:], 2):
        kept.show(frame)
        width = 100 if n % 20 else 150
        assert lines(kept, width) == lines(Drawn(*frames[:n]), width)


def test_the_cells_of_another_past_are_not_kept() -> None:
    busy, idle = (
        [frame_of(gpu_of(0, utilization=load), time=NOON + n) for n in range(9)]
        for load in (1.0, 0.0)
    )
    drawn, other = Drawn(*busy), Drawn(*idle)
    drawn.past = other.past
    drawn.show(idle[-1])
    drawn.fit(200)
    assert drawn.lines == other.lines
