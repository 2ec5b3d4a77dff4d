"""Recording: what there is of each host, and the frame of an instant."""

from __future__ import annotations

import heapq
import os
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import chain, islice
from math import inf
from operator import itemgetter
from pathlib import Path

from msgspec.structs import replace

from gputop.errors import GputopError, SourceError
from gputop.files import reason_of
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import counted, date_time, printable
from gputop.recording.chunks import MAX_CHUNK, ChunkReader
from gputop.recording.datafile import MAX_HOSTS, Chunk, DataFile, Track
from gputop.recording.days import SUFFIX

MAX_LOSS_CHARS = 500
"""Characters of what is said of a loss."""
_MOST_READERS = 4
_MOST_KEPT = MAX_CHUNK.size
"""Bytes, unpacked, of the chunks whose readers are kept: the last one is kept however large."""
_MOST_DAMAGE = 1000
"""Chunks of which it is told what cannot be read."""
MOST_FILES = 10_000
_MOST_SAMPLES = 1 << 23
"""Of all files together: a year of three machines, a sample every ten seconds."""


_ChunkKey = tuple[Path, str, int]
"""Which chunk it is: its file, its host, and the number of its first sample."""


class Recording:
    """A recording, a file or a folder, as it is now: it may still be written.

    Its content is not trusted: texts and numbers are made harmless, and what is kept of it has a
    bound. Hosts have the names by which they were asked for. For one thread at a time.
    """

    def __init__(self, path: Path, files: Sequence[Path] | None = None) -> None:
        """GputopError if it is none, or cannot be read; `files`: read only these data files of it,
        which may all be none."""
        self.path = path
        self._readers: OrderedDict[_ChunkKey, ChunkReader] = OrderedDict()
        self._damage: dict[_ChunkKey, tuple[int, str]] = {}
        """The first of its payloads that cannot be read, and what is lost with it, in words."""
        self._files: list[DataFile] = []
        self._unreadable: list[str] = []
        """Why files and hosts are left out, in words."""
        self._open_files(data_files(self.path) if files is None else files)
        if not self._files and files is None:
            what = "has no recordings" if self.path.is_dir() else "is not a recording"
            nothing = f"{self.path} {what}: gputop record makes one"
            raise GputopError((*self.losses, nothing)[0])
        hosts = dict.fromkeys(host for file in self._files for host in file.tracks)
        self.hosts = tuple(islice(hosts, MAX_HOSTS))
        """The machines that it has samples of."""
        if len(hosts) > MAX_HOSTS:
            self._unreadable.append(f"hosts beyond {MAX_HOSTS} are left out")

    def _open_files(self, paths: Sequence[Path]) -> None:
        """Open data files, the newest first, until there are too many."""
        left, complaint = _MOST_SAMPLES, f"{self.path} has too much to be read at once"
        for number, path in enumerate(reversed(paths)):
            if left < 0 or number >= MOST_FILES:
                self._unreadable.append(f"{complaint}: the oldest files are left out")
                break
            try:
                file = DataFile(path)
            except OSError as error:
                self._unreadable.append(f"{path} cannot be read: {reason_of(error)}")
            except SourceError as error:
                self._unreadable.append(str(error))
            else:
                if file.is_recording:
                    self._files.insert(0, file)
                left -= sum(len(track.times) for track in file.tracks.values())

    @property
    def losses(self) -> tuple[str, ...]:
        """What is cut or damaged, in words, as far as it is known: damage within samples is noticed
        when they are read."""
        losses = chain(
            self._unreadable,
            (loss for file in self._files for loss in file.losses),
            islice((words for _, words in self._damage.values()), _MOST_DAMAGE),
            ["further samples cannot be read"] if len(self._damage) > _MOST_DAMAGE else [],
        )
        return tuple(printable(loss, MAX_LOSS_CHARS) for loss in losses)  # others name the files

    def span(self, host: str) -> tuple[float, float]:
        """Return the times of the first and the last sample of a host, seconds since the epoch."""
        tracks = self._tracks(host)
        return min(track.times[0] for track in tracks), max(track.times[-1] for track in tracks)

    def times(self, host: str) -> Sequence[float]:
        times = array("d")
        for track in self._tracks(host):
            in_order = not times or times[-1] <= track.times[0]
            times.extend(track.times)
            if not in_order:
                times = array("d", sorted(times))
        return times

    def at(self, host: str, when: float) -> Frame | None:
        """Return the last frame of a host that is not after `when`; None if there is none."""
        return next(self.frames(host, until=when, newest_first=True), None)

    def frames(
        self, host: str, since: float = -inf, until: float = inf, *, newest_first: bool = False
    ) -> Iterator[Frame]:
        """Yield the frames of a host, both ends included. Damaged ones are left out, and are among
        the losses afterwards."""
        samples = []
        for track in self._tracks(host):
            numbers = range(bisect_left(track.times, since), bisect_right(track.times, until))
            samples.append(_samples(track, numbers[::-1] if newest_first else numbers))
        for _, track, number in heapq.merge(*samples, key=itemgetter(0), reverse=newest_first):
            frame = self._frame(host, track, number)
            if frame is not None:
                yield frame

    def _tracks(self, host: str) -> list[Track]:
        return [file.tracks[host] for file in self._files if host in file.tracks]

    def _frame(self, host: str, track: Track, number: int) -> Frame | None:
        """Return the frame of a sample; None if it is damaged."""
        chunk = track.chunk(number)
        key = track.file.path, host, chunk.first
        damage = self._damage.get(key)
        if damage is not None and chunk.wanted.position >= damage[0]:
            return None
        reader = self._reader(key, chunk.wanted.position)
        try:
            frame = _read(reader, track.file, chunk)
        except (SourceError, OSError) as error:
            del self._readers[key]
            if len(self._damage) <= _MOST_DAMAGE:
                self._damage[key] = reader.count, _damage(host, track, chunk, reader.count, error)
            return None
        alone = len(self.hosts) == 1 and frame.host.name == host
        return frame if alone else replace(frame, host=replace(frame.host, requested_name=host))

    def _reader(self, key: _ChunkKey, position: int) -> ChunkReader:
        """Return the kept reader of a chunk, or a new one if it is beyond the position."""
        reader = self._readers.pop(key, None)
        if reader is None or reader.count > position + 1:
            reader = ChunkReader()
        self._readers[key] = reader
        while len(self._readers) > 1 and self._keeps_too_much():
            self._readers.popitem(last=False)
        return reader

    def _keeps_too_much(self) -> bool:
        kept = sum(reader.extent.size for reader in self._readers.values())
        return len(self._readers) > _MOST_READERS or kept > _MOST_KEPT


