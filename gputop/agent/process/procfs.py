"""Files of /proc/PID, read by hand up to a limit, and why psutil does not read them.

prctl(PR_SET_MM_MAP) needs no privilege and makes a command line or an environment of gigabytes; a
process may have a million descriptors and 65,530 mappings. Everything that another user's process
can fill is read here, with a limit in bytes or entries, and in time if the kernel may take long.
Callers learn when something was cut: it never looks complete. What a process can block is read by
functions that are declared `killable` (reader.py).

psutil tells what no user controls: pids(), boot_time(), and of the host (agent/host.py)
cpu_count(), cpu_percent() and virtual_memory(). Its other facts are read by hand, because of their
cost (microseconds of CPU time, for one of 1,000 processes) or because of what another user can do
to them (psutil 7.2):

    fact                         psutil  by hand  why
    PIDs                              2           psutil.pids()
    boot time                        27           psutil.boot_time(), once
    bytes read and written           25       11  io_counters() waits for ever if the process wants
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

from gputop.agent.process.reader import READER, killable
from gputop.model.machine.cgroup import parse_cgroup
from gputop.model.machine.origin import Origin

COMMAND = 1 << 14
"""Bytes of a command line: at least 4,096 characters, and no more than that are shown."""
ENVIRON = 1 << 23
"""Bytes of an environment; execve(2) takes at most 6 MiB, arguments included."""
_CGROUP = 1 << 16
MAPS = 1 << 23

_PIECE = 1 << 16
_BETWEEN = 64
"""Entries between two readings of the clock."""


class OpenFiles(NamedTuple):
    """Some or all of the files that a process has open."""

    names: set[str]
    """Paths, without the ` (deleted)` of deleted files."""
    next: int | None
    """The descriptor to continue at; None if these were the last."""


def read_bounded(path: str, most: int, deadline: float = math.inf) -> tuple[bytes, bool]:
    """Return up to `most` bytes read before `deadline` (monotonic), and whether that is the whole
    file; OSError."""
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


def read_if_any(path: str, most: int, deadline: float = math.inf) -> tuple[bytes, bool]:
    """Read as `read_bounded`; nothing, which is not the whole file, if it cannot be read."""
    try:
        return read_bounded(path, most, deadline)
    except (OSError, MemoryError):
        return b"", False


def read_cgroup(pid: int | str) -> Origin | None:
    """Read the origin of a process from its control groups; None if they cannot be read, or are
    longer than real ones."""
    data, whole = read_if_any(f"/proc/{pid}/cgroup", _CGROUP)
    return parse_cgroup(data.decode("utf-8", "replace")) if whole else None


def read_short(path: str) -> bytes:
    """Read the first 4 KiB; empty if the file cannot be read. Every tick reads every process this
    way, and a file object would double the cost."""
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


@killable(b"")
def read_file(pid: int, name: str) -> bytes:
    """Read the first 4 KiB of a file in /proc/PID; empty if it cannot be read."""
    return read_short(f"/proc/{pid}/{name}")


@killable(None)
def read_link(pid: int, name: str) -> str | None:
    """Return the target of a link in /proc/PID without touching it; None if it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return None


def open_files(pid: int, deadline: float, first: int = 0) -> OpenFiles:
    """List the files behind descriptors from `first` on until `deadline` (monotonic); OSError if
    they may not be read, or if it does not answer."""
    return READER.ask(list_files, pid, deadline, first)


def list_files(pid: int, deadline: float, first: int = 0) -> OpenFiles:
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
