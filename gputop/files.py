"""The files that gputop writes, and those of its own that it reads.

Root may run gputop with the HOME of another user (`sudo -E`), who may try to misuse root. So a path
is walked from / on, each folder is opened relative to the one before it, and files are then used
relative to the folder that was checked, even if that is renamed:

    links    are followed only if root or we made them
    folders  are written to only if ours, and if no other user may write there;
             for root, each folder on the way must be root's, for reading as well
    files    are regular and ours, or left alone: a FIFO blocks, a device acts when it is opened

Folders are made for their user alone (0700), files as well (0600).

`trust.reason_untrusted` walks a path as well, and differs in what it asks: whether others could
change what is there. It counts the owner of gputop's own files as root, keeps nothing open and
makes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from gputop.trust import is_unmapped, open_regular, reason_writable

_MOST_LINKS = 40
_PASS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ASIDE = re.compile(r"\.gputop\.[0-9a-f]{16}")
_FORGOTTEN = 60.0
"""Seconds after which a file left by a killed writer is removed."""


class UnsafeFileError(PermissionError):
    """A file or folder that is left alone; the text says which and why."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(errno.EPERM, f"{path} {why}")

    def __str__(self) -> str:
        return str(self.strerror)


def reason_of(error: Exception) -> str:
    """Return what went wrong, without the number of the error."""
    return getattr(error, "strerror", None) or str(error)


