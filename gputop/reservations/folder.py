"""The folder of reservations: where it is, whether it can be trusted, and its lock."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gputop.deadline import within
from gputop.errors import GputopError
from gputop.files import lock_file, reason_of
from gputop.trust import is_elevated, is_roots, reason_writable

VARIABLE = "GPUTOP_LOCKS"
"""The variable that names another folder than the usual ones."""
_USUAL = "/run/lock/gputop", "/dev/shm/gputop"
_OPEN_TO_ALL = stat.S_ISVTX | stat.S_IWOTH
_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TIMEOUT = 5.0
"""Seconds that a file system has to answer."""
_LOCK_TIMEOUT = 10.0
"""Seconds to wait for others who choose at the same time: each takes some milliseconds."""
_MAKING = 2.0
"""Seconds for who makes the folder to open it to all, after which its mode is a mistake."""


class ReservationError(GputopError):
    """Nothing can be reserved."""

    def __init__(self, words: str) -> None:
        super().__init__(f"{words} (gputop run --no-reserve starts without a reservation)")


def folder_paths() -> Sequence[str]:
    """Return the folders that reservations may be in, the first choice first."""
    own = os.environ.get(VARIABLE, "")
    return (own,) if own.startswith("/") else _USUAL


def may_be_any() -> bool:
    """Return whether there may be reservations. A folder that the user names is not even looked at:
    it may be where nothing answers."""
    paths = folder_paths()
    return paths is not _USUAL or any(map(_is_there, paths))


def _is_there(path: str) -> bool:
    """Return whether a folder exists and is no link; its content is not touched."""
    try:
        os.close(os.open(path, os.O_PATH | _FLAGS))
    except OSError:
        return False
    return True


def open_to_read(path: str) -> int:
    """Return the descriptor of a folder in which files have the owners that the kernel shows.

    OSError. Users who own the folder or may write to it can remove files, but not forge them.
    """
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        about, above = os.fstat(descriptor), os.stat(os.path.dirname(path) or "/")
        if about.st_dev != above.st_dev and (why := reason_writable(about, above)):
            raise OSError(f"{path} {why}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class LockFolder:
    """The folder to take reservations in; a context manager."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Open the folder, or make it; `say` is told who keeps it locked. ReservationError."""
        self._say = say
        try:
            self.path, self.descriptor = within(_TIMEOUT, _open)
        except TimeoutError:
            raise ReservationError(f"{' or '.join(folder_paths())} does not answer") from None

        self.is_kept = False
        """Whether another process has kept it locked for so long that it is not waited for."""

    def __enter__(self) -> LockFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @contextmanager
    def exclusive(self, timeout: float = _LOCK_TIMEOUT) -> Iterator[bool]:
        """Hold its lock, so no one else chooses GPUs; yield whether it is held.

        Every user can keep it locked, which must not keep the others from starting programs: after
        `timeout` seconds it is not waited for any more, and of two who take the same GPU the later
        one gives it back. ReservationError if the folder cannot be locked at all.
        """
        held = not self.is_kept and self._lock(timeout)
        try:
            yield held
        finally:
            if held:
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def _lock(self, timeout: float) -> bool:
        try:
            is_locked = lock_file(self.descriptor, timeout)
        except OSError as error:
            raise ReservationError(f"{self.path} cannot be locked: {error.strerror}") from None
        self.is_kept = not is_locked
        if self.is_kept:
            self._say(f"somebody keeps {self.path} locked: gputop continues without its lock;"
                      f" fuser -v {self.path} shows who")  # fmt: skip
        return is_locked


def _open() -> tuple[str, int]:
    """Open the first folder that exists; otherwise make one in the first place that allows it."""
    paths = folder_paths()
    for path in paths:
        if os.path.lexists(path):
            return path, _checked(path)
    reason = ""
    for path in paths:
        try:
            _make(path)
        except OSError as error:
            reason = f"{path} cannot be made: {reason_of(error)}"
            continue
        return path, _checked(path)
    raise ReservationError(f"{reason}; root can: install -d -m 1777 {paths[0]}")


def _make(path: str) -> None:
    """Make a folder for all users; the umask is that of all threads, and is left alone.

    For root only where others cannot lead it elsewhere: a variable whose file system did not answer
    at the start is kept (variables.py). OSError."""
    if is_elevated() and not is_roots(os.path.dirname(path), sticky=True):
        raise OSError("others may change what is there")
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    descriptor = os.open(path, _FLAGS)
    try:
        os.fchmod(descriptor, 0o1777)
    finally:
        os.close(descriptor)


def _checked(path: str) -> int:
    """Open a folder that all users may write to and only owners delete from. For root it must be
    root's or ours; for an ordinary user it may be any user's: the first one to come makes it."""
    try:
        descriptor = open_to_read(path)
    except NotADirectoryError:
        raise ReservationError(f"{path} is a link, or no folder: remove it") from None
    except OSError as error:
        raise ReservationError(f"{path} cannot be used: {reason_of(error)}") from None
    end, pause = time.monotonic() + _MAKING, 0.005
    while is_closed := (about := os.fstat(descriptor)).st_mode & _OPEN_TO_ALL != _OPEN_TO_ALL:
        if time.monotonic() >= end:
            break
        time.sleep(pause)
        pause *= 2  # who makes it may be waiting for a core, which many who ask would take
    wrong = None
    if is_closed:
        wrong = f"has mode {stat.S_IMODE(about.st_mode):o}: chmod 1777 {path}"
    elif is_elevated() and about.st_uid not in (0, os.geteuid()):
        wrong = f"belongs to user {about.st_uid}, who could remove locks: chown root {path}"
    if wrong is not None:
        os.close(descriptor)
        raise ReservationError(f"{path} {wrong}")
    return descriptor
