"""Keeps the last quarter of an hour of a stream, as compressed lines.

A frame of 200 processes takes 100 kB as objects and 25 kB as lines, which zlib shrinks to a fifth:
15 minutes of objects would take more memory than all the rest of gputop.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from io import BytesIO

from gputop.model.machine.frame import Frame
from gputop.protocol.assemble import Assembler
from gputop.protocol.messages import Preview, Reply

SECONDS = 900.0
MOST_BYTES = 16 << 20
"""Approximate bytes of memory: with a thousand processes, less than a quarter of an hour."""
_FRAMES = 32
"""Frames in a batch. A batch is read as a whole, so a step back costs this many frames."""
_BATCH_BYTES, _BATCH_ROWS = 1 << 20, 1 << 16
"""Bytes of lines in a batch, and rows of its frames, for the same reason."""
_MOST_UNPACKED = 8 << 20
"""Bytes of lines in a batch, with those that make no frame. A batch with more is of no use."""
_LINE, _FACT, _ROW, _GPU = 100, 500, 80, 32
"""Approximate bytes of a line beyond its own, of an object of facts, which readers keep, and of a
row that a reader knows; and how many rows a GPU counts for."""
_LEVEL = 1
"""zlib's level. The next levels take twice the time, for four fifths of the size."""


class _Batch:
    """Lines from a Sample on, with the reader's state that they need."""

    def __init__(self, reader: Assembler) -> None:
        self.reader = reader
        self.times: list[float] = []
        self.parts: list[bytes] = []
        """The lines, compressed."""
        self.unpacked = 0
        """Bytes of the lines, uncompressed."""
        self.rows = 0
        """Rows of the frames."""
        self.size = _ROW * reader.rows
        """Approximate bytes that it takes, with the facts that later readers keep of its lines."""

    @property
    def is_full(self) -> bool:
        return (
            len(self.times) >= _FRAMES or self.unpacked >= _BATCH_BYTES or self.rows >= _BATCH_ROWS
        )

    def add(self, line: bytes, part: bytes, frame: Frame | None) -> None:
        """Add a line, compressed to `part`, and the frame that it makes."""
        self.parts.append(part)
        self.unpacked += len(line)
        self.size += len(part) + _LINE
        if frame is None:
            self.size += len(line) + _FACT * line.count(b"{")
        elif not isinstance(frame, Preview):
            self.times.append(frame.time)
            self.rows += len(frame.processes) + _GPU * len(frame.gpus)


class RecentFrames:
    """Frames of one agent by time. One thread adds, any may read."""

    def __init__(self, seconds: float = SECONDS, most: int = MOST_BYTES) -> None:
        """`most`: bytes. Somewhat more than both limits may be kept."""
        self._seconds, self._most = seconds, most
        self._lock = threading.Lock()
        self._batches: list[_Batch] = []
        self._packer = zlib.compressobj(_LEVEL)
        """The compressor of the last batch."""
        self._read: tuple[_Batch, list[Frame]] | None = None
        """The batch that was read last: stepping reads the same one repeatedly."""

    def add(self, line: bytes, frame: Frame | Reply | None, reader: Assembler) -> None:
        """Add a line, unless it is a Reply, and the frame that it makes. `reader` has just read
        it."""
        if isinstance(frame, Reply):
            return
        time = None if frame is None or isinstance(frame, Preview) else frame.time
        with self._lock:
            if time is not None and self._batches and time < self._batches[-1].times[-1]:
                self._batches.clear()  # the machine's clock was put back
            if not self._batches or (time is not None and self._batches[-1].is_full):
                if time is None:
                    return
                self._begin(time, reader.fork())
            part = self._packer.compress(line) + self._packer.flush(zlib.Z_SYNC_FLUSH)
            self._batches[-1].add(line, part, frame)
            if self._batches[-1].unpacked > _MOST_UNPACKED:
                self._batches.clear()  # lines without end that make no frame: begin anew

    @property
    def size(self) -> int:
        """Approximate bytes that are taken."""
        return sum(batch.size for batch in self._batches)

    @property
    def times(self) -> list[float]:
        """When the frames were made, oldest first; seconds since the epoch."""
        with self._lock:
            return [time for batch in self._batches for time in batch.times]

    def at(self, when: float) -> Frame | None:
        """Return the last frame that is not after a time; None before the first."""
        with self._lock:
            batches = [batch for batch in self._batches if batch.times[0] <= when]
        if not batches:
            return None
        return [frame for frame in self._frames_of(batches[-1]) if frame.time <= when][-1]

    def frames(self, since: float, until: float) -> Iterator[Frame]:
        """Yield the frames from a time to another, both included."""
        with self._lock:
            batches = [batch for batch in self._batches
                      if batch.times[0] <= until and batch.times[-1] >= since]  # fmt: skip
        for batch in batches:
            yield from (frame for frame in self._frames_of(batch) if since <= frame.time <= until)

    def _begin(self, time: float, reader: Assembler) -> None:
        """Begin another batch, and drop batches that are too old or too much."""
        self._read, self._packer = None, zlib.compressobj(_LEVEL)
        while self._batches and (
            self._batches[0].times[-1] < time - self._seconds or self.size > self._most
        ):
            del self._batches[0]
        self._batches.append(_Batch(reader))

    def _frames_of(self, batch: _Batch) -> list[Frame]:
        with self._lock:
            content, count = b"".join(batch.parts), len(batch.times)
            if self._read is not None and self._read[0] is batch and len(self._read[1]) == count:
                return self._read[1]
        reader = batch.reader.fork()
        # Not splitlines(): a carriage return is white space in a message.
        lines = BytesIO(zlib.decompressobj().decompress(content))
        made = (reader.read_again(line) for line in lines)
        frames = [f for f in made if f is not None and not isinstance(f, Preview)]
        self._read = batch, frames
        return frames
