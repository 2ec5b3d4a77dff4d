"""The signal dialog: whom it names, what it says, and that nothing goes out by accident."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gputop.model.fleet.link import HostLink
from gputop.model.machine.signals import Verdict
from gputop.protocol.messages import Refresh, Signal
from gputop.settings import Session
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.glyphs import ASCII
from gputop.tui.main import MainScreen
from gputop.tui.pages.process import ProcessScreen
from gputop.tui.panes.lines import Lines
from tests.builders import id_of
from tests.builders_tui import GIB, NOON, Screenful, frame_of, gpu_of, process_of, shown
from tests.conftest import rest_long

HOSTILE = "[/] [bold]x[/bold] [@click=app.quit]y[/] $primary \\"
ME = Session(me="alice")
KEYS = "9 SIGKILL s other signals d with children Esc cancel"


def orders(screen: Screenful) -> list[Signal]:
    return [request for request in screen.source.requests if isinstance(request, Signal)]


def pids(order: Signal) -> list[int]:
    return [target.process.pid for target in order.targets]


def reply(order: Signal, verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """Fields of a reply."""
    return {"request": order.id, "verdicts": verdicts}


async def answer(screen: Screenful, outcome: Any = "alive", **more: Any) -> None:
    """What the agent says of every target of the last order; the processes are as they were."""
    frame, order = screen.app.shown.frame, orders(screen)[-1]
    assert frame is not None
    said = tuple(
        Verdict(request_id=order.id, process=target.process, signal=order.number,
                outcome=outcome, **{"words": f"{outcome} it is", **more})
        for target in order.targets
    )  # fmt: skip
    gpus, processes = frame.gpus, frame.processes
    await screen.show(frame_of(*gpus, *processes, time=frame.time + 1), **reply(order, said))


async def test_it_names_what_it_is_for() -> None:
    started = NOON - 7500
    both = [process_of(100, gpu, start_time=started, gpu_memory=(gpu + 2) * GIB) for gpu in (0, 1)]
    async with shown(frame_of(*both, process_of(200, gpu_memory=1))) as screen:
        await screen.press("j", "f9")
        facts = ["SIGTERM to 1 process ", " 100 alice", "2h05m", "train.py --seed 100"]
        facts += ["5.00G on GPU 0,1", "▸[ Cancel ]", "checking whether"]
        for fact in facts:
            assert fact in screen.text, screen.text
        assert "Send" not in screen.text
        assert pids(orders(screen)[0]) == [100]
        await answer(screen)
        assert "▸[ Send SIGTERM ]" in screen.text
        await screen.press("tab", "enter")
        assert isinstance(screen.app.screen, MainScreen)
        assert len(orders(screen)) == 1


@rest_long(
    ("keys", "number"),
    ("", 15),
    ("9", 9),
    ("2", 2),
    ("15", 15),
    ("9 15", 15),
    ("dd9", 9),
    ("99", 9),
)
async def test_a_single_process_of_ones_own_takes_two_keys_or_three(keys: str, number: int) -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "f9")
        await answer(screen)
        await screen.press(*keys.replace(" ", ""), "enter")
        [_, order] = orders(screen)
        assert (pids(order), order.number) == ([100], number)


@pytest.mark.parametrize("keys", [["space", "space"], ["d"]])
async def test_several_want_the_word(keys: list[str]) -> None:
    """Also one with what it has started."""
    async with shown(frame_of(process_of(100), process_of(101))) as screen:
        await screen.press("j", *(key for key in keys if key == "space"), "f9")
        await answer(screen)
        if "d" in keys:
            check = orders(screen)[0]
            root = Verdict(request_id=check.id, process=check.targets[0].process, signal=0,
                           outcome="alive", words="it is running")  # fmt: skip
            child = structs.replace(root, process=id_of(900), parent=root.process.pid)
            screen.app.screen._state._handle_check((root, child))  # type: ignore[attr-defined]
            await screen.press("d")
        assert "2 processes" in screen.text
        assert "▸[" not in screen.text  # the field has the focus
        await screen.press("enter")
        assert "nothing was sent: type kill, then Enter" in screen.text
        assert len(orders(screen)) == 1
        await screen.press(*"kill", "enter")
        assert len(orders(screen)[1].targets) == 2


async def test_term_that_is_ignored_and_kill_after_it_are_told_apart() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "f9")
        await answer(screen, ignored=(15,))
        assert "it ignores SIGTERM: 9 chooses SIGKILL" in screen.text
        await screen.press("enter")
        await answer(screen, "ignored", words="it ignores SIGTERM; SIGKILL ends it")
        assert "▸[ Close ]  [ SIGKILL to 1 ]" in screen.text
        await screen.press("9")
        assert "▸[ SIGKILL to 1 ]" in screen.text
        assert len(orders(screen)) == 2
        await screen.press("enter")
        await answer(screen, "waiting", ended=True, words="it has ended; waiting for its memory")
        assert "SIGTERM: ignored" in screen.text
        assert "may take" not in screen.text
        await answer(screen, "exited", ended=True, words="ended at once after SIGKILL")
        await screen.show(frame_of(time=NOON + 9))
        for words in ("SIGTERM: ignored", "ended at once after SIGKILL", "Done"):
            assert words in screen.text
        await screen.press("escape")
        assert "ended (KILL, not TERM)" in screen.text


@pytest.mark.parametrize("caution", [None, "foreign"])
async def test_all_that_is_needed_is_in_sight_at_40x12(caution: str | None) -> None:
    async with shown(frame_of(process_of(100)), size=(40, 12)) as screen:
        await screen.press("j", "f9")
        await answer(screen, caution=caution, words="it is bob's")
        assert "[ Cancel ]" in screen.text
        assert "[ Send SIGTERM ]" in screen.text
        assert "…" not in "\n".join(screen.lines[4:])
        if caution:
            assert "▸[" not in screen.text
        else:
            assert "▸[ Send SIGTERM ]" in screen.text
        await screen.press("9")
        assert "[ Send SIGKILL ]" in screen.text
        if caution:
            await screen.press(*"kill")
            assert "type kill: kill" in screen.text
        await screen.press("enter")
        assert orders(screen)[1].number == 9
        await answer(screen, "waiting", words="SIGKILL was sent")
        assert "1 process may" in screen.text
        assert "s to end" in screen.text


async def test_own_processes_of_a_gpu() -> None:
    parts = [process_of(100, 1), process_of(101, 1, user="bob"), process_of(102, 1),
             process_of(103, 0)]  # fmt: skip
    async with shown(frame_of(*parts), settings=ME) as screen:
        screen.main.set_focus(screen.gpus)
        await screen.press("down", "down", "f9")
        assert sorted(pids(orders(screen)[0])) == [100, 102]
        await screen.press("escape")
        screen.gpus.deselect()
        await screen.show(frame_of(process_of(101, 1, user="bob")))
        await screen.press("down", "down", "f9")
        assert "no process of yours is on GPU 1" in screen.text


async def test_own_processes_are_those_of_whom_one_is_there() -> None:
    """bob@node: the alice there is somebody else."""
    async with shown(
        frame_of(process_of(100, 1), process_of(101, 1, user="bob")), settings=ME
    ) as screen:
        screen.source.link, screen.source.user = HostLink("connected"), "bob"
        screen.main.set_focus(screen.gpus)
        await screen.press("down", "down", "f9")
        assert pids(orders(screen)[0]) == [101]


async def test_root_takes_all_of_a_gpu_with_the_word() -> None:
    parts = [process_of(100, 0), process_of(101, 1), process_of(102, 1, user="bob")]
    async with shown(frame_of(*parts), settings=Session(me="root")) as screen:
        await screen.press("tab", "down", "f9")
        assert sorted(pids(orders(screen)[0])) == [101, 102]
        await answer(screen, caution="foreign", words="it is somebody else's")
        assert screen.text.count("it is somebody else's") == 1
        assert "each of these 2: it is somebody else's" in screen.text
        assert "type kill:" in screen.text
        assert "▸[" not in screen.text


async def test_keys_that_come_too_early_are_said_to_be_ignored() -> None:
    async with shown(frame_of(process_of(100)), settings=ME) as screen:
        for key in ("j", "f9", "9", "enter"):
            screen.app.post_message(screen.hand.key(key))
        await screen.drawn()
        await answer(screen)
        assert "what was typed too early is ignored; Enter sends SIGTERM" in screen.text
        await screen.press("9")
        assert "too early" not in screen.text
        assert len(orders(screen)) == 1


async def test_one_process_of_a_gpu_is_not_sent_to_by_enter() -> None:
    async with shown(frame_of(process_of(100, 0), process_of(101, 1)), settings=ME) as screen:
        await screen.press("tab", "f9")
        await answer(screen)
        assert "▸[ Cancel ]" in screen.text
        await screen.press("9", "enter")
        assert len(orders(screen)) == 1
        await screen.press("f9")
        await answer(screen)
        await screen.press("tab", "enter")
        assert (pids(orders(screen)[-1]), orders(screen)[-1].number) == ([100], 15)


@pytest.mark.parametrize("keys", [["u"], ["t", "down"]])
async def test_all_of_a_line(keys: list[str]) -> None:
    parent = process_of(100, start_time=NOON - 90)
    ranks = [process_of(pid, parent=100) for pid in (101, 102)]
    async with shown(frame_of(parent, *ranks), settings=ME) as screen:
        await screen.press(*keys, "K")
        assert sorted(pids(orders(screen)[0])) == [100, 101, 102]


async def test_nobody_is_meant() -> None:
    async with shown(frame_of(process_of(100), process_of(101))) as screen:
        await screen.press("f9")
        assert "no process is selected" in screen.text
        await screen.press("escape", "j", "space", "escape")
        await screen.press("home", "space")
        left = 101 if screen.table.listing.tagged[0].process.pid == 100 else 100
        await screen.show(frame_of(process_of(left), time=NOON + 1))
        await screen.press("j", "f9")
        assert "the tagged processes have ended" in screen.text
        await screen.press("tab", "enter", "escape", "escape", "home")
        await screen.show(frame_of(process_of(left), time=NOON + 2))
        while screen.selected is None:
            await screen.press("j")
        await screen.press("f9")
        assert [pids(request) for request in orders(screen)] == [[left]]


async def test_never_one_that_has_ended() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j")
        await screen.show(frame_of(time=NOON + 1))
        await screen.press("f9")
        assert "PID 100 has ended: there is nothing to signal" in screen.text
        assert "0 process" not in screen.text
        await screen.press("enter")
        assert orders(screen) == []


async def test_memory_that_nobody_holds_is_no_process() -> None:
    gpu = gpu_of(0, memory_used=50 * GIB, memory_unaccounted=49 * GIB)
    async with shown(frame_of(gpu)) as screen:
        await screen.press("j", "f9")
        assert "memory that no visible process holds" in screen.text
        assert orders(screen) == []


@rest_long("caution", "foreign", "first", "ancestor", "container", "unreadable")
async def test_the_word(caution: str) -> None:
    async with shown(frame_of(process_of(100)), size=(80, 24)) as screen:
        await screen.press("j", "f9")
        await answer(screen, caution=caution, words="it is bob's")
        assert "it is bob's" in screen.text
        assert "to confirm, type kill: then Enter sends SIGTERM" in screen.text
        await screen.press("9", *"k9sd", "enter")
        assert "type kill: k9sd" in screen.text
        assert "nothing was sent: type kill, then Enter" in screen.text
        await screen.press("tab", "enter")
        assert len(orders(screen)) == 1
        await screen.press(*["backspace"] * 4, *"KILL", "enter")
        assert (len(orders(screen)), orders(screen)[1].number) == (2, 9)
        assert orders(screen)[1].targets[0].forced


async def test_the_keys_of_the_dialog_while_nothing_is_typed() -> None:
    async with shown(frame_of(process_of(100)), size=(80, 24)) as screen:
        await screen.press("j", "f9")
        assert screen.lines[-1].split() == KEYS.split()
        await answer(screen, caution="foreign")
        await screen.press("s", *"int", "enter")
        assert "[ Send SIGINT ]" in screen.text
        await screen.press(*"kill", "enter")
        assert orders(screen)[1].number == 2
        await answer(screen, "exited")
        assert screen.lines[-1].split() == ["Esc", "close"]


async def test_the_list_of_signals_is_no_higher_than_the_screen() -> None:
    async with shown(frame_of(process_of(100)), size=(80, 12)) as screen:
        await screen.press("j", "f9")
        await answer(screen)
        await screen.press("s", *"rtmax")
        assert "SIGRTMAX " in screen.text
        assert "Enter" in screen.lines[-1]


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
        await screen.press("s", "down", "down", "enter", "enter")
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
        await screen.press("enter")
        await answer(screen, "waiting")
        await screen.press("escape")
        assert "1 signal under way" in screen.lines[0]
        assert Refresh() not in screen.source.requests
        await answer(screen, "exited")
        assert "under way" not in screen.lines[0]
        assert screen.source.requests[-1] == Refresh()  # the table need not wait for its turn


@rest_long("size", (80, 24), (200, 50), (40, 10))
async def test_fifty_of_them_scroll(size: tuple[int, int]) -> None:
    parts = [process_of(100 + k, command=HOSTILE, user=f"[b]{k}") for k in range(50)]
    async with shown(frame_of(*parts), size=size) as screen:
        await screen.press(*["space"] * 50, "f9")
        assert len(orders(screen)[0].targets) == 50
        await answer(screen)
        assert "▸[" not in screen.text
        first = screen.text
        await screen.press("end", *["pagedown"] * 60)
        assert screen.text != first
        assert f" {orders(screen)[0].targets[-1].process.pid} " in screen.text
        await screen.press(*"kill", "enter")
        assert len(orders(screen)[1].targets) == 50
        await answer(screen, "ignored")
        assert "50 processes are still running" in screen.text
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
        assert " [ Cancel ]" in screen.text
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
        screen.app.shown.close()


async def test_readonly_answers_the_key_and_signals_nothing() -> None:
    async with shown(frame_of(process_of(100)), settings=Session(readonly=True)) as screen:
        await screen.press("j", "f9", "K")
        assert isinstance(screen.app.screen, MainScreen)
        assert "read only" in screen.lines[0]
        assert "─ read only: F9 sends no signal ─" in screen.text
        assert orders(screen) == []
        main: Any = screen.main
        commands = [command.title for command in screen.app.get_system_commands(main)]
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
        assert [pids(request) for request in orders(screen)] == [[chosen]]
        await screen.press("enter")
        assert pids(orders(screen)[1]) == [chosen]
        await answer(screen, "exited")
        await screen.press("escape")
        assert isinstance(screen.app.screen, ProcessScreen)
        await screen.show(
            frame_of(*(process for process in parts if process.pid != chosen), time=NOON + 5)
        )
        await screen.press("K")
        assert "it has ended, or left the GPUs" in screen.text
        assert len(orders(screen)) == 2
    async with shown(frame_of(*parts), settings=Session(readonly=True)) as screen:
        await screen.press("j", "enter", "f9", "K")
        assert isinstance(screen.app.screen, ProcessScreen)
        assert "F9" not in screen.text.replace("read only: F9 sends no signal", "", 1)
        assert "read only" in screen.lines[-1]
        await screen.press("escape", "tab", "enter", "f9")
        assert "F9 signals from the table" in screen.lines[-1]


async def test_an_agent_that_does_not_signal_says_so() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "f9")
        await screen.show(request=orders(screen)[0].id, error="only nvidia-smi is read")
        assert "only nvidia-smi is read" in screen.text
        assert "checking" not in screen.text
        assert "Send" not in screen.text


async def test_an_order_that_has_no_verdicts_is_not_waited_for() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "f9")
        await answer(screen)
        await screen.press("enter")
        await screen.show(request=orders(screen)[1].id, error="too many requests are pending")
        assert "too many requests are pending" in screen.text
        assert "its outcome is unknown" in screen.text
        assert "being sent" not in screen.text


async def test_enter_sends_nothing_to_a_pid_of_which_only_the_beginning_was_typed() -> None:
    async with shown(frame_of(process_of(1523), process_of(15234)), settings=ME) as screen:
        for digits, button in (("152", "Cancel"), ("15299", "Cancel"), ("15234", "Send SIGTERM")):
            await screen.press("escape", *digits, "f9")
            await answer(screen)
            assert f"▸[ {button} ]" in screen.text
            await screen.press("escape")
