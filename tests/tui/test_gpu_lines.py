"""What the page of a GPU and that of what needs attention say, without the pages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.gpu import DeviceHolder
from gputop.model.machine.sections import (
    Activity,
    Ecc,
    Identity,
    Pcie,
    Throttle,
)
from gputop.model.metrics.gpu import SECTIONS
from gputop.sources.demo.source import demo_frame
from gputop.tui.glyphs import ASCII, UNICODE
from gputop.tui.pages.gpu_lines import gpu_lines
from gputop.tui.pages.health import health_page
from gputop.tui.panes.paper import Paper
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of, silent_gpu
from tests.tui.papers import section, shown_frames, written
from tests.tui.test_health import sick, xids

UNSUPPORTED = "not supported by this card or driver"
NARROW, WIDE = Paper(80, UNICODE), Paper(200, UNICODE)


def page_of(*frames: Frame, index: int = 0, paper: Paper = NARROW, gone: bool = False) -> str:
    """The page of a GPU of the last frame."""
    *_, shown = shown_frames(*frames)
    gpu = frames[-1].gpus[index]
    return written(gpu_lines(paper, shown, gpu, gone, 600.0), paper)


@pytest.mark.parametrize("paper", [WIDE, NARROW], ids=["wide", "narrow"])
def test_every_metric_of_a_full_gpu(paper: Paper) -> None:
    """The demo's, which have all of them; what each means is in the help alone."""
    page = page_of(demo_frame(NOON, 0.0, 1.0), paper=paper)
    for name, metrics in SECTIONS.items():
        lines = "\n".join(section(page, name))
        above = {"state", "stale_for", "error", "activity.doing"}
        for metric in metrics:
            assert (f"  {metric.label} " in lines) == (metric.id not in above), metric.id
            assert metric.help not in lines, metric.id
    assert UNSUPPORTED not in page
    words = " ".join(page.split())
    for text in (
        "GPU 0 H200", "train.py --config ll", "UTIL 83% peak 83%",
        "1980 MHz", "BAR1 256G", "TEMP-MEM 66°C", "B/s", "18 NVLinks to GPU 1-7",
    ):  # fmt: skip
        assert text in words, page


def test_it_begins_with_what_is_asked_and_ends_with_what_it_is() -> None:
    page = page_of(demo_frame(NOON, 0.0, 1.0))
    begin = [" ".join(line.split()) for line in page.split("\n")[1:8]]
    assert begin == [
        "GPU 0 H200",
        "load 83%, compute-bound in the last half minute",
        "memory 97.7G of 140G in use, 42.1G free",
        "who alice",
        "clocks 1980 of 1980 MHz, memory 3201 of 3201 MHz, P0",
        "power 544 of 700 W, 58°C",
        "health nothing found",
    ]
    headings = [line[1:] for line in page.split("\n") if re.match(r" [A-Z]", line)]
    assert headings[-1] == "Identity"
    assert "UUID" in "".join(section(page, "Identity"))


def test_why_clocks_are_low_in_the_words_of_the_help() -> None:
    held = Throttle(reasons=("sw_power_cap", "sync_boost"),
                    shares={"sw_power_cap": 0.25, "hw_thermal_slowdown": 0.0})  # fmt: skip
    page = page_of(frame_of(gpu_of(0, sm_clock=1_200_000_000, throttle=held)))
    assert "  clocks       1200 MHz, P0, held back by power cap, sync boost\n" in page
    assert "  THROTTLED     power cap, sync boost" in page
    assert "  HELD-BACK     power cap 25%" in page
    assert "_" not in page
    page = page_of(frame_of(gpu_of(0, throttle=Throttle())))
    assert "held back" not in page
    assert "  THROTTLED     none" in page
    assert "  HELD-BACK     –" in page  # nothing is known of it yet
    page = page_of(frame_of(gpu_of(0, throttle=Throttle(shares={"sw_power_cap": 0.0}))))
    assert "  HELD-BACK     none" in page


def test_a_switch_is_on_or_off_and_a_fault_is_none_or_named() -> None:
    well = Ecc(enabled=True, remap_pending=False, remap_failure=False, retired_pending=False)
    words = " ".join(page_of(frame_of(gpu_of(0, ecc=well))).split())
    assert "ECC-MODE on " in words
    assert "PAGES-NEXT none " in words
    assert "ROWS-NEXT none ROWS-FAIL none" in words
    ill = Ecc(enabled=False, remap_pending=True, remap_failure=True)
    words = " ".join(page_of(frame_of(gpu_of(0, ecc=ill))).split())
    assert "ECC-MODE off " in words
    assert "ROWS-NEXT pending ROWS-FAIL failed" in words


