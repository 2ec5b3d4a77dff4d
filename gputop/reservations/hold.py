"""Taking a reservation, keeping it over exec, and releasing it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from gputop.errors import GputopError
from gputop.files import reason_of
from gputop.reservations.folder import LockFolder, ReservationError
from gputop.reservations.locks import (
    MOST_BYTES,
    LockFile,
    entries,
    lock_for_writing,
    start_of,
)

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INHERITED = 200
"""The lowest number for a descriptor that is inherited: scripts use small ones themselves."""


class Hold:
    """A reservation of this process and of every process that inherits its descriptor."""

    def __init__(
        self, folder: LockFolder, uuid: str, command: str, until: float | None = None
    ) -> None:
        """Take it. `uuid`: the GPU's; `until`: its end, in seconds since the epoch.

        Call it within `exclusive`. ReservationError if the file cannot be made.
        """
        self.uuid, self.name = uuid, f"{uuid}.{os.urandom(8).hex()}"
        self._pid = os.getpid()
        self._folder = folder
        head = f"{self.name} {os.getpid()} {start_of('self') or 0} {until or 0:.3f}\n{command}"
        try:
            self.descriptor = os.open(self.name, _NEW, 0o600, dir_fd=folder.descriptor)
            try:
                self._fill(head.encode("utf-8", "replace")[:MOST_BYTES])
            except BaseException:
                self.release()
                raise
        except OSError as error:
            raise ReservationError(
                f"{folder.path} takes no file: {reason_of(error)}; see df {folder.path}"
            ) from None

    def _fill(self, data: bytes) -> None:
        """Lock and write the file; only then may others read it."""
        lock_for_writing(self.descriptor)
        if os.write(self.descriptor, data) < len(data):
            raise OSError("no space left")
        os.fchmod(self.descriptor, 0o644)

    def release(self) -> None:
        """End it, also for the processes that inherited it; a copy of the process that took it
        only gives up its own share."""
        if os.getpid() == self._pid:
            with suppress(OSError):
                os.unlink(self.name, dir_fd=self._folder.descriptor)
        os.close(self.descriptor)

    def inherit(self) -> int:
        """Keep it over exec; return the number of its descriptor there."""
        before = self.descriptor
        try:
            self.descriptor = fcntl.fcntl(before, fcntl.F_DUPFD, _INHERITED)
        except OSError:  # there may be no such number (ulimit -n)
            self.descriptor = fcntl.fcntl(before, fcntl.F_DUPFD, 3)
        os.close(before)
        return self.descriptor


def remove(lock: LockFile) -> None:
    """End a reservation of this user by removing its file, whoever holds its lock. GputopError."""
    try:
        os.unlink(f"{lock.folder}/{lock.name}")
    except FileNotFoundError:
        return
    except OSError as error:
        raise GputopError(
            f"{lock.folder}/{lock.name} cannot be removed: {error.strerror}"
        ) from None


def tidy(folder: LockFolder) -> None:
    """Remove the files of this user's ended reservations. Call it while the folder's lock is held:
    a file that is just made is not locked yet."""
    for entry in entries(folder.descriptor, os.geteuid()):
        if not entry.is_locked:
            with suppress(OSError):
                os.unlink(entry.name, dir_fd=folder.descriptor)