class Folder:
    """A folder held by its descriptor; a context manager. All methods may raise OSError."""

    def __init__(self, descriptor: int, path: str) -> None:
        """`path`: the folder's name in errors."""
        self.descriptor = descriptor
        self.path = path

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.descriptor)

    def check_ours(self) -> None:
        """Raise UnsafeFileError unless it is ours, and no other user may write there."""
        about, me = os.fstat(self.descriptor), os.geteuid()
        if about.st_uid != me:
            raise UnsafeFileError(self.path, _foreign(about))
        own_group = me != 0 and about.st_gid == os.getegid()
        if about.st_mode & (stat.S_IWOTH if own_group else stat.S_IWOTH | stat.S_IWGRP):
            raise UnsafeFileError(self.path, "is writable by others: chmod go-w it")

    def check_passed(self, above: Folder | None = None) -> None:
        """Check a folder on the way: UnsafeFileError if root runs and others control the folder."""
        if os.geteuid() != 0:
            return
        about = os.fstat(self.descriptor)
        if about.st_uid != 0 and not is_unmapped(about.st_uid):
            raise UnsafeFileError(self.path, _foreign(about))
        if reason := reason_writable(about, None if above is None else os.fstat(above.descriptor)):
            raise UnsafeFileError(self.path, reason)

    def below(self, name: str, make: bool = False) -> Folder:
        """Return a folder in it, which may not be a link; an automount there is triggered."""
        path, flags = _join(self.path, name), _PASS | os.O_DIRECTORY
        try:
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self.descriptor)
            return self.below(name)
        except NotADirectoryError:
            raise UnsafeFileError(path, "is a link, or no folder") from None
        below = Folder(descriptor, path)
        try:
            below.check_passed(self)
        except BaseException:
            below.close()
            raise
        return below

    def names(self) -> list[str]:
        return os.listdir(f"/proc/self/fd/{self.descriptor}")

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self.descriptor)

    def rename(self, name: str, other: str) -> None:
        """Rename a file, replacing any file named `other`."""
        os.replace(name, other, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def find(self, name: str) -> os.stat_result | None:
        """Return the status of a regular file that is ours or root's; None if there is no such
        name, UnsafeFileError if it is anything else."""
        try:
            about = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._check_file(name, about)
        return about

    def open_file(self, name: str, flags: int) -> int:
        """Open a file that `find` accepts; with O_CREAT, create it if it does not exist."""
        if flags & os.O_CREAT and self.find(name) is None:
            return os.open(name, flags | _NEW, 0o600, dir_fd=self.descriptor)
        flags = flags & ~os.O_CREAT | os.O_NOFOLLOW
        return open_regular(name, flags, self.descriptor, partial(self._check_file, name))

    def read(self, name: str, most: int) -> bytes:
        """Read a file; UnsafeFileError if it has more than `most` bytes."""
        with open(self.open_file(name, os.O_RDONLY), "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise UnsafeFileError(f"{self.path}/{name}", f"is larger than {most} bytes")
        return data

    def replace(self, name: str, data: bytes, durable: bool = True) -> None:
        """Write a file completely or not at all, keeping its mode. `durable`: sync it to disk."""
        self.check_ours()
        old = self.find(name)
        if old is not None:
            self._check_file(name, old, writable=True)
        self.publish(name, data, None if old is None else old.st_mode, durable)

    def publish(self, name: str, data: bytes, mode: int | None, durable: bool = False) -> None:
        """Write a file completely or not at all, replacing any file or link of that name."""
        self._tidy()
        aside = f".gputop.{os.urandom(8).hex()}"
        self.create(aside, data, mode, durable)
        with self._removing(aside):
            self.rename(aside, name)

    def create(
        self, name: str, data: bytes, mode: int | None = None, durable: bool = False
    ) -> None:
        """Write a new file; FileExistsError. On failure no file is left."""
        descriptor = os.open(name, os.O_WRONLY | _NEW, 0o600, dir_fd=self.descriptor)
        with self._removing(name), open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(descriptor, stat.S_IMODE(mode) & 0o777)
            if durable:
                os.fsync(descriptor)

    @contextmanager
    def _removing(self, name: str) -> Iterator[None]:
        """Remove a file if the block fails."""
        try:
            yield
        except BaseException:
            with suppress(OSError):
                self.remove(name)
            raise

    def _check_file(self, name: str, about: os.stat_result, writable: bool = False) -> None:
        path, me = f"{self.path}/{name}", os.geteuid()
        if not stat.S_ISREG(about.st_mode):
            raise UnsafeFileError(path, "is not a regular file")
        if about.st_uid not in ((me,) if writable else (0, me)):
            raise UnsafeFileError(path, _foreign(about))
        if writable and not about.st_mode & stat.S_IWUSR:
            raise UnsafeFileError(path, "is read-only: chmod u+w lets it change")

    def _tidy(self) -> None:
        """Remove files left by killed writers."""
        for name in filter(_ASIDE.fullmatch, self.names()):
            with suppress(OSError):
                about = self.find(name)
                if about is not None and time.time() - about.st_mtime > _FORGOTTEN:
                    self.remove(name)


def xdg_folder(name: str, default: str) -> str:
    """Return the folder that a variable of the XDG specification names, if it is absolute;
    otherwise the default, in which ~ stands for the home directory."""
    folder = os.environ.get(name, "")
    return folder if os.path.isabs(folder) else os.path.expanduser(default)


def open_folder(path: str, make: bool = False) -> Folder:
    """Open a folder; `make`: create it and the folders above it if they do not exist."""
    return _walk(path, make, to_file=False)[0]


def open_parent(path: str, make: bool = False) -> tuple[Folder, str]:
    """Return the folder that a file is in, or would be, after all links, and its name there."""
    folder, name = _walk(path, make, to_file=True)
    if not name:
        folder.close()
        raise UnsafeFileError(path, "is not a regular file")
    return folder, name


def chosen_parent(path: str) -> tuple[Folder, str]:
    """Return the folder of a file that the user chose, unchecked, and its name there. OSError."""
    parent, name = os.path.split(os.path.abspath(path))
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    return Folder(os.open(parent, flags), parent), name


def lock_file(descriptor: int, seconds: float) -> bool:
    """Take the flock(2) of a file or folder, which others may hold for as long as they want; return
    whether it was free within `seconds`. OSError from a file system without locks.

    Who waits tries again after 2 to 30 ms, at random: there is no order among them.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        time.sleep(0.002 + 0.028 * os.urandom(1)[0] / 255)


def _walk(path: str, make: bool, to_file: bool) -> tuple[Folder, str]:
    """Return the last folder of a path and ""; with `to_file`, the folder above the last name, and
    that name, which is not a link."""
    if not path.startswith("/"):
        raise UnsafeFileError(path, "does not begin with /: is HOME set?")
    rest, links = _names(path), 0
    here = _root()
    try:
        here.check_passed()
        while rest:
            name = rest.pop()
            target = _link(here, name)
            if target is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                rest += _names(target)
                here = _moved(here, _root()) if target.startswith("/") else here
            elif to_file and not rest:
                return here, name
            else:
                here = _moved(here, here.below(name, make))
    except BaseException:
        here.close()
        raise
    return here, ""


def _root() -> Folder:
    return Folder(os.open("/", _PASS | os.O_DIRECTORY), "/")


def _names(path: str) -> list[str]:
    """Return the names in a path as a stack, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _moved(before: Folder, after: Folder) -> Folder:
    before.close()
    return after


def _link(folder: Folder, name: str) -> str | None:
    """Return the target of a link; None if it is not a link. UnsafeFileError if others made it."""
    try:
        entry = os.open(name, _PASS, dir_fd=folder.descriptor)
    except FileNotFoundError:
        return None
    try:
        about = os.fstat(entry)
        if not stat.S_ISLNK(about.st_mode):
            return None
        if about.st_uid not in (0, os.geteuid()):
            raise UnsafeFileError(_join(folder.path, name), f"is a link and {_foreign(about)}")
        return os.readlink("", dir_fd=entry)
    finally:
        os.close(entry)


def _join(path: str, name: str) -> str:
    return os.path.normpath(f"{path.rstrip('/')}/{name}")


def _foreign(about: os.stat_result) -> str:
    if os.geteuid() == 0:
        return f"belongs to user {about.st_uid}, and root uses only root's own: sudo -H has those"
    return f"belongs to user {about.st_uid}"
