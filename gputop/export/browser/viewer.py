"""A viewer: the process that draws the screen for one page, and what a page may say to it.

The pipes carry packets, as Textual's web driver reads and writes them: a letter for the kind, four
bytes for the length, and the content. Of what a viewer writes, only what it draws is passed on.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from gputop.errors import GputopError
from gputop.model.machine.text import printable
from gputop.output import complain

MOST_COLUMNS, MOST_LINES = 1000, 400
"""The largest window that is drawn: more than a large screen has in a small font."""
LONGEST_MESSAGE = 1 << 18
"""Bytes of a message: a pasted value may be long."""
_BEGIN = b"__GANGLION__\n"
"""The line of Textual's web driver before its packets."""
_LONGEST_PACKET, _LONGEST_ERROR = 1 << 24, 1 << 12
_TAKES, _ENDS = 10.0, 5.0
"""Seconds that a viewer has to take what is typed, and to end once its output has."""


class Window(msgspec.Struct):
    """The size of a page in cells, cut to one that a screen can have."""

    width: int
    height: int

    def __post_init__(self) -> None:
        self.width = min(max(self.width, 1), MOST_COLUMNS)
        self.height = min(max(self.height, 1), MOST_LINES)


ViewerCommand = Callable[[int, Window], Sequence[str]]
"""Returns the command that starts a viewer, for the descriptor of its door and a window."""


class Keys(msgspec.Struct, array_like=True, tag="stdin"):
    """What was typed, pasted, clicked."""

    text: str


class Resize(msgspec.Struct, array_like=True, tag="resize"):
    """Another size of the window."""

    size: Window


class PagePing(msgspec.Struct, array_like=True, tag="ping"):
    """A question that the page measures the time of."""

    text: Annotated[str, Meta(max_length=64)]


class Focus(msgspec.Struct, array_like=True, tag="focus"):
    """The page got the focus."""


class Blur(msgspec.Struct, array_like=True, tag="blur"):
    """The page lost the focus."""


PageMessage = Keys | Resize | PagePing | Focus | Blur
page_message: Callable[[str], PageMessage] = msgspec.json.Decoder(PageMessage).decode
"""Returns what a page says. ValueError, RecursionError if no page of ours says that."""


class ViewerError(GputopError):
    """A viewer that cannot be started."""


class Viewer:
    """A viewer process. Call `start` first, and `end` at last."""

    _process: asyncio.subprocess.Process
    _has_ended = False
    """Whether its output has ended."""

    async def start(self, command: ViewerCommand, door: socket.socket, window: Window) -> None:
        """Start the process, which inherits the door. ViewerError."""
        with door:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command(door.fileno(), window),
                    stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=[door.fileno()],
                )  # fmt: skip
            except OSError as error:
                raise ViewerError(f"cannot start a viewer: {error.strerror}") from None

    async def drawn(self) -> AsyncIterator[bytes]:
        """Yield what it draws, until it ends."""
        assert self._process.stdout is not None
        read = self._process.stdout.readexactly
        try:
            if await read(len(_BEGIN)) != _BEGIN:
                return
            while True:
                kind, size = await read(1), int.from_bytes(await read(4), "big")
                if size > _LONGEST_PACKET:
                    return
                content = await read(size)
                if kind == b"D":
                    yield content
        except asyncio.IncompleteReadError:
            self._has_ended = True

    async def send(self, message: PageMessage) -> None:
        """Pass on what the page says. TimeoutError if the viewer takes nothing any more."""
        if isinstance(message, Keys):
            await self._write(b"D", message.text.encode())
        elif isinstance(message, Resize):
            await self._write_meta(type="resize", **msgspec.structs.asdict(message.size))
        elif isinstance(message, Focus | Blur):
            await self._write_meta(type=type(message).__name__.lower())

    async def end(self) -> None:
        """End the process, which has nothing to save; say why it ended by itself unless it was
        quit."""
        process = self._process
        assert process.stderr is not None
        if not self._has_ended:
            process.kill()
        try:
            errors = await asyncio.wait_for(process.stderr.read(_LONGEST_ERROR), _ENDS)
            status = await asyncio.wait_for(process.wait(), _ENDS)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
            complain(f"a viewer did not end within {_ENDS:g} s: it was killed")
            return
        if status != 0 and self._has_ended:  # by itself, or by a signal that is not ours
            words = errors.decode("utf-8", "replace").strip().splitlines()[-1:]
            complain(printable(f"a viewer ended with status {status}: {''.join(words)}", 300))

    async def _write_meta(self, **content: str | int) -> None:
        await self._write(b"M", msgspec.json.encode(content))

    async def _write(self, kind: bytes, content: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(kind + len(content).to_bytes(4, "big") + content)
            await asyncio.wait_for(stdin.drain(), _TAKES)
        except (ConnectionError, RuntimeError):
            return  # it has ended, which `drawn` notices
