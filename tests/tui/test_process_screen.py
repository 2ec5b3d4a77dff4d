"""The page of a process: keys, requests, answers. What it says: test_process_lines.py."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gputop.model.machine.detail import EnvVariable, ProcessDetail, ProcessStack
from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Detail, Stack
from gputop.tui.pages.help import HelpScreen
from tests.builders import id_of
from tests.builders_tui import NOON, Screenful, frame_of, process_of, shown
from tests.tui.papers import section
from tests.tui.test_process_lines import GPUS, IT, PLACE, START, VARIABLES, detail_of


def at(seconds: float, *parts: Any, **values: Any) -> Frame:
    return frame_of(*GPUS, *parts, time=NOON + seconds, **values)


def wanted(hidden: bool = False) -> Detail:
    return Detail(IT, hidden, "details of 401")


def asked(screen: Screenful, kind: type = Detail) -> list[Any]:
    return [request for request in screen.source.requests if isinstance(request, kind)]


async def test_more_is_asked_for_at_once_and_every_five_seconds() -> None:
    process = process_of(401)
    async with shown(at(0, process)) as screen:
        assert asked(screen) == []
        await screen.press("enter")
        assert asked(screen) == [wanted()]
        assert "being read" in screen.text
        for second in range(1, 11):
            await screen.show(at(second, process))
        assert len(asked(screen)) == 3
        await screen.press("escape")
        await screen.show(at(20, process))
        assert len(asked(screen)) == 3


async def test_nothing_is_asked_in_a_pause_and_answers_are_shown() -> None:
    process = process_of(401)
    async with shown(at(0, process)) as screen:
        await screen.press("j", "p", "enter")
        await screen.show(at(30, process), detail=detail_of())
        assert "NCCL_DEBUG=INFO" in screen.text
        assert "1m00s ago" in screen.text  # the frame itself is not
        assert len(asked(screen)) == 1


async def test_values_are_shown_while_they_are_wanted() -> None:
    process = process_of(401)
    with_values = (EnvVariable("LANG", "other", "C.UTF-8"), *VARIABLES[1:])
    async with shown(at(0, process)) as screen:
        await screen.press("enter")
        await screen.show(at(1, process), detail=detail_of())
        assert "C.UTF-8" not in screen.text
        await screen.press("e")
        assert asked(screen)[-1] == wanted(hidden=True)
        assert "LANG  (being read)" in screen.text
        await screen.show(at(2, process), detail=detail_of(variables=with_values))
        assert "LANG=C.UTF-8" in screen.text
        assert "WANDB_API_KEY=" not in screen.text
        await screen.press("e")
        assert "C.UTF-8" not in screen.text
        assert asked(screen)[-1] == wanted()


async def test_another_process_is_never_shown() -> None:
    """Neither one with the number, nor the one of the page before."""
    process = process_of(401)
    async with shown(at(0, process)) as screen:
        await screen.press("enter")
        others = (
            replace(detail_of(), process=id_of(401, START - 1)),
            replace(detail_of(), process=id_of(402, START)),
        )
        for second, other in enumerate(others):
            await screen.show(at(second, process), detail=other)
            assert "being read" in screen.text
        await screen.press("t")
        stack = ProcessStack(id_of(401, START - 1), ("Thread of another",))
        await screen.show(at(3, process), stack=stack)
        assert "Thread of another" not in screen.text


async def test_the_stack_is_asked_for_once_and_gone_to() -> None:
    process = process_of(401)
    async with shown(at(0, process), size=(80, 24)) as screen:
        await screen.press("enter", "t", "t")
        assert asked(screen, Stack) == [Stack(IT, "stack of 401")]
        assert "asking py-spy" in screen.text
        lines = ("Thread 1 (idle)", *(f"    f{n} (a.py:{n})" for n in range(40)))
        await screen.show(at(1, process), stack=ProcessStack(IT, lines))
        assert screen.lines[1].strip() == "Stack", screen.text
        assert screen.lines[3].rstrip() == "      f0 (a.py:0)"
        await screen.show(at(2, process))  # it is not gone to again
        await screen.press("home")
        await screen.show(at(3, process))
        assert "train.py" in screen.lines[2]
        await screen.press("t")
        problem = 'not permitted. By hand: sudo env "PATH=$PATH" py-spy dump --pid 401'
        await screen.show(at(4, process), stack=ProcessStack(IT, problem=problem))
        assert "not permitted. By hand: sudo" in screen.text
        assert len(asked(screen, Stack)) == 2


async def test_a_process_that_ended_keeps_its_last_figures() -> None:
    process = process_of(401, origin=PLACE)
    async with shown(at(0, process)) as screen:
        await screen.press("enter")
        await screen.show(at(1, process), detail=detail_of())
        await screen.show(at(60))
        for text in ("it has ended", "10.0G", "NCCL_DEBUG=INFO", "1m01s ago", "/home/alice/llama"):
            assert text in screen.text
        gone = ProcessDetail(IT, gone=True)
        await screen.show(at(61), detail=gone)
        assert "NCCL_DEBUG=INFO" in screen.text
        await screen.press("t", "e")
        assert asked(screen) == [wanted()]
        assert asked(screen, Stack) == []
        assert screen.lines[-1].startswith(" Esc back  e values  F9 signal")
        assert section(await screen.whole_page(), "Stack") == ["  it has ended"]


async def test_a_process_that_is_not_here() -> None:
    process = process_of(401, start_time=None, command=None, elsewhere=True, user=None, state=None)
    async with shown(at(0, process)) as screen:
        await screen.press("enter", "e", "t")
        page = await screen.whole_page()
        assert "The PID may be the host's: no process here is known to be it." in page
        assert page.count("unknown: the process is not in this /proc") == 4
        assert screen.source.requests == []


async def test_an_agent_that_refuses_is_not_asked_again() -> None:
    process, why = process_of(401), "only nvidia-smi is read"
    async with shown(at(0, process)) as screen:
        await screen.press("enter")
        await screen.show(at(1, process), request="details of 402", error="of another page")
        assert "of another page" not in screen.text
        await screen.show(at(2, process), request="details of 401", error=why)
        assert (await screen.whole_page()).count(f"unknown: {why}") == 4
        await screen.show(at(30, process), at(60, process))
        assert asked(screen) == [wanted()]
        await screen.press("e", "t")
        assert asked(screen)[1:] == [wanted(hidden=True)]
        assert "asking py-spy" in screen.text
        await screen.show(at(61, process), request="stack of 401", error=why)
        assert screen.line_with(f"  {why}")
        assert "asking py-spy" not in screen.text


async def test_another_agent_is_asked_anew() -> None:
    process = process_of(401)
    async with shown(at(0, process)) as screen:
        await screen.press("enter", "t")
        await screen.show(at(1, process), request="details of 401", error="not now")
        screen.app.action_retry()
        await screen.show(at(2, process))
        assert asked(screen) == [wanted(), wanted()]
        await screen.press("t")
        assert len(asked(screen, Stack)) == 2


async def test_the_keys_are_listed() -> None:
    async with shown(at(0, process_of(401)), size=(80, 24)) as screen:
        await screen.press("enter")
        keys = "Esc back e values t stack F9 signal j k PgDn scroll"
        assert screen.lines[-1].split() == keys.split()
        await screen.press("question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
        assert "Its Python stack, by py-spy" in await screen.whole_page()
