"""What a process sees of the file system: its mounts, as /proc/PID/mountinfo lists them, which
touches no file system, and the device nodes in its /dev.

No path that a process chooses is followed. Its /dev is looked into only if that and the root above
are file systems that the kernel serves by itself, and if the process is in our own user namespace,
where only root mounts: in another one a user may mount what never answers. There, no device node
can be made, only bound, so that mountinfo has them all (mount_namespaces(7), user_namespaces(7)).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from io import BytesIO
from itertools import islice
from typing import NamedTuple

from gputop.agent.process.procfs import read_short
from gputop.agent.process.reader import killable
from gputop.proc import Mount, mounts_in, proc_field

_MOST = 4 << 20
"""Bytes of a mountinfo that are read at most."""
_NAMES = 1 << 16
"""Names in /dev that are read at most."""
_DEV = b"/dev"
_IN_MEMORY = "devtmpfs", "tmpfs", "ramfs"
_LOCAL = frozenset({*_IN_MEMORY, "rootfs", "overlay", "squashfs", "erofs", "ext2", "ext3", "ext4",
                    "xfs", "btrfs", "zfs", "f2fs", "bcachefs"})  # fmt: skip
"""Kinds of file systems that the kernel serves by itself: FUSE's and NFS's may never answer, and
autofs mounts something for whoever comes."""
_NODE = re.compile(r"nvidia([0-9]+)\Z", re.ASCII)
_OTHER = re.compile(r"dxg\Z|nvmap\Z|nvhost-")
"""Nodes of GPUs that have no /dev/nvidiaN: under WSL, and on a Jetson."""

MountRoot = tuple[int, str]
"""Inode of a mount namespace, and the root in it: processes that share both see the same files."""


class Mounts:
    """The mounts that a process can see, with paths as it sees them."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        """OSError for a line that is none of mountinfo."""
        self._ids: set[int] = set()
        self._over: dict[tuple[int, bytes], Mount] = {}
        for mount in mounts_in(lines):
            self._ids.add(mount.id)
            self._over[mount.parent, mount.point] = mount

    def over(self, mount: Mount, path: bytes) -> Mount | None:
        """Return the topmost mount at a path of a mount; None if nothing is mounted there."""
        topmost = None
        while (above := self._over.get(((topmost or mount).id, path))) is not None:
            topmost = above
        return topmost

    def below(self, mount: Mount, path: bytes) -> list[str]:
        """Return the names in a folder of a mount at which something is mounted."""
        points = [point.rpartition(b"/") for id_, point in self._over if id_ == mount.id]
        return [os.fsdecode(name) for folder, _, name in points if folder == path]

    @property
    def root(self) -> Mount | None:
        """The mount at `/`; None if `/` lies inside a mount, as in a chroot."""
        for (parent, point), mount in self._over.items():
            if point == b"/" and parent not in self._ids:
                return self.over(mount, b"/") or mount
        return None


def read_mounts(pid: int) -> Mounts:
    """Read the mounts of a process; OSError, also if there are too many."""
    with open(f"/proc/{pid}/mountinfo", "rb") as file:
        text = file.read(_MOST)
    if len(text) == _MOST:
        raise OSError("too many mounts")
    return Mounts(BytesIO(text))


@killable(None)
def view_of(pid: int) -> MountRoot | None:
    """Return the mount namespace and root of a process; None for another user's, or if it has
    ended. The root itself is not touched: its file system may not answer."""
    return _view(pid)


def own_view() -> MountRoot | None:
    """Return those of gputop; None in a /proc of another PID namespace."""
    return _view(os.getpid())


def _view(pid: int) -> MountRoot | None:
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino, os.readlink(f"/proc/{pid}/root")
    except OSError:
        return None


def alike(pid: int, other: int) -> bool:
    """Return whether two processes see the same files."""
    view = view_of(pid)
    return view is not None and view == view_of(other)


def in_container(pid: int, view: MountRoot) -> bool:
    """Return whether a process of that view has another root than gputop; False if that cannot be
    read.

    Mounts are compared: the root itself may be on a file system that does not answer.
    """
    own = own_view()
    if own is None or view[0] == own[0]:
        return own is not None and view != own
    try:
        theirs, ours = read_mounts(pid).root, read_mounts(os.getpid()).root
    except OSError:
        return False
    if theirs is None or ours is None:
        return theirs is not ours
    return (theirs.device, theirs.root) != (ours.device, ours.root)


class DeviceNodes(NamedTuple):
    """What a process has in /dev."""

    minors: frozenset[int]
    """The N of each /dev/nvidiaN."""
    mounted: tuple[str, bytes] | None
    """Device and root of what is mounted at /dev; None if nothing is."""


@killable(None)
def device_nodes(pid: int) -> DeviceNodes | None:
    """Return the device nodes that a process sees; None if GPUs have other nodes, or if they cannot
    be known without following the process."""
    try:
        mounts = read_mounts(pid)
        root = mounts.root
        if root is None:
            return None
        over = mounts.over(root, _DEV)
        names = _names_in_dev(pid, root, over)
    except OSError:
        return None
    minors = minors_of([*names, *mounts.below(over or root, _DEV)])
    return None if minors is None else DeviceNodes(minors, _mounted(over))


def minors_of(names: Iterable[str]) -> frozenset[int] | None:
    """Return the N of each /dev/nvidiaN among the names in /dev; None if GPUs have other nodes."""
    names = list(names)
    if any(map(_OTHER.match, names)):
        return None
    return frozenset(int(match[1]) for name in names if (match := _NODE.match(name)))


def _names_in_dev(pid: int, root: Mount, over: Mount | None) -> list[str]:
    """Return the names in the /dev of a process, without those that only mounts show. OSError."""
    folder = over or root
    if over is not None and _mounted(over) == _own_dev():
        return os.listdir("/dev")
    if os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user"):
        if {root.kind, folder.kind} <= _LOCAL:
            return _listed(pid, root, folder)
    elif folder.kind in _IN_MEMORY:
        return []
    raise OSError("its file system may not answer")


def _own_dev() -> tuple[str, bytes] | None:
    mounts = read_mounts(os.getpid())
    own = mounts.root and mounts.over(mounts.root, _DEV)
    return _mounted(own)


def _mounted(mount: Mount | None) -> tuple[str, bytes] | None:
    return None if mount is None else (mount.device, mount.root)


def _listed(pid: int, root: Mount, folder: Mount) -> list[str]:
    """List the folder /dev of a process, which is on these mounts; OSError if it no longer is."""
    with ExitStack() as stack:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        above = os.open(f"/proc/{pid}/root", flags)
        stack.callback(os.close, above)
        if _mount_id(above) != root.id:
            raise OSError("another root meanwhile")
        try:
            dev = os.open("dev", flags | os.O_NOFOLLOW, dir_fd=above)
        except FileNotFoundError:
            return []
        stack.callback(os.close, dev)
        if _mount_id(dev) != folder.id:
            raise OSError("mounted meanwhile")
        opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dev)
        stack.callback(os.close, opened)
        with os.scandir(opened) as entries:
            return [entry.name for entry in islice(entries, _NAMES)]


def _mount_id(descriptor: int) -> int:
    words = proc_field(read_short(f"/proc/self/fdinfo/{descriptor}"), b"mnt_id")
    if not words:
        raise OSError("this kernel does not report mount IDs")
    return int(words[0])
