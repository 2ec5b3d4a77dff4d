"""The page of a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import DeviceHolder
from gputop.model.machine.sections import Activity, Identity, Pcie, Throttle
from gputop.model.metrics.gpu import GPU, SECTIONS
from gputop.sources.demo.source import demo_frame
from gputop.tui.glyphs import ASCII, UNICODE
from gputop.tui.pages.gpu import GpuScreen
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.help import HelpScreen
from gputop.tui.panes.lines import Lines
from tests.builders_tui import (
    GIB,
    NOON,
    Screenful,
    frame_of,
    gpu_of,
    process_of,
    shown,
    silent_gpu,
)
from tests.conftest import MachineFactory, rest_long
from tests.tui.live import SIZES, running

UNSUPPORTED = "not supported by this card or driver"


async def open_page(screen: Screenful, index: int = 0) -> None:
    screen.main.set_focus(screen.gpus)
    await screen.press("home", *["j"] * index, "enter")
    assert isinstance(screen.app.screen, GpuScreen)


def on_main(screen: Screenful) -> bool:
    return screen.app.screen is screen.main


def section(page: str, name: str) -> list[str]:
    """The lines under a heading."""
    lines = page.split("\n")
    begin = lines.index(f" {name}") + 1
    end = next((n for n in range(begin, len(lines)) if not lines[n].strip()), len(lines))
    return lines[begin:end]


def at(second: float, *parts: Any, **values: Any) -> Frame:
    return frame_of(*parts, time=NOON + second, **values)


@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_every_metric_of_a_full_gpu(size: tuple[int, int]) -> None:
    """The demo's, which have all of them; help only where there is room for it."""
    async with shown(demo_frame(NOON, 0.0, 1.0), size=size) as screen:
        await open_page(screen)
        page = await screen.whole_page()
    for name, metrics in SECTIONS.items():
        lines = "\n".join(section(page, name))
        above = {"state", "stale_for", "error", "activity.verdict"}
        for metric in metrics:
            assert (f"  {metric.label} " in lines) == (metric.id not in above), metric.id
            if metric.id not in above:
                assert (metric.help in lines) == (size[0] == 200), metric.id
    assert UNSUPPORTED not in page
    words = " ".join(page.split())
    for text in (
        "GPU 0 H200", "00000000:19:00.0 · GPU-69daaf70-292c-57f0-8c7e-0c910cde6323 · Hopper",
        "in the last half minute: compute-bound", "train.py --config ll", "UTIL 83% peak 83%",
        "1980 MHz", "BAR1 256G", "TEMP-MEM 66°C", "B/s", "NV18 GPU 1, 2, 3, 4, 5, 6, 7: a bond",
    ):  # fmt: skip
        assert text in words, page


async def test_metrics_stand_side_by_side_where_there_is_room() -> None:
    async with shown(demo_frame(NOON, 0.0, 1.0), size=(160, 50)) as screen:
        await open_page(screen)
        memory = section(await screen.whole_page(), "Memory")
    [line] = [line for line in memory if "MEM-TOTAL" in line]
    assert "MEM-USED" in line
    assert GPU["memory_used"].help in line


async def test_what_a_card_has_not_is_told_once() -> None:
    """A section of which nothing is known is a line; a value that is missing is a sign."""
    gpu = gpu_of(0, pcie=Pcie(generation=4, width=16, tx=0.0))
    async with shown(frame_of(gpu), size=(80, 24)) as screen:
        await open_page(screen)
        page = await screen.whole_page()
    for name in ("Activity", "NVLink", "Health"):
        assert [line.strip() for line in section(page, name)] == [UNSUPPORTED]
    pcie = " ".join(" ".join(section(page, "PCIe")).split())
    dash = UNICODE.not_available
    assert pcie == (
        f"GEN 4 GEN-MAX {dash} LANES 16 LANES-MAX {dash} "
        f"PCIE-TX 0 B/s PCIE-RX {dash} REPLAYS {dash}"
    )


