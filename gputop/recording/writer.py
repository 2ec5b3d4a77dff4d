"""RecordingWriter: appends the frames of machines to a recording."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from gputop.errors import GputopError
from gputop.files import open_folder, open_parent, reason_of
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import duration, size
from gputop.recording.chunks import ChunkWriter
from gputop.recording.days import day_file, delete_days
from gputop.recording.entries import MAX_TIME, stream_of
from gputop.recording.output import DataOutput

_SET_BACK = 1.0
"""Seconds that a clock may be set back without a message."""


class Limits(NamedTuple):
    """How much of a recording is kept."""

    keep: float = float("inf")
    """Seconds for which a day is kept after its end; a recording in one file has no days."""
    size: float = float("inf")
    """Bytes. Beyond them days are deleted, the oldest first, but not today's: if that alone takes
    as much, nothing is recorded until tomorrow."""


NO_LIMITS = Limits()


class RecordingWriter:
    """Appends frames to a recording, in one file or in a folder with a file a day.

    Each frame can be read as soon as it is appended. If that fails, as on a full disk, the frame is
    lost, `say` gets a line about it, and the next one is tried; another line says if that works.
    """

    def __init__(
        self,
        path: str,
        every: float,
        limits: Limits = NO_LIMITS,
        say: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make what is missing, except the folder of a file. `every`: seconds between two frames. A
        path that is a folder or ends with / is taken as a folder. GputopError."""
        self._every, self._limits, self._say, self._clock = every, limits, say, clock
        self._is_folder = path.endswith("/") or os.path.isdir(path)
        self.path = os.path.abspath(path)
        self._chunks: dict[str, ChunkWriter] = {}
        """The chunks being written, by host."""
        self._output: DataOutput | None = None
        self._name = ""
        self._room = float("inf")
        """Most bytes of the file being written, with its index."""
        self._trouble: str | None = None
        try:
            self._open()
        except OSError as error:
            raise GputopError(f"cannot record to {self.path}: {reason_of(error)}") from None

    def append(self, host: str, frame: Frame) -> None:
        """Append a frame of a host. GputopError if no later one can be appended, either."""
        try:
            trouble = self._append(host, frame)
        except OSError as error:
            self._chunks.clear()  # later payloads cannot build on a lost one
            trouble = f"cannot write to {self.path}: {reason_of(error)}; still trying"
        if trouble != self._trouble:
            self._say(trouble or f"writing to {self.path} again")
        self._trouble = trouble

    def close(self) -> None:
        """Close the files."""
        if self._output is not None:
            self._output.close()
            self._output = None

    def _append(self, host: str, frame: Frame) -> str | None:
        """Return why nothing was written, or None. OSError, GputopError."""
        output = self._current_output()
        if output.taken >= self._room and output.taken >= self._make_room(output):
            return f"{self.path} {self._is_full}; nothing is recorded until tomorrow"
        if not 0 <= frame.time < MAX_TIME:  # no running machine's clock is there
            frame = replace(frame, time=self._clock())
        chunk = self._chunk(host, frame.time)
        position = chunk.count
        payload = chunk.add(replace(frame, interval=self._every))
        output.add(self._every, stream_of(host), frame.time, payload, position)
        return None

    def _current_output(self) -> DataOutput:
        is_due = self._is_folder and day_file(self._clock()) != self._name
        if self._output is None or is_due or not self._output.is_there:
            self._open()
        assert self._output is not None
        return self._output

    def _open(self) -> None:
        self.close()
        self._chunks.clear()
        if self._is_folder:
            folder, self._name = open_folder(self.path, make=True), day_file(self._clock())
        else:
            folder, self._name = open_parent(self.path)
        with folder:
            if self._is_folder:
                folder.check_ours()
            self._output = DataOutput(folder, self._name)
        self._make_room(self._output)

    def _make_room(self, output: DataOutput) -> float:
        """Delete old days. Return how many bytes the file being written may have."""
        self._room = self._limits.size
        if self._is_folder:
            with open_folder(self.path) as folder:
                before = self._clock() - self._limits.keep
                most = self._limits.size - output.taken
                self._room -= delete_days(folder, self._name, before, most)
        elif output.taken >= self._room:
            raise GputopError(f"{self.path} {self._is_full}: give another file, or a folder")
        return self._room

    @property
    def _is_full(self) -> str:
        return f"has reached --max-size {size(int(self._limits.size))}"

    def _chunk(self, host: str, when: float) -> ChunkWriter:
        """Return the chunk that the next frame of a host belongs to, which has room for it."""
        chunk = self._chunks.get(host)
        back = 0.0 if chunk is None else chunk.time - when
        if back > _SET_BACK:
            self._say(
                f"the clock of {host} was set back by {duration(back)}: that time is there twice"
            )
        if chunk is None or chunk.is_full or back > 0:  # chunks are read forward in time
            chunk = self._chunks[host] = ChunkWriter(host)
        return chunk
