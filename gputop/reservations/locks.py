"""Reading reservations: whose they are, and of which GPU. Nothing is taken, and nobody waits."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from gputop.model.machine.text import printable
from gputop.reservations.folder import folder_paths, open_to_read
from gputop.trust import open_regular

QUEUE = "queue"
"""Stands in the place of a UUID for those who wait."""
MOST_BYTES = 2048
"""Of a file; what is written in it is less."""
MOST_ENTRIES = 4096
"""In a folder: more than any machine has GPUs and people, and soon looked through."""
_NAME = re.compile(r"([\w-]{1,100})\.[0-9a-f]{16}", re.ASCII)
_LONGEST = 400
"""Characters of a command."""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of fcntl(2), where off_t has 64 bits."""


class LockFile(NamedTuple):
    """A reservation of one GPU that counts, or a place in the queue."""

    uuid: str
    name: str
    """Of its file."""
    folder: str
    since: float
    """Seconds since the epoch, by the kernel."""
    uid: int
    """Whose it is, by the kernel."""
    pid: int | None = None
    """Who took it: the owner's word, and a process of his. None where there is none any more."""
    until: float | None = None
    """When it is to end: the owner's word, as the next."""
    command: str | None = None


class LockEntry(NamedTuple):
    """A file that is named as a reservation."""

    name: str
    uuid: str
    about: os.stat_result
    is_locked: bool
    data: bytes


def read_locks() -> list[LockFile]:
    """Return what is reserved, and who waits, the oldest first. Where nothing can be read there is
    nothing."""
    locks: list[LockFile] = []
    for path in folder_paths():
        try:
            descriptor = open_to_read(path)
        except OSError:
            continue
        try:
            found = (_meaning(entry, path) for entry in entries(descriptor) if entry.is_locked)
            locks += filter(None, found)
        finally:
            os.close(descriptor)
    return sorted(locks, key=lambda lock: (lock.since, lock.name))


def entries(folder: int) -> Iterator[LockEntry]:
    """Yield the regular files of a folder that are named as reservations."""
    with os.scandir(folder) as found:
        for _, listed in zip(range(MOST_ENTRIES), found, strict=False):
            match = _NAME.fullmatch(listed.name)
            entry = None if match is None else _entry(folder, listed.name, match[1])
            if entry is not None:
                yield entry


def lock_for_writing(descriptor: int) -> None:
    """Take the lock of a file that is open for writing; OSError where somebody has it."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def _is_locked(descriptor: int) -> bool:
    """Whether somebody has it for writing, whom a lock for reading would have to wait for."""
    wanted = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind: int = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted))[0]
    return kind != fcntl.F_UNLCK


def _entry(folder: int, name: str, uuid: str) -> LockEntry | None:
    try:
        descriptor = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, folder)
    except OSError:  # of what is half made as well: nobody but its owner may read that
        return None
    try:
        about = os.fstat(descriptor)
        return LockEntry(name, uuid, about, _is_locked(descriptor), os.read(descriptor, MOST_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _meaning(entry: LockEntry, folder: str) -> LockFile | None:
    """What is written in it, as far as it is plausible; None unless that begins with its name: it
    may be a hard link that somebody has made, to another file or of another name."""
    uid, since = entry.about.st_uid, entry.about.st_ctime
    plain = LockFile(entry.uuid, entry.name, folder, since, uid)
    head, _, command = entry.data.decode("utf-8", "replace").partition("\n")
    name, _, rest = head.partition(" ")
    if name != entry.name:
        return None
    try:
        pid, start, until = rest.split()
        ends = float(until)
        process = int(pid) if _is_process(int(pid), int(start), uid) else None
    except (ValueError, OverflowError):
        return plain
    command = printable(command.rstrip("\n"), _LONGEST)
    return plain._replace(pid=process, until=ends if 0 < ends < 1e11 else None,
                          command=command or None)  # fmt: skip


def start_of(pid: int | str) -> int | None:
    """Read when a process started, in clock ticks since the boot; None of one that is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _is_process(pid: int, start: int, uid: int) -> bool:
    """Whether a PID is still that process, and of that user."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == uid and start_of(pid) == start
    except OSError:
        return False
