"""Looks up a path as a process sees it. The process may name any path, so nothing is opened.

A path is walked part by part from the root of the process: no link leads out of that root, not even
the links in /proc; nothing is looked up in an automounter's folder unless it is mounted already; a
file system that has hung is not touched again. The mount of a part is known before the part is
touched (mountinfo), and verified after (fdinfo, which asks no file system).

All processes of one mount namespace and root see the same files, so each is looked up once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from gputop.agent.process.mounts import Mount, Mounts, read_mounts
from gputop.agent.process.reader import killable
from gputop.agent.stall import CallGuard, Step

T = TypeVar("T")

_MountRoot = tuple[int, str]
"""Inode of a mount namespace, and the root in it."""
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS = 40
_PARTS = 256
_AUTOMOUNTER = "autofs"


class Sight:
    """The files that a process sees."""

    def __init__(self, pid: int, mounts: Mounts, guard: CallGuard, step: Step) -> None:
        self.pid, self.mounts = pid, mounts
        self._guard, self._step = guard, step

    @contextmanager
    def find(self, path: str) -> Iterator[int]:
        """Yield a descriptor (O_PATH) of the target of an absolute path; OSError."""
        trail = _Trail(self)
        try:
            trail.follow(os.fsencode(path))
            yield trail.last
        finally:
            trail.close()

    def exists(self, path: str) -> bool:
        """Return whether a path exists; False too if it may not be looked up."""
        with suppress(OSError, ValueError), self.find(path):
            return True
        return False

    def names(self, path: str, most: int) -> list[str]:
        """Return at most `most` names in a folder; OSError."""
        with self.find(path) as target:
            if self.mounts.by_id(_mount_id(target)).kind == _AUTOMOUNTER:
                raise OSError("something would be mounted for it")
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC
            folder = os.open(".", flags, dir_fd=target)
            try:
                with os.scandir(folder) as entries:
                    return [entry.name for entry, _ in zip(entries, range(most), strict=False)]
            finally:
                os.close(folder)

    def touch(self, mount: Mount) -> None:
        """Note that a file system is touched next; OSError if it has stopped answering."""
        if mount.device != self._step.at:
            if self._guard.is_barred(mount.device):
                raise OSError("its file system does not answer")
            self._step.go_on(mount.device)


class MountCache:
    """Answers about files, shared by all processes that see the same; one cache for each round.

    Use it within calls of `guard`, which `step` belongs to. After a call that stalled, make a new
    cache: the thread that hangs still uses this one.
    """

    def __init__(self, guard: CallGuard) -> None:
        self.step = Step()
        self._guard = guard
        self._views: dict[int, _MountRoot | None] = {}
        self._mounts: dict[_MountRoot, Mounts] = {}
        self._answers: dict[tuple[Any, ...], Any] = {}

    def ask(self, question: Callable[..., T], pid: int, *more: str) -> T | None:
        """Return `question(sight, *more)`, asked once for all processes that see the same files;
        None if they cannot or may not be looked up."""
        if pid not in self._views:
            self._views[pid] = view_of(pid)
        view = self._views[pid]
        if view is None:
            return None
        key = (question, view, more)
        if key in self._answers:
            kept: T | None = self._answers[key]
            return kept
        answer = self._answer(question, pid, view, *more)
        if view_of(pid) == view:  # not if it ended meanwhile
            self._answers[key] = answer
        return answer

    def _answer(
        self, question: Callable[..., T], pid: int, view: _MountRoot, *more: str
    ) -> T | None:
        before = self.step.at
        try:
            mounts = self._mounts[view] = self._mounts.get(view) or read_mounts(pid)
            return question(Sight(pid, mounts, self._guard, self.step), *more)
        except (OSError, ValueError):
            return None
        finally:
            self.step.go_on(before)


@killable(None)
def view_of(pid: int) -> _MountRoot | None:
    """Return the mount namespace and root of a process; None for another user's, or if it has
    ended. The root itself is not touched: its file system may not answer."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino, os.readlink(f"/proc/{pid}/root")
    except OSError:
        return None


def alike(pid: int, other: int) -> bool:
    """Return whether two processes see the same files."""
    view = view_of(pid)
    return view is not None and view == view_of(other)


class _Trail:
    """The folders from a root to where a path has led so far."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        if (root := sight.mounts.root) is not None:
            sight.touch(root)
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = os.open(f"/proc/{sight.pid}/root", flags)
        mount = sight.mounts.by_id(_mount_id(descriptor))
        self._folders: list[tuple[int, bytes, Mount]] = [(descriptor, b"/", mount)]

    @property
    def last(self) -> int:
        return self._folders[-1][0]

    def close(self) -> None:
        for descriptor, _, _ in self._folders:
            os.close(descriptor)

    def follow(self, path: bytes) -> None:
        todo, links, parts = path.split(b"/")[::-1], 0, 0
        if not path.startswith(b"/"):
            raise OSError("a relative path")
        while todo:
            part, parts = todo.pop(), parts + 1
            if parts > _PARTS:
                raise OSError("a path of too many parts")
            if part == b"..":
                self._up(1)
            elif part not in (b"", b"."):
                self._enter(part)
                target = self._link()
                if target is None:
                    continue
                links += 1
                if links > _LINKS:
                    raise OSError("a path of too many links")
                self._up(len(self._folders) - 1 if target.startswith(b"/") else 1)
                todo += target.split(b"/")[::-1]

    def _up(self, count: int) -> None:
        """Leave `count` folders, but never the root."""
        for _ in range(min(count, len(self._folders) - 1)):
            os.close(self._folders.pop()[0])

    def _enter(self, part: bytes) -> None:
        sight, (above, path, mount) = self._sight, self._folders[-1]
        path = (b"" if path == b"/" else path) + b"/" + part
        over = sight.mounts.over(mount, path)
        if over is None and mount.kind == _AUTOMOUNTER:
            raise OSError("something would be mounted for it")
        sight.touch(mount)
        descriptor = os.open(part, _FLAGS, dir_fd=above)
        self._folders.append((descriptor, path, over or mount))
        if _mount_id(descriptor) != (over or mount).id:
            raise OSError("mounted meanwhile")
        sight.touch(over or mount)

    def _link(self) -> bytes | None:
        """Return the target of the last part; None if it is not a link."""
        try:
            return os.readlink(b"", dir_fd=self.last)
        except OSError:
            return None


def _mount_id(descriptor: int) -> int:
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        for line in file:
            if line.startswith("mnt_id:"):
                return int(line.split()[1])
    raise OSError("a kernel that does not tell mounts")
