"""A recording on the screen: real files, read by the real reader, with the keys of a person."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.model.machine.frame import Problem
from gputop.recording.reader import Recording
from gputop.recording.writer import RecordingWriter
from gputop.sources.recording import RecordingSource
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.dialogs.time import TimeDialog
from gputop.tui.playback import Playback
from gputop.tui.replay import ReplayApp
from tests.builders_tui import NOON, Screenful
from tests.tui.replays import EVERY, HOUR, record, replayed, sample, settled


def load(screen: Screenful) -> str:
    return screen.gpu_cell(0, "UTIL").split()[-1]


def clock(number: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOON + number * EVERY))


def seconds(screen: Screenful, count: float) -> None:
    """Let so many seconds pass of a replay that runs."""
    assert isinstance(screen.app, ReplayApp)
    for _ in range(round(count / 0.05)):
        screen.app._on_tick()


@pytest.fixture
def hour(tmp_path: Path) -> Path:
    return record(tmp_path / "hour.gputop")


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_it_begins_where_it_is_told_and_goes_by_keys(
    hour: Path, size: tuple[int, int]
) -> None:
    async with replayed(hour, NOON + 20 * 60 + 3, size) as screen:
        assert f"REPLAY {clock(120)}" in screen.lines[0]
        assert load(screen) == "20%"
        assert ", . step" in screen.lines[-1]
        await screen.press(",")
        assert (load(screen), clock(119) in screen.lines[0]) == ("19%", True)
        await screen.press(".", ">", ">")
        assert (load(screen), clock(132) in screen.lines[0]) == ("22%", True)
        await screen.press("<")
        assert load(screen) == "21%"
        await screen.press("down", "tab", "escape")
        assert f"REPLAY {clock(126)}" in screen.lines[0]


async def test_the_time_is_asked_for_over_the_keys_and_a_note(hour: Path) -> None:
    async with replayed(hour, NOON, (80, 24)) as screen:
        await screen.press(",")
        before = screen.lines[:-1]
        assert " the recording begins at " in screen.lines[-1]
        await screen.press("t")
        assert screen.lines[-1].startswith(" t time  ")
        assert screen.lines[:-1] == before


@pytest.mark.parametrize(("key", "written"), [("space", "Space run"), ("f7", "F7 run")])
async def test_the_keys_of_a_replay_are_written_as_in_the_help(
    hour: Path, key: str, written: str
) -> None:
    async with replayed(hour, NOON, (200, 50), keys={"time.run": key}) as screen:
        line = screen.lines[-1]
        for words in (", . step", "< > minute", "t time", written, "1-9 speed", "q quit"):
            assert f" {words}  " in line
        for words in ("F9", "W wait", "p pause", "v verify"):
            assert f" {words}" not in line
        await screen.press("question_mark")
        for keys in (", .", "< >", "t", written.split()[0], "1-9"):
            assert re.search(rf"^ {re.escape(keys)} |  {re.escape(keys)} ", screen.text, re.M)


async def test_space_leafs_in_the_help_and_runs_nothing(hour: Path) -> None:
    async with replayed(hour, NOON, (80, 24)) as screen:
        await screen.press("question_mark")
        before = screen.lines[1]
        await screen.press("space")
        assert screen.lines[1] != before
        assert "1x" not in screen.lines[-1]


async def test_pages_show_the_keys_of_a_replay(hour: Path) -> None:
    async with replayed(hour, NOON, (200, 50)) as screen:
        await screen.press("end", "enter")
        times = ", . step  < > minute  t time  Space run  1-9 speed"
        assert f"REPLAY {clock(0)}  {times}  Esc back  j k PgDn scroll" in screen.lines[-1]
        await screen.press("question_mark")
        assert "Go to a time" in screen.text
        assert "Python stack" not in screen.text


async def test_the_cursor_of_a_graph_goes_back_with_the_time(hour: Path) -> None:
    async with replayed(hour, NOON + 20 * 60) as screen:
        await screen.press("G", "left", "<")
        assert f" at {clock(114)[11:]} " in screen.lines[0]


async def test_the_ends_and_what_is_missing_are_said(tmp_path: Path) -> None:
    numbers = [*range(60), *range(180, HOUR)]
    path = record(tmp_path / "gap.gputop", numbers)
    gap = f"nothing was recorded from {clock(59)} to {clock(180)[11:]}"
    async with replayed(path, NOON - 5) as screen:
        assert f"the recording begins at {clock(0)}" in screen.lines[-1]
        assert clock(0) in screen.lines[0]
        await screen.press(*[">"] * 11)
        assert (gap in screen.lines[-1], clock(180) in screen.lines[0]) == (True, True)
        await screen.press(",")
        assert (gap in screen.lines[-1], clock(59) in screen.lines[0]) == (True, True)
        screen.hand.wait()
        await screen.press("9")
        seconds(screen, 0.05)
        await screen.drawn()
        assert (gap in screen.lines[-1], clock(180) in screen.lines[0]) == (True, True)
        seconds(screen, 60)
        await screen.drawn()
        assert f"the recording ends at {clock(HOUR - 1)}" in screen.lines[-1]
        assert screen.lines[0].split("node")[0].split()[-1] == clock(HOUR - 1)[11:]


async def test_it_runs_as_fast_as_it_is_told(hour: Path) -> None:
    async with replayed(hour, NOON) as screen:
        for key, words, number in (("space", "1x", 2), ("3", "5x", 12), ("9", "500x", 300)):
            await screen.press("t")
            await screen.type("00:00")
            await screen.press("enter")  # the day of NOON begins before the recording
            assert clock(0) in screen.lines[0]
            await screen.press(key)
            seconds(screen, 24 if number < 20 else 6)
            await screen.drawn()
            assert f"{clock(number)} {words}" in screen.lines[0]
            await screen.press("space")
            seconds(screen, 5)
            await screen.drawn()
            assert f"{clock(number)}  node" in screen.lines[0]


async def test_a_time_is_asked_for_in_the_bottom_line(hour: Path) -> None:
    async with replayed(hour, size=(80, 24)) as screen:
        assert load(screen) == "59%"
        for text, number in (("-30m", 179), ("+5m", 209), (clock(60), 60), (clock(90)[11:], 90)):
            await screen.press("t")
            await screen.type(text)
            await screen.press("enter")
            assert clock(number) in screen.lines[0], text
        await screen.press("t")
        await screen.type("soon")
        await screen.press("enter")
        assert isinstance(screen.app.screen, TimeDialog)
        assert "no time: write 2026-11-21 03:00, 03:00 or -2h" in screen.lines[-1]
        await screen.press("escape")
        assert clock(90) in screen.lines[0]


async def test_graphs_have_what_led_up_to_it(hour: Path) -> None:
    async with replayed(hour, NOON + 40 * 60) as screen:
        assert screen.main._shown is not None
        times = screen.main._shown.history.times
        assert (times[-1] - NOON, len(times)) == (2400, 121)
        for _ in range(15):
            await screen.press("<")
        await settled(screen)
        times = screen.main._shown.history.times
        assert times[-1] - NOON == 1500
        assert times[0] - NOON <= 1500 - 900
        await screen.press("G", ".")
        assert "REPLAY" in screen.lines[-1]
        assert "25% of 100%" in screen.text
        await screen.press("t")
        await screen.type("+20m")
        await screen.press("enter")
        assert "45% of 100%" in screen.text


async def test_nothing_is_signalled_or_asked(hour: Path) -> None:
    async with replayed(hour, size=(120, 50)) as screen:
        await screen.press("down", "f9")
        assert isinstance(screen.app.screen, SignalScreen)
        assert "a replay shows the past: there is nothing to signal" in screen.text
        await screen.press("enter", "v")
        assert "a replay has no driver to ask" in screen.text
        await screen.press("enter")
        page = await screen.whole_page()
        assert "being read" not in page
        assert page.count("not recorded") >= 3
        await screen.press("escape", "5", "slash")
        await screen.type("pid:5 t")
        assert "filter: pid:5 t" in screen.text
        await screen.press("escape", "escape", "f5")
        assert "tree" in screen.text
        await screen.press("question_mark")
        for words in ("Run, stop", "Go to a time: 03:00, -2h", "1, 2, 5, ... 500 times"):
            assert words in screen.text
        for words in ("Find a process by its PID", "Refresh now", "Tag the process", "Notify"):
            assert words not in screen.text
        assert "Kill, or send" not in screen.text


async def test_a_driver_that_was_gone_is_shown_and_left_again(tmp_path: Path) -> None:
    problem = Problem(code="driver_not_loaded", text="the driver is gone", advice="load it")
    writer = RecordingWriter(str(tmp_path / "r"), EVERY)
    for number in range(4):
        frame = sample(number)
        writer.append("node", replace(frame, gpus=(), problem=problem) if number == 2 else frame)
    writer.close()
    async with replayed(tmp_path / "r") as screen:
        await screen.press(",")
        assert "The driver is gone." in screen.text
        assert f"REPLAY {clock(2)}" in screen.lines[-1]
        assert "tries again" not in screen.text
        await screen.press(",")
        assert f"REPLAY {clock(1)}" in screen.lines[0]


async def test_a_recording_that_is_cut(hour: Path) -> None:
    cut = hour.read_bytes()
    hour.write_bytes(cut[: len(cut) * 2 // 3])
    recording = Recording(hour)
    assert recording.losses
    async with replayed(hour, note=recording.losses[0]) as screen:
        assert recording.losses[0][:40] in screen.lines[-1]
        assert load(screen).endswith("%")


def test_a_fast_run_leaves_no_hole_in_the_graphs(hour: Path) -> None:
    """It goes on while the history that leads up to its start is still being read."""
    playback = Playback(RecordingSource(Recording(hour), "node", NOON).past)
    playback.go(NOON + HOUR / 2 * EVERY)
    playback.run(500)
    while playback.is_running or playback.is_filling:
        playback.advance(1.0)
        playback.fill()
    times = playback.history.times
    assert {b - a for a, b in pairwise(times)} == {EVERY}
    assert len(times) > HOUR / 2 + 100


@pytest.mark.long
async def test_samples_that_are_damaged_hold_nobody_up(hour: Path) -> None:
    data = bytearray(hour.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 300] = b"x" * 300
    hour.write_bytes(data)
    async with replayed(hour, NOON) as screen:
        before, notes = screen.lines[0], 0
        for _ in range(HOUR // 6 + 1):
            await screen.press(">")
            notes += "cannot be read are left out" in screen.lines[-1]
            assert before != screen.lines[0] or "the recording ends" in screen.lines[-1]
            before = screen.lines[0]
        assert (clock(HOUR - 1) in screen.lines[0], notes >= 1) == (True, True)
        assert isinstance(screen.app, ReplayApp)
        screen.app.replay.move(lambda playback: playback.go(NOON))
        await screen.press("9")
        seconds(screen, 60)
        await screen.drawn()
        assert clock(HOUR - 1) in screen.lines[0]
