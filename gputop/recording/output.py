"""One data file and its index, as they are written."""

from __future__ import annotations

import errno
import os
import zlib
from contextlib import suppress

from gputop.errors import GputopError
from gputop.files import Folder, UnsafeFileError, lock_file
from gputop.recording.datafile import INDEX
from gputop.recording.entries import MAGIC, SIZE, IndexEntry

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL}
"""Errors of a file system without locks, as Lustre often is: a second recorder goes unnoticed."""
_LOCK_TIMEOUT = 0.2
"""Seconds to wait for a reader, which holds a lock for a moment to see whether there is one."""


class DataOutput:
    """Appends to one data file, which no other recorder writes then. OSError, GputopError."""

    def __init__(self, folder: Folder, name: str) -> None:
        """Open it, or make it. GputopError if another recorder writes there, UnsafeFileError if it
        is no recording."""
        self.path = f"{folder.path.rstrip('/')}/{name}"
        for part in (name, name + INDEX):
            if folder.find(part) is not None:
                os.close(_open_ours(folder, part, os.O_RDONLY))
        self._data = _open_ours(folder, name, _APPEND)
        try:
            _lock(self._data, self.path)
            self._index = _open_ours(folder, name + INDEX, _APPEND)
            whole = os.fstat(self._index).st_size // SIZE * SIZE if self.size else 0
            os.ftruncate(self._index, whole)  # a killed recorder may leave part of an entry
        except BaseException:
            os.close(self._data)
            raise

    @property
    def size(self) -> int:
        """Bytes of the data file."""
        return os.fstat(self._data).st_size

    @property
    def taken(self) -> int:
        """Bytes of both files."""
        return self.size + os.fstat(self._index).st_size

    @property
    def is_there(self) -> bool:
        """Whether the file still has a name: it was not removed."""
        return os.fstat(self._data).st_nlink > 0

    def add(self, stream: int, time: float, payload: bytes, position: int) -> None:
        """Append a record; numbers as in IndexEntry. If this fails, nothing of it is left."""
        offset, crc = self.size + SIZE, zlib.crc32(payload)
        entry = IndexEntry(stream, time, offset, len(payload), crc, position)
        packed = entry.pack()
        _append(self._data, packed + payload)
        with suppress(OSError):  # what the index lacks is found in the data
            _append(self._index, packed)

    def close(self) -> None:
        """Close both, once: a close that fails, as on NFS, has freed its descriptor. OSError."""
        try:
            os.close(self._index)
        finally:
            os.close(self._data)


def _open_ours(folder: Folder, name: str, flags: int) -> int:
    """Open a part of a recording of ours, or make it. UnsafeFileError if it is anything else."""
    descriptor = folder.open_file(name, flags)
    about, path = os.fstat(descriptor), f"{folder.path.rstrip('/')}/{name}"
    try:
        if about.st_uid != os.geteuid():
            raise UnsafeFileError(path, "belongs to somebody else: give another name")
        if about.st_nlink > 1:
            raise UnsafeFileError(path, "has a second name (a hard link): give another name")
        if not MAGIC.startswith(os.pread(descriptor, len(MAGIC), 0)):
            raise UnsafeFileError(path, "is not a recording: give another name")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, path: str) -> None:
    try:
        is_locked = lock_file(descriptor, _LOCK_TIMEOUT)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return
    if not is_locked:
        raise GputopError(f"another gputop records to {path}: end it, or record to another file")


def _append(descriptor: int, data: bytes) -> None:
    """Write all of `data`, or nothing."""
    size = os.fstat(descriptor).st_size
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
