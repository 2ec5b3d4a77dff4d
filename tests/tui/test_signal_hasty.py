"""Keys that were typed before the signal dialog could be read do nothing in it."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual import events

from gputop.protocol.messages import Signal
from gputop.tui.dialogs.signal import SignalScreen
from tests.agent.driving import python_on_gpu
from tests.builders_tui import Screenful, frame_of, process_of, shown, takes_keys
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine
from tests.terminal import Terminal
from tests.tui.live import SIZES, gone, has_ended, running
from tests.tui.test_signal import answer
from tests.tui.test_signal_live import alive, confirm, sent, type_fast

GIB = 2**30


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """One GPU."""
    return machine({"gpu": {"uuid": "GPU-{i}", "memory": {"total": 80 * GIB, "used": GIB}}})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the audit log is."""
    return tmp_path / "state" / "gputop" / "signals.jsonl"


def hold(terminal: Terminal, key: bytes, *, delay: float = 0.5, every: float = 0.033) -> None:
    """A key that is held down for a second after it repeats."""
    terminal.send(key)
    pump(terminal, delay)
    for _ in range(round(1.0 / every)):
        terminal.send(key)
        pump(terminal, every)


def pump(terminal: Terminal, seconds: float) -> None:
    """Show what comes for so long."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        terminal.pump(left)


def select(terminal: Terminal, pid: int) -> None:
    """The cursor on the only process."""
    terminal.wait_for(str(pid))
    terminal.send(b"j")


@pytest.mark.system
@rest_long(("key", "size"), *zip((b"K", b"\x1b[20~"), SIZES, strict=True))
def test_what_is_typed_blindly_ends_nothing_and_what_is_read_does(
    key: bytes, size: tuple[int, int], here: Machine, log: Path
) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with running(here, size=size) as terminal:
        select(terminal, pid)
        type_fast(terminal, key, b"\t", b"\r")
        terminal.wait_for("▸[ Send SIGTERM ]")
        assert (alive(pid), sent(log)) == (True, [])
        terminal.send(b"\r")
        terminal.wait_for(lambda: has_ended(terminal, "SIGTERM"))
    assert gone(pid)


PASTE = b"\x1b[200~", b"\x1b[201~"
STREAMS = {  # one after the other on the same screen; the last one leaves the main screen
    "at once": [b"K\r"],
    "and another signal": [b"K9\r"],
    "in one paste": [b"K", PASTE[0] + b"9\r\t\r" + PASTE[1]],
    "many at once": [b"K" + b"\t\r" * 200],
    "Tab is held": [b"K", *[b"\t"] * 25, b"\r"],
    "Enter is held": [b"K", *[b"\r"] * 25],
    "a stream": [b"K", *[b"\t", b"\r"] * 25],
    "arrows": [b"K", b"\x1b[C", b"\r", b"\x1b[C", b"\r"],
    "a signal by name": [b"K", b"s", b"9", b"\r", b"\t", b"\r"],
    "with what they started": [b"K", b"d", b"\t", b"\r"],
    "twice": [b"K", b"\r", b"K", b"9", b"\r"],
    "from its page": [b"\r", b"K", b"\t", b"\r"],
}


@pytest.mark.system
@pytest.mark.long
def test_however_it_is_typed(here: Machine, log: Path) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with running(here) as terminal:
        select(terminal, pid)
        for name, stream in STREAMS.items():
            type_fast(terminal, *stream)
            terminal.wait_for("▸[ Send SIGTERM ]")
            terminal.send(b"\x1b")
            terminal.wait_for(lambda: "Cancel" not in terminal.text)
            assert (alive(pid), sent(log)) == (True, []), name


@pytest.mark.system
@rest_long(
    ("delay", "every"),
    (0.25, 0.033),  # as Windows, X and macOS have it
    (0.5, 0.04),
    (0.66, 0.09),
)
def test_a_held_key_does_nothing(delay: float, every: float, here: Machine, log: Path) -> None:
    """From before the dialog is there: neither the first key nor those that repeat."""
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with running(here) as terminal:
        select(terminal, pid)
        for key in (b"K", b"\r", b"9"):
            terminal.send(b"K")
            hold(terminal, key, delay=delay, every=every)
            terminal.wait_for("[ Send SIG")
            assert "[ Send SIGTERM ]" in terminal.text
            assert (alive(pid), sent(log)) == (True, [])
            terminal.send(b"\x1b")
            terminal.wait_for(lambda: "Cancel" not in terminal.text)


@pytest.mark.system
def test_enter_that_is_held_sends_one_signal_and_no_other(here: Machine, log: Path) -> None:
    """The first one is meant; SIGKILL, which is offered at once, is not, nor is the next dialog."""
    pid = here.spawn("stub", ["python", "stub.py"], used=GIB, manner="stubborn")
    with running(here) as terminal:
        select(terminal, pid)
        terminal.send(b"K")
        terminal.wait_for("▸[ Send SIGTERM ]")
        hold(terminal, b"\r")
        terminal.wait_for("▸[ Close ]  [ SIGKILL to 1 ]")
    assert alive(pid)
    [line] = map(json.loads, log.read_text().splitlines())
    assert (line["signal"], line["verdict"]) == ("SIGTERM", "ignored")


PASTED = [b"\r", b"9\r", b"9\r\r", b"\t\r", b"15\r9\r", b"python train.py\r", b"kill 9\rkill\t\r"]
PASTES = [PASTE[0] + text + PASTE[1] for text in PASTED] + PASTED[1:]


@pytest.mark.system
@rest_long("pastes", [PASTE[0] + PASTED[1] + PASTE[1], PASTED[1]], PASTES)
def test_what_is_pasted_into_it_does_nothing(pastes: list[bytes], here: Machine, log: Path) -> None:
    """With the dialog open and Send under Enter; also by a terminal that does not mark pastes."""
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with running(here) as terminal:
        select(terminal, pid)
        for paste in pastes:
            terminal.send(b"K")
            terminal.wait_for("▸[ Send SIGTERM ]")
            terminal.send(paste)
            terminal.wait_for("keys work in a moment")
            terminal.wait_for("[ Send SIGTERM ]")
            assert "▸[ Cancel ]" in terminal.text, paste
            assert (alive(pid), sent(log)) == (True, []), paste
            terminal.send(b"\x1b")
            terminal.wait_for(lambda: "Cancel" not in terminal.text)
        terminal.send(b"K")
        terminal.wait_for("▸[ Send SIGTERM ]")
        terminal.send(b"9")
        terminal.wait_for("▸[ Send SIGKILL ]")
        terminal.send(b"\r")
        terminal.wait_for(lambda: has_ended(terminal, "SIGKILL"))
    assert gone(pid)


@pytest.mark.system
@rest_long("typed", b"K\r", b"K9\r", b"K\t\r", b"\rK\r")
def test_keys_that_were_there_before_the_dialog_was_drawn(
    typed: bytes, here: Machine, log: Path
) -> None:
    """gputop finds them in the buffer of the terminal, together with the key that opens it."""
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with running(here) as terminal:
        select(terminal, pid)
        terminal.wait_for("▸")
        terminal.signal(signal.SIGSTOP)
        terminal.wait_stopped()
        terminal.send(typed)
        terminal.signal(signal.SIGCONT)
        terminal.wait_for("▸[ Send SIGTERM ]")
        assert (alive(pid), sent(log)) == (True, [])
        terminal.send(b"\r")
        terminal.wait_for(lambda: has_ended(terminal, "SIGTERM"))
    assert gone(pid)


@pytest.mark.system
@pytest.mark.long
def test_keys_that_waited_while_gputop_was_stopped(here: Machine, log: Path) -> None:
    """It finds them with the time already over."""
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with running(here) as terminal:
        select(terminal, pid)
        for typed in (b"\r", b"\t\r", b"9\r", b"\t\r" * 8):
            terminal.send(b"K")
            terminal.wait_for("SIGTERM to 1 process ")
            assert "[ Send" not in terminal.text
            terminal.signal(signal.SIGSTOP)
            terminal.wait_stopped()
            terminal.send(typed)
            pump(terminal, 0.5)
            terminal.signal(signal.SIGCONT)
            terminal.wait_for("[ Send SIGTERM ]")
            assert (alive(pid), sent(log)) == (True, [])
            terminal.send(b"\x1b")
            terminal.wait_for(lambda: "Cancel" not in terminal.text)


@pytest.fixture
def nobodys(here: Machine) -> Iterator[int]:
    """A process of somebody else."""
    code = "import os, sys; os.setuid(65534); print(flush=True); sys.stdin.read()"
    with python_on_gpu(here, code) as (program, _):
        yield program.pid


@pytest.mark.system
@needs_root
@pytest.mark.long
def test_the_word_is_not_typed_blindly(here: Machine, nobodys: int, log: Path) -> None:
    with running(here) as terminal:
        select(terminal, nobodys)
        type_fast(terminal, b"K", b"\t", *(bytes([byte]) for byte in b"kill"), b"\t", b"\r")
        terminal.wait_for("[ Send SIGTERM ]")
        assert (alive(nobodys), sent(log)) == (True, [])
        confirm(terminal)
        terminal.wait_for(lambda: sent(log) == [nobodys])


# By a clock that goes as long as it takes


def orders(screen: Screenful) -> int:
    """How many signals were sent."""
    return sum(
        isinstance(request, Signal) and request.number > 0 for request in screen.source.requests
    )


async def type_ahead(screen: Screenful, *keys: str) -> None:
    """Keys, with no time between what is shown and them."""
    for key in keys:
        screen.app.post_message(events.Key(key, key if len(key) == 1 else None))
    await screen.pilot.pause()
    while screen.app._at_work:
        await screen.pilot.pause()


async def test_an_offer_that_comes_later_takes_no_key_that_was_under_way() -> None:
    """The check takes a while; then SIGKILL is offered where there was nothing."""
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "f9")
        assert isinstance(screen.app.screen, SignalScreen)
        slow = asyncio.ensure_future(answer(screen))
        while "Cancel" not in screen.text or takes_keys(screen.app.screen):
            await asyncio.sleep(0)
        await type_ahead(screen, "tab", "enter", "tab", "enter")
        await slow
        assert ("▸[ Send SIGTERM ]" in screen.text, orders(screen)) == (True, 0)
        await screen.press("enter")
        assert orders(screen) == 1
        slow = asyncio.ensure_future(answer(screen, "ignored"))
        while takes_keys(screen.app.screen):
            await asyncio.sleep(0)
        await type_ahead(screen, "tab", "enter")
        await slow
        assert ("[ SIGKILL to 1 ]" in screen.text, orders(screen)) == (True, 1)
        await screen.press("tab", "enter")
        assert orders(screen) == 2


async def test_escape_is_never_too_soon() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j")
        await type_ahead(screen, "f9", "enter", "q", "escape")
        assert not isinstance(screen.app.screen, SignalScreen)
        assert orders(screen) == 0


async def test_what_could_not_be_looked_at_is_said_and_not_signalled() -> None:
    words = "it could not be checked: /proc does not show it; nothing was sent"
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "f9")
        await answer(screen, "unknown", words=words)
        assert words in screen.text
        assert "Send" not in screen.text
        await screen.press("tab", "enter")
        assert orders(screen) == 0
