"""What is typed, as the event loop reads it."""

from __future__ import annotations

import asyncio
import os
import pty
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual import events
from textual.message import Message

from gputop.tui.terminal.background import AnswerFilter, Background, can_be_asked, is_light_colour
from gputop.tui.terminal.keyboard import Keyboard
from tests.conftest import rest_long

pytestmark = pytest.mark.system


class Typist:
    """A keyboard, and the other end of its terminal."""

    def __init__(self, master: int, slave: int, asks: bool) -> None:
        self.master = master
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.keyboard = Keyboard(slave, self.messages.put_nowait, self.gone.set, asks)

    def type(self, typed: bytes) -> None:
        os.write(self.master, typed)

    async def key(self) -> str:
        message = await asyncio.wait_for(self.messages.get(), 10)
        assert isinstance(message, events.Key)
        return message.key


@asynccontextmanager
async def typist(asks: bool = False) -> AsyncIterator[Typist]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    here = Typist(master, slave, asks)
    try:
        yield here
    finally:
        here.keyboard.close()
        os.close(slave)
        if not here.gone.is_set():
            os.close(master)


async def test_keys_come_in_their_order() -> None:
    async with typist() as here:
        here.type(b"a\x1b[B\x1b[Aq" + "é".encode())
        assert [await here.key() for _ in range(5)] == ["a", "down", "up", "q", "é"]


@pytest.mark.parametrize("cut", [1, 2])
async def test_a_sequence_in_pieces_is_one_key(cut: int) -> None:
    async with typist() as here:
        sequence = b"\x1b[B"
        here.type(sequence[:cut])
        while here.keyboard._clock is None:
            await asyncio.sleep(0)
        here.type(sequence[cut:])
        assert await here.key() == "down"
        assert here.messages.empty()


async def test_escape_is_a_key_when_nothing_follows() -> None:
    async with typist() as here:
        here.type(b"\x1b")
        assert await here.key() == "escape"
        here.type(b"j")
        assert await here.key() == "j"


async def test_what_is_no_text_is_shown_as_such() -> None:
    async with typist() as here:
        here.type(b"\xff")
        assert await here.key() == "replacement_character"


async def test_a_terminal_that_hangs_up_is_told_once() -> None:
    async with typist() as here:
        os.close(here.master)
        await asyncio.wait_for(here.gone.wait(), 10)
        here.gone.clear()
        await asyncio.sleep(0)
        assert not here.gone.is_set()
        here.gone.set()


async def test_nothing_is_read_after_the_end() -> None:
    async with typist() as here:
        here.keyboard.close()
        here.type(b"a")
        await asyncio.sleep(0)
        assert here.messages.empty()


# --- whether the background is light -------------------------------------------------------------

WHITE, NEARLY_BLACK = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\", "\x1b]11;rgb:1e/1e/1e\x07"


@pytest.mark.parametrize(
    ("colour", "light"),
    [
        ("ffff/ffff/ffff", True), ("fd/f6/e3", True), ("0/0/0", False), ("0000/2b2b/3636", False),
        ("8/8/8", True), ("6/6/6", False), ("ff/ff/ff/80", True),
    ],
)  # fmt: skip
def test_what_is_easier_to_read_in_black_is_light(colour: str, light: bool) -> None:
    assert is_light_colour(colour) is light


@pytest.mark.parametrize(
    ("term", "asked"),
    [
        ("xterm-256color", True), ("xterm-kitty", True), ("screen.xterm-256color", True),
        ("tmux-256color", True), ("linux", False), ("vt100", False), ("vt220", False),
        ("dumb", False), ("", False), ("eterm-color", False),
    ],
)  # fmt: skip
def test_only_a_terminal_that_does_not_print_the_question_is_asked(term: str, asked: bool) -> None:
    assert can_be_asked({"TERM": term}) is asked
    assert not can_be_asked({"TERM": term, "NO_COLOR": "1"})


@pytest.mark.parametrize("answer", [WHITE, NEARLY_BLACK])
def test_an_answer_is_taken_out_of_the_keys_wherever_it_is_cut(answer: str) -> None:
    for at in range(1, len(answer)):
        keys = AnswerFilter()
        first, none = keys.feed("j" + answer[:at], is_due=True)
        second, light = keys.feed(answer[at:] + "\x1b[Bq", is_due=True)
        assert (first + second, none, light) == ("j\x1b[Bq", None, answer == WHITE)
        assert not keys.held


@pytest.mark.parametrize(
    "typed", ["q", "\x1b[B", "\x1b]", "\x1b]11;rgb:ff", "\x1bj", "\x1b[200~11;rgb:1/2/3\x1b[201~"]
)
def test_no_key_is_swallowed(typed: str) -> None:
    for at in range(len(typed) + 1):
        keys = AnswerFilter()
        taken = [keys.feed(part, is_due=True)[0] for part in (typed[:at], typed[at:])]
        assert "".join(taken) + keys.release() == typed


async def test_an_answer_among_keys_is_told_once_and_the_keys_go_on() -> None:
    async with typist(asks=True) as here:
        here.type(f"j{WHITE}k".encode())
        background = await here.messages.get()
        assert isinstance(background, Background)
        assert background.is_light
        assert [await here.key() for _ in range(2)] == ["j", "k"]
        here.type(f"{NEARLY_BLACK}q".encode())
        assert await here.key() == "q"


async def test_an_answer_that_nobody_asked_for_is_no_key() -> None:
    async with typist() as here:
        here.type(f"{WHITE}\x1b[Bq".encode())
        assert [await here.key() for _ in range(2)] == ["down", "q"]


@rest_long("typed", "\x1b", "\x1b]1")
async def test_what_begins_like_an_answer_is_keys_after_all(typed: str) -> None:
    async with typist(asks=True) as here:
        here.type(typed.encode())
        keys = {"\x1b": ["escape"], "\x1b]1": ["right_square_bracket", "1"]}[typed]
        assert [await here.key() for _ in keys] == keys
