"""RecordingWriter: appends the frames of machines to a recording."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gputop.errors import GputopError
from gputop.files import open_folder, open_parent, reason_of
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import counted, duration, size
from gputop.recording.chunks import ChunkWriter
from gputop.recording.datafile import DataFile
from gputop.recording.days import Day, day_file, delete_days, other_days
from gputop.recording.entries import MAX_TIME, SIZE, stream_of
from gputop.recording.output import DataOutput

_SWOLLEN = 1 / 8
"""Of the room for all days, the part of a day that is large for one."""
_SET_BACK = 1.0
"""Seconds that a clock may be set back without a message."""
_SET = 60.0
"""Seconds by which a clock that is set differs from one that runs."""
_CALM = 3600.0
"""Seconds after a start, or after the clock was set, in which no day is too old: a machine may
begin with a wrong clock."""
_DAY = 86400.0


class Limits(NamedTuple):
    """How much of a recording is kept: of a host, if each has a folder."""

    keep: float = float("inf")
    """Seconds, of which whole days count: so many days with a recording are kept besides today's,
    whatever the clock says; a recording in one file has no days."""
    size: float = float("inf")
    """Bytes. Beyond them days are deleted, the oldest first, but not today's: if that alone takes
    as much, nothing is recorded until tomorrow."""

    @property
    def days(self) -> float:
        return math.ceil(self.keep / _DAY) if math.isfinite(self.keep) else self.keep


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
        hosts: int = 1,
        uptime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        """Make what is missing, except the folder of a file. `every`: seconds between two frames. A
        path that is a folder or ends with / is taken as a folder. `hosts`: how many share the file,
        of which each gets a part of its own. `uptime`: seconds that nobody sets, and that
        pass in a suspend as well. GputopError."""
        self._every, self._limits, self._say, self._clock = every, limits, say, clock
        self._uptime, self._offset = uptime, clock() - uptime()
        self._calm_until: float | None = uptime() + _CALM
        """When old days may be deleted, by `uptime`; None once that has come."""
        self._is_warned = False
        self._is_folder = path.endswith("/") or os.path.isdir(path)
        self.path = os.path.abspath(path)
        self._chunks: dict[str, ChunkWriter] = {}
        """The chunks being written, by host."""
        self._output: DataOutput | None = None
        self._name = ""
        self._room = float("inf")
        """Most bytes of the file being written, with its index."""
        self._hosts = hosts
        self._written: dict[str, int] = {}
        """Bytes of each host in the file being written; only new ones if nobody shares it."""
        self._trouble: dict[str, str] = {}
        """What was said and still holds, by host; "" for all of them."""
        try:
            self._open()
        except OSError as error:
            raise GputopError(f"cannot record to {self.path}: {reason_of(error)}") from None

    def append(self, host: str, frame: Frame) -> None:
        """Append a frame of a host. GputopError if no later one can be appended, either."""
        try:
            whose, trouble = self._append(host, frame)
        except OSError as error:
            self._chunks.clear()  # later payloads cannot build on a lost one
            whose = ""
            trouble = f"cannot write to {self.path}: {reason_of(error)}; still trying"
        if trouble is None:
            if any([self._trouble.pop("", None), self._trouble.pop(host, None)]):
                self._say(f"writing to {self.path} again")
        elif trouble != self._trouble.get(whose):
            self._say(trouble)
            self._trouble[whose] = trouble

    @property
    def is_swollen(self) -> bool:
        """Whether the file being written has so large a part of the room for all days that only
        what matters most should be added."""
        is_large = self._output is not None and self._output.taken > self._limits.size * _SWOLLEN
        return self._is_folder and is_large

    def close(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            output.close()

    def _append(self, host: str, frame: Frame) -> tuple[str, str | None]:
        """Return why nothing was written, or None, and of which host; "" for all. OSError,
        GputopError."""
        output = self._current_output()
        if output.taken >= self._room and output.taken >= self._make_room(output):
            return "", f"{self.path} {self._is_full}; nothing is recorded until tomorrow"
        written = self._written.get(host, 0)
        if self._hosts > 1 and written >= self._limits.size / self._hosts:
            return host, f"{host} has its part of --max-size: nothing more of it is recorded"
        if not 0 <= frame.time < MAX_TIME:  # no running machine's clock is there
            frame = replace(frame, time=self._clock())
        chunk = self._chunk(host, frame.time)
        position = chunk.count
        payload = chunk.add(replace(frame, interval=self._every))
        if payload is None:
            del self._chunks[host]
            return host, f"{host} reports more than is recorded at once: it is left out"
        output.add(stream_of(host), frame.time, payload, position)
        self._written[host] = written + len(payload) + 2 * SIZE
        return host, None

    def _current_output(self) -> DataOutput:
        is_due = self._is_folder and day_file(self._clock()) != self._name
        has_calmed = self._has_calmed()
        if self._output is None or is_due or not self._output.is_there:
            self._open()
        assert self._output is not None
        if has_calmed:
            self._make_room(self._output)
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
        if self._hosts > 1:
            tracks = DataFile(Path(self._output.path)).tracks
            self._written = {host: track.size for host, track in tracks.items()}
        self._make_room(self._output)

    def _make_room(self, output: DataOutput) -> float:
        """Delete old days. Return how many bytes the file being written may have."""
        self._room = self._limits.size
        if self._is_folder:
            with open_folder(self.path) as folder:
                days = other_days(folder, self._name)
                self._warn_of_size(days)
                surplus = self._surplus(days, self._limits.size - output.taken)
                delete_days(folder, surplus)
            self._room -= sum(day.size for day in days[len(surplus) :])
        elif output.taken >= self._room:
            raise GputopError(f"{self.path} {self._is_full}: give another file, or a folder")
        return self._room

    def _surplus(self, days: Sequence[Day], most: float) -> Sequence[Day]:
        """Return the oldest days, those to be deleted, and say so. `most`: bytes of the rest."""
        count, limit = 0, f"--keep {self._limits.days:g}d"
        if self._calm_until is None:
            count = int(max(0, len(days) - self._limits.days))
        left = sum(day.size for day in days[count:])
        while count < len(days) and left > most:
            left -= days[count].size
            count, limit = count + 1, f"--max-size {size(int(self._limits.size))}"
        if count:
            dates = " to ".join(dict.fromkeys((days[0].date, days[count - 1].date)))
            self._say(f"deleted {counted(count, 'day')} of {self.path}, {dates} ({limit})")
        return days[:count]

    def _warn_of_size(self, days: Sequence[Day]) -> None:
        """Say once if so many days as are to be kept will not have room."""
        limits, mean = self._limits, sum(day.size for day in days) / max(1, len(days))
        if self._is_warned or not math.isfinite(limits.days) or mean * limits.days <= limits.size:
            return
        self._is_warned = True
        fits, most = counted(int(limits.size // mean), "day"), size(int(limits.size))
        kept = f"--keep {limits.days:g}d"
        self._say(f"--max-size {most} holds about {fits} of {self.path}, not {kept}")

    def _has_calmed(self) -> bool:
        """Watch the clock; return whether the time in which no day is too old has just ended."""
        now = self._uptime()
        before, self._offset = self._offset, self._clock() - now
        if abs(self._offset - before) > _SET:
            self._calm_until = now + _CALM
        if self._calm_until is None or now < self._calm_until:
            return False
        self._calm_until = None
        return True

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


def host_writers(
    stack: ExitStack,
    path: str,
    hosts: Sequence[str],
    every: float,
    limits: Limits = NO_LIMITS,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> dict[str, RecordingWriter]:
    """Return a writer for each host, which `stack` closes: in a folder, each has a folder of its
    own with its part of the limits, so that one that reports much costs the others none of their
    days. See RecordingWriter. GputopError."""
    part, writers = limits._replace(size=limits.size / len(hosts)), dict[str, RecordingWriter]()
    for host in hosts:
        folder = f"{os.path.abspath(path)}/{_folder_of(host)}/"
        writers[host] = RecordingWriter(folder, every, part, say, clock)
        stack.callback(writers[host].close)
    return writers


def _folder_of(host: str) -> str:
    """Return the name of a host's folder, which is not hidden and stays in the folder above."""
    return f"{'_' * host.startswith('.')}{host.replace('/', '_')}"
