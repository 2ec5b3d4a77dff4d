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

from gputop.tui.terminal.keyboard import Keyboard

pytestmark = pytest.mark.system


class Typist:
    """A keyboard, and the other end of its terminal."""

    def __init__(self, master: int, slave: int) -> None:
        self.master = master
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.keyboard = Keyboard(slave, self.messages.put_nowait, self.gone.set)

    def type(self, typed: bytes) -> None:
        os.write(self.master, typed)

    async def key(self) -> str:
        message = await asyncio.wait_for(self.messages.get(), 10)
        assert isinstance(message, events.Key)
        return message.key


@asynccontextmanager
async def typist() -> AsyncIterator[Typist]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    here = Typist(master, slave)
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