async def test_a_gpu_of_which_nothing_is_known() -> None:
    async with shown(frame_of(silent_gpu(0, error="GPU is lost")), size=(80, 24)) as screen:
        await open_page(screen)
        assert "GPU is lost" in screen.text
        page = await screen.whole_page()
        assert page.count(UNSUPPORTED) == len(SECTIONS) - 2  # its index is known, and LISTED
        assert "no values yet" in page
        assert "None" not in page


async def test_it_is_live_and_old_values_are_said_to_be() -> None:
    async with shown(at(0, gpu_of(0, power=100.0)), size=(80, 24)) as screen:
        await open_page(screen)
        assert "POWER 100 W" in screen.text
        await screen.show(at(1, gpu_of(0, power=222.0)))
        assert "POWER 222 W  peak 222 W" in screen.text
        await screen.show(at(2, gpu_of(0, power=222.0, stale_for=12.0)))
        assert "has not answered for 12s; its values are older" in screen.text
        assert "POWER –  peak 222 W" in screen.text  # the graph has a gap
        await screen.show(at(3, gpu_of(1)))
        assert "the driver no longer lists it; these are its last figures" in screen.text
        await screen.show(at(4, gpu_of(0, power=50.0)))
        assert "POWER 50 W  peak 50 W" in screen.text
        assert "no more" not in screen.text


async def test_its_own_processes_and_no_others() -> None:
    opener = DeviceHolder(
        pid=77,
        start_ticks=7,
        start_time=NOON,
        user="bob",
        command="python lost.py",
        reason="orphan",
    )
    gpu = gpu_of(1, memory_used=60 * GIB, memory_unaccounted=40 * GIB, holders=(opener,))
    processes = (
        process_of(401, 1, gpu_memory=GIB), process_of(402, 1, user="amy", gpu_memory=9 * GIB),
        process_of(403, 0),
    )  # fmt: skip
    async with shown(frame_of(gpu_of(0), gpu, *processes), size=(130, 40)) as screen:
        await open_page(screen, 1)
        lines = section(screen.text, "Processes")
        assert [line.split()[1] for line in lines[:3]] == ["PID", "402", "401"]
        assert "python lost.py" in "".join(lines[3:])
        assert "403" not in screen.text
        await screen.press("left")
        assert "GPU 0  H200" in screen.text
        assert [line.split()[1] for line in section(screen.text, "Processes")] == ["PID", "403"]


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({}, "none"),
        ({"listed": "none"}, "the driver does not list the processes here"),
        ({"listed": "unknown"}, "no process is seen: the GPU has not said who is on it"),
    ],
)
async def test_no_process(gpu: dict[str, Any], words: str) -> None:
    async with shown(frame_of(gpu_of(0, **gpu))) as screen:
        await open_page(screen)
        assert section(screen.text, "Processes")[0].strip() == words


async def test_links_are_told_by_their_kind_the_best_first() -> None:
    links = (("X", "SYS", "NV4", None, "SYS"), *[("X",) * 5] * 4)
    frame = frame_of(*(gpu_of(n) for n in range(5)), links=links)
    async with shown(frame) as screen:
        await open_page(screen)
        lines = [" ".join(line.split()) for line in section(await screen.whole_page(),
                                                            "Links to the other GPUs")]  # fmt: skip
    assert lines == [
        "NV4 GPU 2: a bond of so many NVLinks, also through NVSwitches",
        "SYS GPU 1, 4: the interconnect between NUMA nodes",
        "– GPU 3: not known",
    ]


@pytest.mark.parametrize(
    ("count", "links", "words"),
    [(2, None, "not known"), (1, None, "there is no other"), (1, (("X",),), "there is no other")],
)
async def test_no_links(count: int, links: Any, words: str) -> None:
    async with shown(frame_of(*(gpu_of(n) for n in range(count)), links=links)) as screen:
        await open_page(screen)
        page = await screen.whole_page()
        assert section(page, "Links to the other GPUs")[0].strip() == words


