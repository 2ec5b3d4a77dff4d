"""One data file with its index, as it is read."""

from __future__ import annotations

import fcntl
import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from io import FileIO
from itertools import count, islice, takewhile
from pathlib import Path
from typing import NamedTuple

from gputop.errors import SourceError
from gputop.model.machine.text import counted
from gputop.protocol.versions import SPOKEN
from gputop.recording.chunks import hello_of
from gputop.recording.entries import (
    MAGIC,
    MAX_ENTRIES,
    SIZE,
    Entries,
    IndexEntry,
    find_entries,
    stream_of,
)
from gputop.trust import open_regular

INDEX = ".index"
"""What the name of an index adds to that of its data file."""
SUMS = ".sums"
"""What the name of its sums (sums.py) adds to it."""
_MAX_INDEX = MAX_ENTRIES * SIZE
MAX_HOSTS = 1000
"""Hosts of a recording, as many as -H takes; others are left out."""
_MAX_NAMES = 100
"""Chunks that are read to find the name of a host."""
_HEAD = 8192
"""Bytes of a payload that are read for that."""


class Chunk(NamedTuple):
    """What must be read for one sample: its chunk, up to it."""

    first: int
    """Number of its first sample, in the order of writing."""
    entries: list[IndexEntry]
    """From the first payload to the wanted one; fewer if some are missing."""
    wanted: IndexEntry


class Track:
    """The samples of one host in one file, numbered by their time."""

    def __init__(self, file: DataFile, rows: Sequence[int], entries: Entries) -> None:
        """`rows`: which of the Entries are this host's, in the order of writing."""
        self.file, self._rows, self._entries = file, rows, entries
        whole = entries.times.tolist()
        times = whole if len(rows) == len(whole) else [whole[row] for row in rows]
        self._order: Sequence[int] = range(len(rows))
        in_order = sorted(times)
        if times != in_order:  # a clock was set back
            self._order = sorted(self._order, key=times.__getitem__)
        self.times = array("d", in_order)
        """The times of all samples, sorted."""

    @property
    def size(self) -> int:
        """Bytes of its records and of their part of the index."""
        return sum(self._entries.lengths[row] + 2 * SIZE for row in self._rows)

    def chunk(self, number: int) -> Chunk:
        """Return what must be read for a sample."""
        last = self._order[number]
        wanted = self._entries[self._rows[last]]
        first = last - wanted.position
        entries = [self._entries[row] for row in self._rows[max(0, first) : last + 1]]
        whole = takewhile(lambda pair: pair[0] == pair[1].position, zip(count(), entries))
        return Chunk(first, [entry for _, entry in whole] if first >= 0 else [], wanted)

    def count_rest(self, row: int) -> int:
        """Return how many samples of its chunk there are from a row on."""
        following = self._rows[max(0, row + 1) :]
        return 1 + sum(1 for _ in takewhile(lambda row: self._entries[row].position, following))


class DataFile:
    """One data file with its index. OSError if it cannot be read, SourceError if another version of
    gputop has written it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.losses: list[str] = []
        """What is cut or damaged, in words."""
        with self.open() as file:
            descriptor = file.fileno()
            index = _read_index(path)  # first: records appended meanwhile are found in the data
            self._size = os.fstat(descriptor).st_size
            read = partial(os.pread, descriptor)
            self.is_recording = MAGIC.startswith(read(len(MAGIC), 0))
            """Whether it looks like a recording; so does every beginning of one, even empty."""
            entries, damaged, missing = find_entries(index, self._size, read)
            self.tracks = self._find_tracks(descriptor, entries)
            """The samples, by the names of their hosts."""
            if damaged and not _is_being_written(descriptor):
                self.losses.append(f"{damaged} bytes of {path.name} are damaged or cut off")
        if missing:
            samples = "1 sample is" if missing == 1 else f"{missing} samples are"
            self.losses.append(f"{samples} cut off {path.name}")
        self.is_recording |= len(entries) > 0

    def open(self) -> FileIO:
        """Open it for `payload`, which takes its descriptor."""
        return FileIO(open_regular(self.path, os.O_RDONLY))

    def payload(self, descriptor: int, entry: IndexEntry) -> bytes:
        """Return a payload. SourceError if it is damaged."""
        if entry.offset + entry.length > self._size:
            raise SourceError("the index does not match the data")
        data = os.pread(descriptor, entry.length, entry.offset)
        if len(data) != entry.length or zlib.crc32(data) != entry.crc:
            raise SourceError("the checksum does not match")
        return data

    def _find_tracks(self, descriptor: int, entries: Entries) -> dict[str, Track]:
        tracks: dict[str, Track] = {}
        unknown = len(entries)
        for stream, rows in _rows_by_stream(entries).items():
            host = self._name(descriptor, stream, (entries[row] for row in rows))
            if host is not None:
                tracks[host] = Track(self, rows, entries)
                unknown -= len(rows)
        if unknown:
            samples, are = counted(unknown, "sample"), "is" if unknown == 1 else "are"
            self.losses.append(f"{samples} of {self.path.name} {are} of no known host")
        return tracks

    def _name(self, descriptor: int, stream: int, entries: Iterator[IndexEntry]) -> str | None:
        """Return the host of a stream, from the first chunk that names it; None if none does.
        SourceError if only chunks in another version of the protocol do."""
        other = None
        for entry in islice((entry for entry in entries if entry.position == 0), _MAX_NAMES):
            hello = hello_of(os.pread(descriptor, min(entry.length, _HEAD), entry.offset))
            if hello is None or stream_of(hello.host) != stream:
                continue
            if SPOKEN.includes(hello.protocol):
                return hello.host
            other = hello
        if other is None:
            return None
        raise SourceError(
            f"{self.path} was recorded by gputop {other.version} in protocol {other.protocol}; "
            f"this gputop reads {SPOKEN}"
        )


def _rows_by_stream(entries: Entries) -> dict[int, Sequence[int]]:
    """Return which Entries are of which host, for as many hosts as a recording has."""
    streams = entries.streams.tolist()
    if len(set(streams)) == 1:
        return {streams[0]: range(len(streams))}
    rows: dict[int, list[int]] = {}
    for row, stream in enumerate(streams):
        if stream in rows or len(rows) < MAX_HOSTS:
            rows.setdefault(stream, []).append(row)
    return dict(rows)


def _read_index(path: Path) -> bytes:
    """Return the index; empty if there is none, since the data file has all of it."""
    try:
        with open(open_regular(f"{path}{INDEX}", os.O_RDONLY), "rb") as file:
            return file.read(_MAX_INDEX)
    except OSError:
        return b""


def _is_being_written(descriptor: int) -> bool:
    """Whether a recorder has it open, so that its last record may be incomplete."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
