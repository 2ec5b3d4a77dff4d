"""Reading reservations: their users and GPUs. Nothing is locked, and no one has to wait."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gputop.deadline import within
from gputop.model.machine.proc_stat import parse_stat
from gputop.model.machine.text import printable
from gputop.reservations.folder import LockFolder, folder_paths, open_to_read
from gputop.trust import open_regular

MOST_BYTES = 2048
"""Bytes of a file that are written and read at most."""
MOST_OF_A_USER = 512
"""Files of one user that count, the oldest: more than the GPUs that one has."""
_START_TIMEOUT = 0.25
"""Seconds for the start of a process. /proc/PID/stat can block for as long as a process wants (on
Linux 6.18 while it executes a program, in which the memory of another may hold it up)."""
_NAME = re.compile(r"([\w-]{1,100})\.[0-9a-f]{16}", re.ASCII)
_MAX_COMMAND_CHARS = 400
"""Characters of a command that are shown."""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of fcntl(2), with an off_t of 64 bits."""


class LockFile(NamedTuple):
    """A valid reservation of one GPU."""

    uuid: str
    name: str
    """The name of its file."""
    folder: str
    since: float
    """Seconds since the epoch, from the kernel."""
    uid: int
    """The user who holds it, from the kernel."""
    pid: int | None = None
    """The process that took it: claimed by the owner, and checked to be theirs. None once ended."""
    until: float | None = None
    """When it will end, in seconds since the epoch: claimed by the owner, like `command`."""
    command: str | None = None


class LockEntry(NamedTuple):
    """A file that is named as a reservation."""

    name: str
    uuid: str
    about: os.stat_result
    is_locked: bool
    data: bytes


def read_locks(
    start_of: Callable[[int], int | None] | None = None, held: LockFolder | None = None
) -> list[LockFile]:
    """Return the reservations, the oldest first. Folders that cannot be read are skipped.
    `start_of` returns the start of a process in clock ticks, or None; it must not block.
    `held`: one that is open, and is read whatever has become of its path."""
    locks: list[LockFile] = []
    start_of = start_of or _StartReader().start_of
    for path in folder_paths():
        try:
            if held is not None and held.path == path:
                descriptor = os.dup(held.descriptor)
            else:
                descriptor = open_to_read(path)
        except OSError:
            continue
        try:
            locked = (entry for entry in entries(descriptor) if entry.is_locked)
            locks += filter(None, (_meaning(entry, path, start_of) for entry in locked))
        finally:
            os.close(descriptor)
    return sorted(locks, key=lambda lock: (lock.since, lock.name))


def entries(folder: int, uid: int | None = None) -> Iterator[LockEntry]:
    """Yield the regular files of a folder that are named and filled as reservations, of each user
    MOST_OF_A_USER; with `uid` all that are named so, of that user."""
    of_users: dict[int, list[tuple[float, str, str]]] = {}
    with os.scandir(folder) as files:
        for listed in files:
            match = _NAME.fullmatch(listed.name)
            try:
                about = None if match is None else listed.stat(follow_symlinks=False)
            except OSError:  # removed meanwhile
                continue
            if match is None or about is None or not stat.S_ISREG(about.st_mode):
                continue
            if 0 < about.st_size <= MOST_BYTES if uid is None else about.st_uid == uid:
                of_user = of_users.setdefault(about.st_uid, [])
                of_user.append((about.st_ctime, listed.name, match[1]))
                if len(of_user) > 2 * MOST_OF_A_USER:
                    of_user.sort()
                    del of_user[MOST_OF_A_USER:]
    for of_user in of_users.values():
        for _, name, uuid in sorted(of_user)[:MOST_OF_A_USER]:
            if (entry := _entry(folder, name, uuid)) is not None:
                yield entry


def lock_for_writing(descriptor: int) -> None:
    """Lock a file that is open for writing; OSError if another process has the lock."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def _is_locked(descriptor: int) -> bool:
    """Return whether it is locked for writing: a lock for reading would have to wait."""
    wanted = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind: int = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted))[0]
    return kind != fcntl.F_UNLCK


def _entry(folder: int, name: str, uuid: str) -> LockEntry | None:
    try:
        descriptor = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, folder)
        with open(descriptor, "rb", buffering=0) as file:
            about, is_locked = os.fstat(descriptor), _is_locked(descriptor)
            return LockEntry(name, uuid, about, is_locked, file.read(MOST_BYTES))
    except OSError:  # also for a half-made one, which only its owner may read
        return None


def _meaning(
    entry: LockEntry, folder: str, start_of: Callable[[int], int | None]
) -> LockFile | None:
    """Return the content of a file as far as it is plausible; None unless it begins with the file's
    name: otherwise it may be a hard link, made by others, to another file."""
    uid, since = entry.about.st_uid, entry.about.st_ctime
    plain = LockFile(entry.uuid, entry.name, folder, since, uid)
    head, _, command = entry.data.decode("utf-8", "replace").partition("\n")
    name, _, rest = head.partition(" ")
    if name != entry.name:
        return None
    try:
        pid, start, until = rest.split()
        ends = float(until)
        process = int(pid)
        is_theirs = _owner(process) == uid and start_of(process) == int(start)
    except (ValueError, OverflowError):
        return plain
    command = printable(command.rstrip("\n"), _MAX_COMMAND_CHARS)
    return plain._replace(
        pid=process if is_theirs else None,
        until=ends if 0 < ends < 1e11 else None,
        command=command or None,
    )


def start_of(pid: int | str) -> int | None:
    """Return the start of a process, in clock ticks since boot; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return parse_stat(file.read(4096)).start_ticks
    except (OSError, ValueError):
        return None


def _owner(pid: int) -> int | None:
    """Return the user of a process; None if it does not exist. This never blocks."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


class _StartReader:
    """Reads when processes have started; once one does not answer, no more of its user's."""

    def __init__(self) -> None:
        self._silent: set[int | None] = set()

    def start_of(self, pid: int) -> int | None:
        user = _owner(pid)
        if user in self._silent:
            return None
        try:
            return within(_START_TIMEOUT, lambda: start_of(pid))
        except TimeoutError:
            self._silent.add(user)
            return None
