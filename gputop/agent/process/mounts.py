"""The mounts of a process, read from /proc/PID/mountinfo: no file system is touched."""

from __future__ import annotations

import re
from typing import NamedTuple

_MOST = 4 << 20
"""Bytes of a mountinfo that are read at most."""
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of mountinfo."""

    id: int
    device: str
    """The file system's device, as `0:53`: the same wherever it is mounted."""
    root: bytes
    """The path in the file system that is mounted."""
    kind: str
    """The type of the file system, as `ext4` or `autofs`."""


class Mounts:
    """The mounts that a process can see, with paths as it sees them."""

    def __init__(self, text: bytes) -> None:
        self._by_id: dict[int, Mount] = {}
        self._over: dict[tuple[int, bytes], Mount] = {}
        for line in text.split(b"\n"):  # not splitlines(): names may hold carriage returns
            self._add(line)

    def by_id(self, id_: int) -> Mount:
        """Return a mount; if it is not listed (a chroot's own), only its id is known."""
        return self._by_id.get(id_) or Mount(id_, f"mount {id_}", b"", "")

    def over(self, mount: Mount, path: bytes) -> Mount | None:
        """Return the topmost mount at a path of a mount; None if nothing is mounted there."""
        topmost = None
        while (above := self._over.get(((topmost or mount).id, path))) is not None:
            topmost = above
        return topmost

    @property
    def root(self) -> Mount | None:
        """The mount at `/`; None if `/` lies inside a mount, as in a chroot."""
        for (parent, point), mount in self._over.items():
            if point == b"/" and parent not in self._by_id:
                return self.over(mount, b"/") or mount
        return None

    def _add(self, line: bytes) -> None:
        """Add `id parent device root mount-point options ... - kind ...`, proc_pid_mountinfo(5)."""
        head, _, tail = line.partition(b" - ")
        fields, kind = head.split(b" "), tail.partition(b" ")[0]
        if len(fields) >= 5 and fields[0].isdigit() and fields[1].isdigit():
            root, point = (_ESCAPED.sub(_unescaped, text) for text in fields[3:5])
            device = fields[2].decode("ascii", "replace")
            mount = Mount(int(fields[0]), device, root, kind.decode("ascii", "replace"))
            self._by_id[mount.id] = mount
            self._over[int(fields[1]), point] = mount


def read_mounts(pid: int) -> Mounts:
    """Read the mounts of a process; OSError, also if there are too many."""
    with open(f"/proc/{pid}/mountinfo", "rb") as file:
        text = file.read(_MOST)
    if len(text) == _MOST:
        raise OSError("too many mounts")
    return Mounts(text)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8) & 0xFF])
