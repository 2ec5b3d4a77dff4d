"""What `gputop usage` counted of a day, kept beside its data file: a month takes seconds with it.

`NAME.sums` has the counts of every hour that was over when it was written, and of these together.
They are of one host: a file of several hosts has none. It is written whole or not at all, only to a
folder of ours that nobody else may write to, and it counts only if it is whole, if whoever owns the
recording owns it, and if the recording is as it was: of the same size and time of change, or longer
with the same beginning, where what was added is all later than the hours that were counted.
Otherwise it is made anew.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from gputop.files import open_folder
from gputop.model.machine.text import printable
from gputop.model.usage.count import UsageCount
from gputop.model.usage.grouping import COLUMNS, VIEWS
from gputop.protocol.codec import UNREADABLE
from gputop.recording.chunks import MAX_HOST
from gputop.recording.datafile import SUMS
from gputop.recording.entries import MAGIC, SIZE
from gputop.trust import open_regular

_HEAD = MAGIC + b"sums 1"
"""With the number of the rules of counting: sums by other rules are made anew."""
_MAX_SUMS = 4 << 20
_MAX_COUNT = 4 << 20
"""Bytes of a count, unpacked. A day with more has no sums."""
_CHECKSUM = 4
_Time = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What a data file was like."""

    size: int
    changed: int
    """Time of its last change, in nanoseconds."""
    begin: bytes
    """Its first IndexEntry."""

    @classmethod
    def of(cls, path: Path) -> tuple[Mark, int]:
        """Return that of a data file, and its owner. OSError."""
        with open(open_regular(path, os.O_RDONLY), "rb", buffering=0) as file:
            about = os.fstat(file.fileno())
            return cls(about.st_size, about.st_mtime_ns, file.read(SIZE)), about.st_uid


class Sums(msgspec.Struct, array_like=True):
    """The sums of a data file. Hours are numbered from the epoch."""

    mark: Mark
    host: str
    first: _Time
    """The time of its first sample."""
    last: _Time
    samples: Annotated[int, msgspec.Meta(ge=0)]
    """How many samples the hours have."""
    is_complete: bool
    """Whether these are all samples of the file."""
    losses: list[str]
    """What is wrong with the file, in words."""
    whole: bytes
    """The UsageCount of all hours, packed; empty if it is too large. So are those below."""
    hours: dict[int, bytes]
    """The UsageCount of each hour, in the order of time."""

    @property
    def end(self) -> float:
        """The time at which the last of the hours ends."""
        return 3600.0 * (max(self.hours, default=-1) + 1)


def read_sums(path: Path) -> tuple[Mark, Sums | None]:
    """Return what a data file is like, and its sums if they can be relied on for what they cover;
    the file may have grown since. OSError if there is no data file."""
    mark, owner = Mark.of(path)
    try:
        with open(open_regular(f"{path}{SUMS}", os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            data = file.read(_MAX_SUMS + 1)
            is_theirs = os.fstat(file.fileno()).st_uid == owner
        head, body = data[: len(_HEAD)], data[len(_HEAD) + _CHECKSUM :]
        check = int.from_bytes(data[len(_HEAD) :][:_CHECKSUM], "little")
        if not is_theirs or head != _HEAD or zlib.crc32(body) != check or len(data) > _MAX_SUMS:
            return mark, None
        sums = msgspec.msgpack.decode(body, type=Sums)
    except (OSError, *UNREADABLE):
        return mark, None
    is_same = sums.mark == mark
    has_grown = sums.mark.begin == mark.begin and sums.mark.size < mark.size
    if not (is_same or has_grown):
        return mark, None
    sums.host = printable(sums.host, MAX_HOST)
    sums.is_complete &= is_same
    return mark, sums


def write_sums(path: Path, sums: Sums) -> None:
    """Write the sums of a data file beside it; if that is not possible, there are none."""
    body = msgspec.msgpack.encode(sums)
    data = _HEAD + zlib.crc32(body).to_bytes(_CHECKSUM, "little") + body
    if sums.whole and len(data) <= _MAX_SUMS:
        with suppress(OSError), open_folder(os.path.abspath(path.parent)) as folder:
            folder.replace(path.name + SUMS, data, durable=False)


def pack(count: UsageCount) -> bytes:
    """Return a count as bytes; none if it is too large."""
    try:
        data = msgspec.msgpack.encode(count)
    except OverflowError:  # a number that no machine has
        return b""
    return zlib.compress(data) if len(data) <= _MAX_COUNT else b""


def unpack(data: bytes) -> UsageCount | None:
    """Return a packed count; None if it is none."""
    try:
        unpacked = zlib.decompressobj().decompress(data, _MAX_COUNT)
        count = msgspec.msgpack.decode(unpacked, type=UsageCount)
    except (zlib.error, *UNREADABLE):
        return None
    tables = [(COLUMNS, count.alone), *zip(VIEWS, count.shared, strict=False)]
    fits = all(len(key) == len(columns) for columns, rows in tables for key in rows)
    return count if fits and len(count.shared) == len(VIEWS) else None