def test_a_gpu_that_is_in_trouble_says_so_at_the_top() -> None:
    top = page_of(frame_of(gpu_of(0, ecc_uncorrected=3))).split("\n\n")[0]
    assert "! error: 3 uncorrected memory errors" in top
    assert "nothing found" not in top
    silent = page_of(frame_of(silent_gpu(0))).split("\n\n")[0]
    assert "nothing found" not in silent
    old = page_of(frame_of(gpu_of(0, stale_for=12.0))).split("\n")
    assert old[2].startswith("  ! error: it has not answered for 12s; its values are older")
    assert old[4] == "  load         0%"
    assert "0%" not in silent


def test_on_a_fleet_the_title_names_the_host() -> None:
    frame = frame_of(gpu_of(0), host=Host(name="node", requested_name="lab3"))
    assert page_of(frame).split("\n")[1] == " lab3  GPU 0  H200"


def test_what_a_card_has_not_is_told_once() -> None:
    """A section of which nothing is known is a line; a value that is missing is a sign."""
    page = page_of(frame_of(gpu_of(0, pcie=Pcie(generation=4, width=16, tx=0.0))))
    for name in ("Activity", "NVLink", "Errors"):
        assert [line.strip() for line in section(page, name)] == [UNSUPPORTED]
    pcie = " ".join(" ".join(section(page, "PCIe")).split())
    dash = UNICODE.not_available
    assert pcie == (
        f"GEN 4 GEN-MAX {dash} LANES 16 LANES-MAX {dash} "
        f"PCIE-TX 0 B/s PCIE-RX {dash} REPLAYS {dash}"
    )


def test_a_gpu_of_which_nothing_is_known() -> None:
    page = page_of(frame_of(silent_gpu(0, error="GPU is lost")))
    assert "GPU is lost" in page
    assert page.count(UNSUPPORTED) == len(SECTIONS) - 2  # its index is known, and LISTED
    assert "no values yet" in page
    assert "None" not in page


def test_old_values_are_said_to_be_and_leave_a_gap() -> None:
    fresh = frame_of(gpu_of(0, power=222.0))
    late = frame_of(gpu_of(0, power=222.0, stale_for=12.0), time=NOON + 1)
    assert "POWER 222 W  peak 222 W" in page_of(fresh)
    page = page_of(fresh, late)
    assert "has not answered for 12s; its values are older" in page
    assert "POWER –  peak 222 W" in page
    gone = "the driver no longer lists it; these are its last figures"
    assert gone in page_of(fresh, gone=True)
    assert gone not in page_of(fresh)


def test_its_own_processes_and_no_others() -> None:
    opener = DeviceHolder(pid=77, start_ticks=7, start_time=NOON, user="bob",
                          command="python lost.py", reason="orphan")  # fmt: skip
    gpu = gpu_of(1, memory_used=60 * GIB, memory_unaccounted=40 * GIB, holders=(opener,))
    frame = frame_of(
        gpu_of(0), gpu,
        process_of(401, 1, gpu_memory=GIB), process_of(402, 1, user="amy", gpu_memory=9 * GIB),
        process_of(403, 0),
    )  # fmt: skip
    lines = section(page_of(frame, index=1, paper=Paper(130, UNICODE)), "Processes")
    assert [line.split()[1] for line in lines[:3]] == ["PID", "402", "401"]
    assert "python lost.py" in "".join(lines[3:])
    assert [line.split()[1] for line in section(page_of(frame), "Processes")] == ["PID", "403"]


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({}, "none"),
        ({"listed": "none"}, "the driver does not list the processes here"),
        ({"listed": "unknown"}, "no process is seen: the GPU has not said who is on it"),
    ],
)
def test_no_process(gpu: dict[str, Any], words: str) -> None:
    page = page_of(frame_of(gpu_of(0, **gpu)), paper=WIDE)
    assert section(page, "Processes")[0].strip() == words


def test_links_are_told_by_their_kind_the_best_first() -> None:
    links = (("X", "SYS", "NV4", None, "SYS"), *[("X",) * 5] * 4)
    page = page_of(frame_of(*(gpu_of(n) for n in range(5)), links=links))
    lines = [" ".join(line.split()) for line in section(page, "Links to the other GPUs")]
    assert lines == [
        "4 NVLinks to GPU 2",
        "SYS to GPU 1,4: the interconnect between NUMA nodes",
        "– to GPU 3: not known",
    ]


@pytest.mark.parametrize(
    ("count", "links", "words"),
    [(2, None, "not known"), (1, None, "there is no other"), (1, (("X",),), "there is no other")],
)
def test_no_links(count: int, links: Any, words: str) -> None:
    page = page_of(frame_of(*(gpu_of(n) for n in range(count)), links=links))
    assert section(page, "Links to the other GPUs")[0].strip() == words


