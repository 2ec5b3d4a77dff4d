"""Frames into payloads and back, a chunk at a time. Knows no files: memory will do as well."""

from __future__ import annotations

import operator
import zlib
from io import BytesIO
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import decode_line, encode_line
from gputop.protocol.messages import AgentMessage, Hello, hello
from gputop.protocol.split import Splitter


class Extent(NamedTuple):
    """How much a payload or a chunk is, unpacked: what it takes in memory depends on both."""

    size: int = 0
    """Bytes."""
    parts: int = 0
    """Lists and objects: each takes up to a hundred times the memory of its brackets."""
    values: int = 0
    """Commas."""

    @classmethod
    def of(cls, data: bytes) -> Extent:
        return cls(len(data), data.count(b"{") + data.count(b"["), data.count(b","))

    def plus(self, other: Extent) -> Extent:
        return Extent(*map(operator.add, self, other))

    def exceeds(self, most: Extent) -> bool:
        """Whether any of it is more."""
        return any(map(operator.gt, self, most))


MAX_FRAME = Extent(8 << 20, 1 << 17, 1 << 20)
"""The most of a frame: several thousand processes. A larger one is not written, or is a
decompression bomb."""
MAX_CHUNK = MAX_FRAME.plus(MAX_FRAME)._replace(values=60 << 20)
"""The most of a chunk: no frame is added to one that has half of it, so that any still has room."""
_HALF = MAX_FRAME._replace(values=MAX_CHUNK.values)
_MOST_FRAMES = 60
"""Frames in a chunk: few enough to reach the last at once, and to lose little if one is damaged;
enough that their inventory costs little."""
_MAX_LINES = 4096
"""Lines of a payload."""
MAX_HOST = 255
"""Characters of the name of a host: no resolver takes more."""
_MAX_VERSION = 32
"""Characters of the version of gputop."""
_MAX_HELLO = 8192
_LEVEL = 9


class ChunkWriter:
    """Makes the payloads of one chunk, one for each frame; reading one takes those before it."""

    def __init__(self, host: str) -> None:
        """`host`: the name by which the machine is found in a recording."""
        self._host = printable(host, MAX_HOST)
        self._packer = zlib.compressobj(_LEVEL)
        self._splitter = Splitter()
        self._numbers, self._extent = count(), Extent()
        self.count = 0
        """Payloads so far."""
        self.time = 0.0
        """The time of the last frame."""

    @property
    def is_full(self) -> bool:
        """Whether the next frame belongs in a new chunk."""
        return self.count >= _MOST_FRAMES or self._extent.exceeds(_HALF)

    def add(self, frame: Frame) -> bytes | None:
        """Return the payload of another frame; None if that is too large, which ends the chunk."""
        messages: list[AgentMessage] = [] if self.count else [hello(self._host)]
        messages += self._splitter.split(frame)
        lines = b"".join(encode_line(next(self._numbers), message) for message in messages)
        self.count += 1
        self.time = frame.time
        extent = Extent.of(lines)
        self._extent = self._extent.plus(extent)
        if extent.exceeds(MAX_FRAME):
            return None
        return self._packer.compress(lines) + self._packer.flush(zlib.Z_SYNC_FLUSH)


class ChunkReader:
    """Makes frames from the payloads of one chunk, from its first on."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj()
        self._assembler = Assembler()
        self.extent = Extent()
        """What was read so far."""
        self.count = 0
        """Payloads so far."""
        self.frame: Frame | None = None
        """The frame of the last payload; None if it was skipped."""

    def skip(self, payload: bytes) -> None:
        """Take in the next payload without its numbers. SourceError."""
        *lines, _ = self._lines(payload)
        for line in lines:
            self._assembler.read(line)
        self._assembler.skip()
        self.count, self.frame = self.count + 1, None

    def read(self, payload: bytes) -> Frame:
        """Return the frame of the next payload. SourceError if it does not belong to this chunk."""
        for line in self._lines(payload):
            message = self._assembler.read(line)
        if not isinstance(message, Frame):
            raise SourceError("a sample ends without its numbers")
        self.count, self.frame = self.count + 1, message
        return message

    def _lines(self, payload: bytes) -> list[bytes]:
        try:
            data = self._unpacker.decompress(payload, MAX_FRAME.size)
        except zlib.error:
            raise SourceError("a sample cannot be unpacked") from None
        extent = Extent.of(data)
        self.extent = self.extent.plus(extent)
        is_large = extent.exceeds(MAX_FRAME) or self.extent.exceeds(MAX_CHUNK)
        if is_large or self._unpacker.unconsumed_tail or data.count(b"\n") > _MAX_LINES:
            raise SourceError("a sample is too large")
        if not data:
            raise SourceError("a sample is empty")
        return list(BytesIO(data))  # not splitlines(): a carriage return is white space


def hello_of(payload: bytes) -> Hello | None:
    """Return the Hello in the first payload of a chunk, its texts harmless; None if it has none."""
    try:
        line = zlib.decompressobj().decompress(payload, _MAX_HELLO).partition(b"\n")[0]
        _, begin = decode_line(line)
    except (zlib.error, SourceError):
        return None
    if not isinstance(begin, Hello):
        return None
    host, version = printable(begin.host, MAX_HOST), printable(begin.version, _MAX_VERSION)
    return replace(begin, host=host, version=version)
