"""A log of lines that several programs write to: no line is cut, mixed with another or lost."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress

from gputop.files import Folder, UnsafeFileError

_TIMEOUT = 0.5
"""Seconds for another writer, who holds the log for one line."""
_SOON = 0.01


def append(folder: Folder, name: str, data: bytes, most: int) -> None:
    """Add whole lines; a log that would have more than `most` bytes is NAME.1 from then on.

    OSError: then nothing was added. UnsafeFileError unless the log is a regular file of ours alone.
    """
    folder.check_ours()
    end = time.monotonic() + _TIMEOUT
    while not _append(folder, name, data, most):
        if time.monotonic() > end:
            raise TimeoutError(errno.ETIMEDOUT, "another writer holds it")
        time.sleep(_SOON)


def _append(folder: Folder, name: str, data: bytes, most: int) -> bool:
    """False if others are at work on it: then it is to be opened anew."""
    try:
        descriptor = folder.open_file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    except (FileExistsError, FileNotFoundError):  # made or moved away meanwhile
        return False
    try:
        if not _lock(descriptor):
            return False
        about, now = os.fstat(descriptor), folder.find(name)
        if now is None or now.st_ino != about.st_ino:
            return False
        _check_alone(f"{folder.path}/{name}", about)
        if about.st_size and about.st_size + len(data) > most and _turned(folder, name):
            return False
        _add(descriptor, about.st_size, data)
        return True
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Whether it is ours now; file systems without locks have none to wait for."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _check_alone(path: str, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise UnsafeFileError(path, f"belongs to user {about.st_uid}")
    if about.st_nlink > 1:
        raise UnsafeFileError(path, "has another name: a hard link")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeFileError(path, "may be written to by others: chmod go-w forbids it")


def _turned(folder: Folder, name: str) -> bool:
    """Whether it was put aside; where that cannot be it grows on, for no line may be lost."""
    with suppress(OSError):
        folder.rename(name, f"{name}.1")
        return True
    return False


def _add(descriptor: int, size: int, data: bytes) -> None:
    """All of it or nothing; after a line that was cut a new one is begun."""
    cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    data = b"\n" + data if cut else data
    if os.write(descriptor, data) < len(data):
        os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
