"""What an index says about a record, and how it is found: in the index, or in the data itself."""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import accumulate, islice
from operator import eq
from typing import NamedTuple

MAGIC = b"gpR1"
MAX_PAYLOAD = 8 << 20
"""Bytes: no frame takes as many."""
MAX_ENTRIES = 1 << 21
"""Entries of a data file: 2 GiB of samples of a KiB. Those beyond are not found."""
MAX_TIME = 1 << 35
"""Seconds since the epoch: every date before it has four digits in its year."""

_FIELDS = struct.Struct("<4s4xQdQIII")
_RECORD = struct.Struct(f"<{_FIELDS.size}sI")
SIZE = _RECORD.size
"""Bytes of an IndexEntry."""
_BYTES = struct.Struct(f"{SIZE}s")
_RESIDUE = 0x2144DF1C
"""The CRC-32 of everything that ends with its own CRC-32."""
_WINDOW = 1 << 18
_MOST_LOST = 64 << 20
"""Bytes of a data file that may be searched or checksummed in vain: what follows is not read. A
disk that fails and a recorder that is killed damage less."""


class IndexEntry(NamedTuple):
    """What is known of a record without its payload."""

    stream: int
    """Which host it is of: see `stream_of`."""
    time: float
    """The time of its frame, seconds since the epoch."""
    offset: int
    """Where the payload begins in the data file, in bytes."""
    length: int
    """Bytes of the payload."""
    crc: int
    """CRC-32 of the payload."""
    position: int
    """How many payloads of its chunk come before it; 0 begins one."""

    def pack(self) -> bytes:
        """Return its bytes, with a checksum of their own."""
        body = _FIELDS.pack(MAGIC, *self)
        return _RECORD.pack(body, zlib.crc32(body))


def stream_of(host: str) -> int:
    """Return the number of a host, the same in every file of every recorder."""
    return int.from_bytes(blake2b(host.encode(), digest_size=8).digest(), "little")


def unpack(data: bytes) -> IndexEntry | None:
    if len(data) != SIZE:
        return None
    body, check = _RECORD.unpack(data)
    magic, *fields = _FIELDS.unpack(body)
    entry = IndexEntry(*fields)
    sound = zlib.crc32(body) == check and magic == MAGIC
    return entry if sound and 0 <= entry.time < MAX_TIME and entry.length <= MAX_PAYLOAD else None


class Entries:
    """Valid entries, one after the other as in an index.

    They stay bytes until one is asked for: a month has a quarter of a million.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        numbers = memoryview(data).cast("Q")
        self.streams = numbers[1::6]
        self.times = memoryview(data).cast("d")[2::6]
        self.offsets = numbers[3::6]
        words = memoryview(data).cast("I")
        self.magics, self.lengths = words[0::12], words[8::12]

    def __len__(self) -> int:
        return len(self._data) // SIZE

    def __getitem__(self, number: int) -> IndexEntry:
        return IndexEntry(*_FIELDS.unpack_from(self._data, number * SIZE)[1:])

    def end(self, number: int) -> int:
        """Return where the payload of an entry ends in the data file."""
        return self.offsets[number] + self.lengths[number]


def find_entries(
    index: bytes, size: int, read: Callable[[int, int], bytes]
) -> tuple[Entries, int, int]:
    """Find the Entries of a data file of `size` bytes in its index, and in the file itself if that
    fails; `read` is `os.pread` of the file. Return with them how many bytes belong to no record,
    and how many records the index lists that the data file no longer has."""
    index = index[: len(index) // SIZE * SIZE]
    if _is_whole_index(index, size):
        return Entries(index), 0, 0
    unpacked = (unpack(data) for (data,) in _BYTES.iter_unpack(index))
    listed = array("I", (row for row, entry in enumerate(unpacked) if entry is not None))
    by_place = Entries(index)
    there = [row for row in listed if by_place.end(row) <= size]
    search, packed, at = _Search(read), bytearray(), 0
    for row in sorted(there, key=by_place.offsets.__getitem__):
        entry = by_place[row]
        if entry.offset - SIZE >= at:  # otherwise it is a duplicate, or false
            packed += search.records(at, entry.offset - SIZE) + entry.pack()
            at = entry.offset + entry.length
    packed += search.records(at, size)
    entries = Entries(bytes(packed[: MAX_ENTRIES * SIZE]))
    damaged = size - len(entries) * SIZE - sum(entries.lengths)
    return entries, damaged, len(listed) - len(there)


class _Search:
    """A search for records in a data file itself."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._left, self._room = _MOST_LOST, MAX_ENTRIES

    def records(self, start: int, end: int) -> bytes:
        """Return the packed Entries of the records that are complete in the data from `start` to
        `end`; fewer once too much was searched in vain."""
        return b"".join(entry.pack() for entry in islice(self._scan(start, end), self._room))

    def _scan(self, start: int, end: int) -> Iterator[IndexEntry]:
        window, begin = b"", start
        at = start
        while at + SIZE <= end and self._left > 0:
            if not begin <= at <= begin + len(window) - SIZE:
                begin, window = at, self._read(min(_WINDOW, end - at), at)
                if len(window) < SIZE:
                    return
            offset = window.find(MAGIC, at - begin)
            if offset != at - begin:
                following = begin + (offset if offset >= 0 else len(window) - len(MAGIC) + 1)
                self._left -= following - at
                at = following
                continue
            entry = unpack(window[offset : offset + SIZE])
            if entry is None or entry.offset != at + SIZE or not self._is_whole(entry, end):
                at += 1
                self._left -= SIZE
            else:
                self._room -= 1
                yield entry
                at = entry.offset + entry.length

    def _is_whole(self, entry: IndexEntry, end: int) -> bool:
        """Whether its payload is complete: a recorder that was killed leaves the beginning of
        one."""
        if entry.offset + entry.length > end:
            return False
        is_whole = zlib.crc32(self._read(entry.length, entry.offset)) == entry.crc
        self._left -= 0 if is_whole else entry.length
        return is_whole


def _is_whole_index(index: bytes, size: int) -> bool:
    """Whether every IndexEntry is valid by the rules of `unpack`, checked for all at once, and the
    records fill a data file of `size` bytes."""
    entries = Entries(index)
    times, lengths = entries.times.tolist(), entries.lengths.tolist()
    return (
        {zlib.crc32(entry) for (entry,) in _BYTES.iter_unpack(index)} <= {_RESIDUE}
        and set(entries.magics.tolist()) <= {int.from_bytes(MAGIC, "little")}
        and max(lengths, default=0) <= MAX_PAYLOAD
        and math.isfinite(sum(times))  # a sum with a NaN is a NaN
        and min(times, default=0) >= 0
        and max(times, default=0) < MAX_TIME
        and sum(lengths) + len(index) == size
        and all(map(eq, entries.offsets, accumulate(lengths, _next_offset, initial=SIZE)))
    )


def _next_offset(offset: int, length: int) -> int:
    return offset + length + SIZE