async def test_the_keys_lead_on_and_back() -> None:
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(401, 0), process_of(402, 1))
    async with shown(frame) as screen:
        await open_page(screen, 1)
        await screen.press("n")  # round
        assert "GPU 0  H200" in screen.text
        await screen.press("G")
        assert isinstance(screen.app.screen, GraphScreen)
        assert "GPU 0  all recorded metrics" in screen.lines[0]
        assert "MEM-USED" in screen.text
        await screen.press("escape")
        assert isinstance(screen.app.screen, GpuScreen)
        await screen.press("escape")
        assert on_main(screen)
        assert screen.pids == [401, 402]
        await screen.press("enter", "f")
        assert on_main(screen)
        assert screen.pids == [402]
        assert screen.app.focused is screen.table
        await screen.press("escape")
        screen.main.set_focus(screen.gpus)
        await screen.press("home", "f")
        assert screen.pids == [401]


async def test_f_without_a_gpu_selects_one() -> None:
    async with shown(frame_of(gpu_of(0), gpu_of(1), process_of(402, 1))) as screen:
        await screen.press("f")
        assert screen.app.focused is screen.gpus
        assert screen.gpus.current is not None
        await screen.press("j", "f")
        assert screen.pids == [402]


async def test_it_stays_where_it_was_scrolled_to() -> None:
    async with shown(at(0, gpu_of(0)), size=(80, 24)) as screen:
        await open_page(screen)
        await screen.press("pagedown", "pagedown")
        before = next(line for line in screen.lines if line.startswith(" ") and line[1] != " ")
        await screen.show(at(1, gpu_of(0), *(process_of(400 + n) for n in range(9))))
        assert before in screen.lines


@pytest.mark.parametrize("width", [200, 80, 40, 10])
async def test_hostile_values(width: int) -> None:
    """Markup is text; wide letters and long words do not leave the screen."""
    hostile = "[/][red]" + "訓練" * 80
    gpu = gpu_of(
        0, name=hostile, error=hostile, identity=Identity(serial=hostile, vbios="x" * 300),
        throttle=Throttle(reasons=(hostile,), shares={hostile: 0.5}),
        activity=Activity(verdict=hostile, sm=0.5),
    )  # fmt: skip
    links = (("X", hostile), (hostile, "X"))
    frame = frame_of(gpu, gpu_of(1), process_of(1, user=hostile), links=links)
    async with shown(frame, size=(width, 24)) as screen:
        await open_page(screen)
        for _ in range(12):
            await screen.press("pagedown")
            for line in screen.segments:
                assert sum(segment.cell_length for segment in line) == width


async def test_in_ascii_nothing_else_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "glyphs", ASCII)
    async with shown(demo_frame(NOON, 0.0, 1.0), size=(80, 24)) as screen:
        await open_page(screen)
        assert (await screen.whole_page()).isascii()


async def test_help_and_palette_know_the_keys() -> None:
    async with shown(frame_of(gpu_of(0)), size=(120, 40)) as screen:

        def named() -> set[str]:
            commands = screen.app.get_system_commands(screen.app.screen)
            return {command.title.rpartition("  ")[0] for command in commands}

        assert {"history", "graphs", "its processes"} <= named()
        await open_page(screen)
        assert {"graphs", "its processes", "next gpu"} <= named()
        await screen.press("G")
        assert {"longer", "cursor", "highlight"} <= named()
        assert not {"next metric", "overlay"} & named()
        await screen.press("escape", "escape", "question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
        text = await screen.whole_page()
        for words in ("GPU: only its processes", "Graphs: the next metric",
                      "Next metric of the history"):  # fmt: skip
            assert words in text


@pytest.mark.system
@rest_long("size", *SIZES)
def test_on_a_machine(size: tuple[int, int], machine: MachineFactory) -> None:
    """Keys, an agent and a driver: it is there, it moves on, and q ends it."""
    env = {"LC_ALL": "C", "NO_COLOR": "1"}
    with running(machine("h200x8"), size=size, env=env) as terminal:
        terminal.wait_for("H200")
        terminal.send(b"\x1b[Z\r")
        terminal.wait_for("The last minute")
        assert "GPU 0  H200" in terminal.text
        assert "UTIL" in terminal.text
        assert terminal.text.isascii()
        terminal.send(b"G")
        terminal.wait_for("all recorded metrics")
        terminal.wait_for("MEM-USED")
        terminal.send(b"qqq")
        assert terminal.exit_code() == 0
