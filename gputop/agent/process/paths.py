"""Looks up a path as a process sees it, which names it as it likes: nothing is opened.

Part by part, from its root: no link leads out of that, not even those of /proc; a part of an
automounter's folder where nothing is mounted is not looked up, so that nothing is mounted for it;
a file system at which one hangs is not touched again. Which mount a part is on is known before
it is touched (mountinfo), and verified (fdinfo, which asks no file system).

All processes of one mount namespace and root see the same files, and are asked about them once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from gputop.agent.process.mounts import Mount, Mounts, read_mounts
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
        """Give a descriptor (O_PATH) of what an absolute path leads to; OSError."""
        trail = _Trail(self)
        try:
            trail.follow(os.fsencode(path))
            yield trail.last
        finally:
            trail.close()

    def exists(self, path: str) -> bool:
        """Return whether it is there, as far as that may be looked up."""
        with suppress(OSError, ValueError), self.find(path):
            return True
        return False

    def names(self, path: str, most: int) -> list[str]:
        """Return the names in a folder, at most so many; OSError."""
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
        """Say that a file system is touched next; OSError where that is not to be."""
        if mount.device != self._step.at:
            if self._guard.is_barred(mount.device):
                raise OSError("its file system does not answer")
            self._step.go_on(mount.device)


class MountCache:
    """Answers about files by who sees them; one of these for each round of many processes.

    To be used within calls of `guard`, which `step` belongs to. After one that stalled a new one is
    wanted: this is still in the hands of the thread that hangs.
    """

    def __init__(self, guard: CallGuard) -> None:
        self.step = Step()
        self._guard = guard
        self._views: dict[int, _MountRoot | None] = {}
        self._mounts: dict[_MountRoot, Mounts] = {}
        self._answers: dict[tuple[Any, ...], Any] = {}

    def ask(self, question: Callable[..., T], pid: int, *more: str) -> T | None:
        """Return `question(sight, *more)`, which is asked once of all processes that see the same;
        None where it cannot be looked at, or is not to be."""
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
        if view_of(pid) == view:  # that of a process that ends is its own
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


def view_of(pid: int) -> _MountRoot | None:
    """None where it cannot be seen: of another user's process, or one that has ended. The root
    itself is not touched: it may be of a file system that does not answer."""
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
        """Leave so many folders; the root has none above it."""
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
        """Return where the last part leads; None of what is no link."""
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
