"""Parsers of /proc/PID/mountinfo, status and the like, which read nothing themselves.

These files hold names that any user chooses: mount points, sources of mounts, names of processes.
The kernel escapes newlines in these, and no other end of a line: text is bytes here, and only a
newline ends a line. /proc/PID/stat is parsed by `model/machine/proc_stat.py`.

This module imports nothing: trust.py needs it before anything else may be imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Mount:
    """A line of mountinfo, proc_pid_mountinfo(5)."""

    __slots__ = ("device", "id", "kind", "options", "parent", "point", "root")

    def __init__(self, line: bytes) -> None:
        """Parse `id parent device root mount-point options ... - kind source options`; ValueError
        for anything else."""
        head, _, tail = line.rstrip(b"\n").partition(b" - ")
        id_, parent, device, root, point = head.split(b" ", 5)[:5]
        kind, _, options = tail.split(b" ", 2)
        self.id, self.parent = int(id_), int(parent)
        self.device = device.decode("ascii")
        """The file system's device, as `0:53`: the same wherever it is mounted."""
        self.root = _unescaped(root)
        """The path in the file system that is mounted."""
        self.point = _unescaped(point)
        """The path at which it is mounted."""
        self.kind = kind.decode("ascii", "replace")
        """The type of the file system, as `ext4` or `fuse.sshfs`."""
        self.options = options.split(b",")
        """The options of the file system, not those of this mount."""


def mounts_in(lines: Iterable[bytes]) -> Iterator[Mount]:
    """Yield the mounts of a mountinfo; OSError for a line that is none: no mount may be missed."""
    for line in lines:
        try:
            yield Mount(line)
        except ValueError:
            raise OSError("mountinfo is not as usual") from None


def proc_field(text: bytes, name: bytes) -> list[bytes]:
    """Return the words behind `name:` in /proc/PID/status, io or fdinfo, such as `Uid`; none if
    there is no such line. The first line, with the name of the process, is never returned."""
    return text.partition(b"\n" + name + b":")[2].partition(b"\n")[0].split()


def _unescaped(path: bytes) -> bytes:
    """Return a path with the bytes for which its octal escapes (`\\040`) stand."""
    first, *rest = path.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)