def _read(reader: ChunkReader, file: DataFile, chunk: Chunk) -> Frame:
    """Return the frame at the wanted position of a chunk, which the reader must not have passed.
    SourceError, OSError."""
    position = chunk.wanted.position
    if entries := chunk.entries[reader.count :]:
        with file.open() as opened:
            for entry in entries:
                take_in = reader.read if entry.position == position else reader.skip
                take_in(file.payload(opened.fileno(), entry))
    if reader.frame is None or reader.count <= position:
        raise SourceError("samples before it are missing")
    return reader.frame


def _damage(host: str, track: Track, chunk: Chunk, position: int, error: Exception) -> str:
    """Say that a chunk cannot be read, from the payload at `position` on."""
    entry = chunk.entries[position] if position < len(chunk.entries) else chunk.wanted
    samples = counted(track.count_rest(chunk.first + position), "sample")
    since = date_time(entry.time)
    return f"{samples} of {host} from {since} on cannot be read: {reason_of(error)}"


def data_files(path: Path) -> list[Path]:
    """Return the data files of a recording in the order of their days: those in a folder, and in
    its folders of hosts. GputopError."""
    try:
        if not path.is_dir():
            return [path]
        return nlargest(MOST_FILES + 1, _days_in(path), key=lambda day: day.name)[::-1]
    except OSError as error:
        raise GputopError(f"{path} cannot be read: {reason_of(error)}") from None


def _days_in(folder: Path, is_host: bool = False) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                yield folder / entry.name
            elif not is_host and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    yield from _days_in(folder / entry.name, is_host=True)


def _samples(track: Track, numbers: range) -> Iterator[tuple[float, Track, int]]:
    return ((track.times[number], track, number) for number in numbers)
