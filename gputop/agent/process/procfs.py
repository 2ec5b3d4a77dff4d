"""Files of /proc/PID, read by hand up to a limit, and why psutil does not read them.

prctl(PR_SET_MM_MAP) takes no privilege and makes a command line or an environment of gigabytes; a
process may have a million descriptors and 65,530 mappings. Whatever another user's process fills
is read here, with a limit in bytes or entries, and in time where the kernel takes long over it.
What was cut is told as cut: it never reads as if the rest were not there.

psutil tells which processes there are, what they read and write, when the machine was booted and
how busy it is. What else it could tell is read by hand, for its cost (microseconds of CPU time, for
one of 1,000 processes) or for what another user can make of it (psutil 7.2):

    fact                         psutil  by hand  why
    PIDs                              2           psutil.pids()
    boot time                        27           psutil.boot_time(), once
    bytes read and written           25       11  io_counters() of a Process that is kept (36)
    start, state, parent, CPU       205       14  at every tick, of each; create_time() moves when
      time, threads, memory                       the clock is set, a start in ticks does not
    ancestors                     1,570        0  one walk has everybody; name() reads a command
    children                    117,000   27,000    line to its end
    user                             34       28  uids() takes a name of `Uid:\\t0` for root's
                                                  line; username() waits for a directory service
    command line                     28       15  cmdline() reads gigabytes if there are
    environment                      63       14  environ(), too
    working directory, program        7        6  cwd() and exe() touch a path that ends in
                                                  ` (deleted)`: it may hang, or be mounted
    open files                      107       31  open_files() touches each
    number of open files             13        5  num_fds() lists a million
"""

from __future__ import annotations

import math
import os
import time
from typing import NamedTuple

from gputop.model.machine.cgroup import parse_cgroup
from gputop.model.machine.origin import Origin

COMMAND = 1 << 14
"""Bytes of a command line: 4,096 characters at the least, and more are not shown."""
ENVIRON = 1 << 23
"""Bytes of an environment; execve(2) takes 6 MiB at most, arguments and all."""
_CGROUP = 1 << 16
MAPS = 1 << 23

_PIECE = 1 << 16
_BETWEEN = 64
"""Entries between two looks at the clock."""


class OpenFiles(NamedTuple):
    """Files that a process has open."""

    names: set[str]
    """Paths, without what is said of files that are deleted."""
    next: int | None
    """The descriptor at which to go on; None where these were the last."""


def read_bounded(path: str, most: int, deadline: float = math.inf) -> tuple[bytes, bool]:
    """Read `most` bytes, or until `deadline` (monotonic), and tell whether that is all of the file;
    OSError."""
    pieces: list[bytes] = []
    left = most
    with open(path, "rb", buffering=0) as file:
        while left and time.monotonic() < deadline:
            piece = file.read(min(left, _PIECE))
            if not piece:
                return b"".join(pieces), True
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces), not left and not file.read(1)


def read_cgroup(pid: int | str) -> Origin | None:
    """Read what the control groups of a process tell; None where they cannot be read, and where
    they are longer than any."""
    try:
        data, whole = read_bounded(f"/proc/{pid}/cgroup", _CGROUP)
    except OSError:
        return None
    return parse_cgroup(data.decode("utf-8", "replace")) if whole else None


def read_short(path: str) -> bytes:
    """Read the first 4 KiB; empty where it cannot be read. Without a file object, which costs as
    much again: at every tick this is read of every process."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:  # it ended meanwhile
        return b""
    finally:
        os.close(descriptor)


def read_link(path: str) -> str | None:
    """Read where a link leads, which is not touched; None where that cannot be seen."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def open_files(pid: int, deadline: float, first: int = 0) -> OpenFiles:
    """List the files behind descriptors from `first` on until `deadline` (monotonic); OSError where
    they may not be seen."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    directory = os.open(f"/proc/{pid}/fd", flags)
    names: set[str] = set()
    try:
        os.lseek(directory, first + 2 if first else 0, os.SEEK_SET)  # after `.` and `..`
        with os.scandir(directory) as entries:
            for count, entry in enumerate(entries, 1):
                names.add(_link(entry.name, directory))
                if count % _BETWEEN == 0 and time.monotonic() >= deadline:
                    return OpenFiles(names, int(entry.name) + 1)
    finally:
        os.close(directory)
    return OpenFiles(names, None)


def _link(name: str, directory: int) -> str:
    try:
        return os.readlink(name, dir_fd=directory).removesuffix(" (deleted)")
    except OSError:  # closed meanwhile
        return ""