@pytest.mark.parametrize("width", [200, 80, 40, 10])
def test_hostile_values(width: int) -> None:
    """Markup is text; wide letters and long words do not leave the page."""
    hostile = "[/][red]" + "訓練" * 80
    gpu = gpu_of(
        0, name=hostile, error=hostile, identity=Identity(serial=hostile, vbios="x" * 300),
        throttle=Throttle(reasons=(hostile,), shares={hostile: 0.5}),
        activity=Activity(doing=hostile, sm=0.5),
    )  # fmt: skip
    links = (("X", hostile), (hostile, "X"))
    frame = frame_of(gpu, gpu_of(1), process_of(1, user=hostile), links=links)
    page = page_of(frame, paper=Paper(width, UNICODE))  # `written` measures each line
    assert "[/][red]"[: width - 4] in page
    assert page_of(frame, paper=Paper(width, ASCII)).isascii()


# What needs attention


def health(*parts: Any, paper: Paper = NARROW) -> str:
    return health_of(frame_of(*parts), paper)


def health_of(frame: Frame, paper: Paper = NARROW) -> str:
    [shown] = shown_frames(frame)
    return written(health_page(paper, shown)[0], paper)


def test_the_list_says_what_and_what_to_do() -> None:
    text = health_of(sick())
    assert "2 of 4 GPUs need attention." in text
    headings = [line for line in text.split("\n") if line.startswith(" GPU ")]
    assert headings == [f" GPU {n}  H200  00000000:0{n + 1}:00.0" for n in (1, 2, 3)]
    for words in ("! error: XID 79, 12s ago: the GPU has fallen off the bus",
                  "nvidia-smi --gpu-reset -i 2", "1 of 4 NVLinks is down",
                  "! warning: XID 31, 12s ago", "compute-sanitizer"):  # fmt: skip
        assert words in text
    assert UNICODE.ellipsis not in text


def test_the_summary_says_how_bad_it_is() -> None:
    well = gpu_of(0, health=xids())
    assert "All is well: nothing was found on 1 GPU." in health(well)
    text = health(gpu_of(0, health=xids(95)))
    assert "1 of 1 GPU needs attention." in text
    assert "XID 95" in text
    text = health(gpu_of(0, compute_mode="prohibited", health=xids()))
    assert "Nothing is broken" in text
    assert "no program may use the GPU" in text


def test_what_is_not_known_is_said() -> None:
    text = health(gpu_of(0), gpu_of(1, stale_for=31.0), paper=WIDE)
    assert "The driver reports no XIDs here; the kernel log has them" in text
    assert text.count("t has not answered for 31s") == 1
    assert "1 of 2 GPUs needs attention." in text
    text = health(gpu_of(0), gpu_of(1, stale_for=2.0))
    assert "It has not answered for 2s." in text
    assert "Nothing was found, but 1 of 2 GPUs does not answer." in text
    assert "All is well" not in text
    text = health(gpu_of(0, health=xids()), gpu_of(1), paper=WIDE)
    assert "since gputop started, not of GPU 1; earlier ones are in the kernel log" in text
    assert "not answered" not in text


def test_processes_with_a_warning_are_listed_once_for_each_user() -> None:
    wrong = CudaContext(Environ({"CUDA_VISIBLE_DIVICES": "1"}))
    right = CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "1"}))
    processes = [process_of(pid, pid % 2, cuda_context=wrong, user=user)
                 for pid, user in ((401, "alice"), (402, "alice"), (403, "bob"))]  # fmt: skip
    frame = frame_of(*processes, process_of(404, 1, cuda_context=right))
    text = " ".join(health_of(frame, WIDE).split())
    assert "No GPU is broken; some processes have wrong variables." in text
    assert "Processes ! error: PID 401 and 1 more of alice: CUDA_VISIBLE_DIVICES is not" in text
    assert "! error: PID 403 of bob: CUDA_VISIBLE_DIVICES is not" in text
    assert "402" not in text
    assert "404" not in text


def test_on_a_fleet_the_health_names_the_host() -> None:
    assert health_of(frame_of(host=Host(name="x", requested_name="lab3"))).split("\n")[1] == (
        " lab3  Health"
    )


def test_names_are_harmless() -> None:
    hostile = gpu_of(0, name="NVIDIA [/] \\", error="[bold]lost[/]")
    text = health(hostile)
    assert "GPU 0  [/] \\" in text
    assert "the driver says: [bold]lost[/]" in text
    assert health(hostile, paper=Paper(80, ASCII)).isascii()
