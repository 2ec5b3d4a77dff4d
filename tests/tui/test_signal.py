"""The signal dialog: whom it names, what it says, and that nothing goes out by accident."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.protocol import Signal
from gputop.model.signals import Verdict
from gputop.settings import Session
from gputop.tui.glyphs import ASCII
from gputop.tui.screens.main import MainScreen
from gputop.tui.screens.process import ProcessScreen
from gputop.tui.screens.signal import SignalScreen
from gputop.tui.widgets.lines import Lines
from tests.builders_tui import GIB, NOON, Screenful, frame_of, process_of, shown

HOSTILE = "[/] [bold]x[/bold] [@click=app.quit]y[/] $primary \\"
ME = Session(me="alice")


def orders(screen: Screenful) -> list[Signal]:
    return [one for one in screen.source.requests if isinstance(one, Signal)]


def pids(order: Signal) -> list[int]:
    return [one.pid for one in order.targets]


async def answer(screen: Screenful, outcome: Any = "alive", **more: Any) -> None:
    """What the agent says of every target of the last order; the processes are as they were."""
    frame, order = screen.app._frame, orders(screen)[-1]
    assert frame is not None
    said = tuple(
        Verdict(order=order.order, pid=one.pid, start_time=one.start_time, signal=order.number,
                outcome=outcome, **{"words": f"{outcome} it is", **more})
        for one in order.targets
    )  # fmt: skip
    gpus, processes = frame.gpus, frame.processes
    await screen.show(frame_of(*gpus, *processes, time=frame.time + 1, verdicts=said))


async def test_it_names_what_it_is_for() -> None:
    started = NOON - 7500
    both = [process_of(100, gpu, start_time=started, gpu_memory=(gpu + 2) * GIB) for gpu in (0, 1)]
    async with shown(frame_of(*both, process_of(200, gpu_memory=1))) as screen:
        await screen.press("j", "f9")
        facts = ["SIGTERM to 1 process ", " 100 alice", "2h05m", "train.py --seed 100"]
        facts += ["2.00G on GPU 0, 3.00G on GPU 1", "▸[ Cancel ]", "asking whether"]
        for fact in facts:
            assert fact in screen.text, screen.text
        assert "Send" not in screen.text
        assert pids(orders(screen)[0]) == [100]
        await answer(screen)
        assert "[ Send SIGTERM ]" in screen.text
        await screen.press("enter")
        assert isinstance(screen.app.screen, MainScreen)
        assert len(orders(screen)) == 1


async def test_own_processes_of_a_gpu() -> None:
    parts = [process_of(100, 1), process_of(101, 1, user="bob"), process_of(102, 1),
             process_of(103, 0)]  # fmt: skip
    async with shown(frame_of(*parts), settings=ME) as screen:
        screen.app._main.set_focus(screen.gpus)
        await screen.press("down", "down", "f9")
        assert sorted(pids(orders(screen)[0])) == [100, 102]
        await screen.press("escape")
        screen.gpus.deselect()
        await screen.show(frame_of(process_of(101, 1, user="bob")))
        await screen.press("down", "down", "f9")
        assert "no process of yours is on GPU 1" in screen.text


@pytest.mark.parametrize("keys", [["u", "u", "down"], ["t", "down"]])
async def test_all_of_a_line(keys: list[str]) -> None:
    parent = process_of(100, start_time=NOON - 90)
    ranks = [process_of(pid, parent=100) for pid in (101, 102)]
    async with shown(frame_of(parent, *ranks), settings=ME) as screen:
        await screen.press(*keys, "K")
        assert sorted(pids(orders(screen)[0])) == [100, 101, 102]


async def test_nobody_is_meant() -> None:
    async with shown(frame_of(process_of(100), process_of(101))) as screen:
        await screen.press("f9")
        assert "no process is meant" in screen.text
        await screen.press("escape", "j", "space", "escape")
        await screen.press("home", "space")
        left = 101 if screen.table.tagged[0].pid == 100 else 100
        await screen.show(frame_of(process_of(left), time=NOON + 1))
        await screen.press("j", "f9")
        assert "the tagged processes have ended" in screen.text
        await screen.press("tab", "enter", "escape", "escape", "home")
        await screen.show(frame_of(process_of(left), time=NOON + 2))
        while screen.selected is None:
            await screen.press("j")
        await screen.press("f9")
        assert [pids(one) for one in orders(screen)] == [[left]]


async def test_never_one_that_has_ended() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j")
        await screen.show(frame_of(time=NOON + 1))
        await screen.press("f9")
        assert "no process is meant" in screen.text
        assert orders(screen) == []


async def test_the_demo_has_none() -> None:
    async with shown(frame_of(process_of(100), demo=True)) as screen:
        await screen.press("j", "f9", "tab", "enter")
        assert orders(screen) == []
    async with shown(frame_of(process_of(100), demo=True)) as screen:
        await screen.press("j", "f9")
        assert "the demo has no processes to signal" in screen.text


@pytest.mark.parametrize("caution", ["foreign", "first", "ancestor"])
async def test_the_word(caution: str) -> None:
    async with shown(frame_of(process_of(100)), size=(80, 24)) as screen:
        await screen.press("j", "f9")
        await answer(screen, caution=caution, words="it is bob's")
        assert "it is bob's; type kill to go on" in screen.text
        await screen.press("right", "right", "enter")
        assert len(orders(screen)) == 1
        await screen.press("left", *"sd", "enter", "enter")
        assert len(orders(screen)) == 1
        await screen.press("left", "backspace", "backspace", *"kill", "enter", "enter")
        assert len(orders(screen)) == 2
        assert orders(screen)[1].targets[0].forced


async def test_a_signal_by_number_or_name() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "f9")
        await answer(screen)
        for typed, name in (("9", "SIGKILL"), ("usr", "SIGUSR1"), ("sigint", "SIGINT")):
            await screen.press("s", *typed)
            assert name in screen.text
            await screen.press("enter")
            assert f"[ Send {name} ]" in screen.text
        await screen.press("s", *"foo", "enter", "escape")
        assert "[ Send SIGINT ]" in screen.text
        await screen.press("s", "down", "down", "enter", "tab", "enter")
        assert orders(screen)[-1].number == 4


async def test_not_permitted_shows_the_command() -> None:
    async with shown(frame_of(process_of(100)), size=(80, 24)) as screen:
        await screen.press("j", "f9")
        words = "not permitted; this would do it: sudo kill -TERM 100"
        await answer(screen, "not_permitted", words=words)
        assert "sudo kill -TERM 100" in screen.text
        assert "Send" not in screen.text
        await screen.press("tab", "enter")
        assert len(orders(screen)) == 1


async def test_verdicts_come_in_a_pause_too() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("p", "j", "f9")
        await answer(screen)
        await screen.press("tab", "enter")
        await answer(screen, "waiting")
        await screen.press("escape")
        assert "1 signal under way" in screen.lines[0]
        await answer(screen, "exited")
        assert "under way" not in screen.lines[0]


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 10)])
async def test_fifty_of_them_scroll(size: tuple[int, int]) -> None:
    parts = [process_of(100 + k, command=HOSTILE, user=f"[b]{k}") for k in range(50)]
    async with shown(frame_of(*parts), size=size) as screen:
        await screen.press(*["space"] * 51, "f9")
        assert len(orders(screen)[0].targets) == 50
        await answer(screen)
        assert "▸[ Cancel ]" in screen.text
        first = screen.text
        await screen.press("end", *["pagedown"] * 60)
        assert screen.text != first
        assert f" {orders(screen)[0].targets[-1].pid} " in screen.text
        await screen.press("tab", "enter")
        assert len(orders(screen)[1].targets) == 50
        await answer(screen, "ignored")
        assert "50 processes live on" in screen.text
        await screen.press("enter")
        assert len(orders(screen)) == 2


async def test_hostile_text_and_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "glyphs", ASCII)
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(frame_of(process_of(100, command=f"é {HOSTILE}", user="[é]"))) as screen:
        await screen.press("j", "f9")
        await answer(screen, caution="foreign", words=HOSTILE)
        assert screen.text.isascii()
        assert "[@click=app.quit]y[/] $primary" in screen.text
        assert ">[ Cancel ]" in screen.text
        await screen.press("s")
        assert screen.text.isascii()


async def test_a_frame_without_gpus_and_the_end_of_an_agent_before_anything_was_sent() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "f9")
        await answer(screen)
        await screen.end("the agent ended")
        assert isinstance(screen.app.screen, SignalScreen)
        assert "nothing was sent" in screen.text
        assert "Send" not in screen.text
        await screen.press("tab", "enter")
        assert len(orders(screen)) == 1
        screen.app.close_source()


async def test_readonly_has_no_key() -> None:
    async with shown(frame_of(process_of(100)), settings=Session(readonly=True)) as screen:
        await screen.press("j", "f9", "K")
        assert isinstance(screen.app.screen, MainScreen)
        assert "read only" in screen.lines[0]
        assert orders(screen) == []
        assert not hasattr(screen.app._main, "action_signal")
        main: Any = screen.app._main
        commands = [one.title for one in screen.app.get_system_commands(main)]
        assert commands
        assert not any("signal" in title for title in commands)


async def test_from_the_page_of_a_process() -> None:
    parts = [process_of(100), process_of(101)]
    async with shown(frame_of(*parts)) as screen:
        await screen.press("j", "j", "enter")
        assert isinstance(screen.app.screen, ProcessScreen)
        chosen = screen.selected
        await screen.press("f9")
        await answer(screen)
        assert [pids(one) for one in orders(screen)] == [[chosen]]
        await screen.press("tab", "enter")
        assert pids(orders(screen)[1]) == [chosen]
        await answer(screen, "exited")
        await screen.press("escape")
        assert isinstance(screen.app.screen, ProcessScreen)
        await screen.show(frame_of(*(one for one in parts if one.pid != chosen), time=NOON + 5))
        await screen.press("K")
        assert "it has ended, or left the GPUs" in screen.text
        assert len(orders(screen)) == 2
    async with shown(frame_of(*parts), settings=Session(readonly=True)) as screen:
        await screen.press("j", "enter", "f9", "K")
        assert isinstance(screen.app.screen, ProcessScreen)
        assert "F9" not in screen.text
