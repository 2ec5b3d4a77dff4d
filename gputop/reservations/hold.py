"""Taking a reservation, keeping it over exec, and letting it go."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from gputop.files import reason_of
from gputop.reservations.folder import LockFolder, ReservationError
from gputop.reservations.locks import MOST_BYTES, entries, lock_for_writing, start_of

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INHERITED = 200
"""The least number of a descriptor that is inherited: scripts use small ones for their own."""


class Hold:
    """A reservation that this process has, and every process that inherits its descriptor."""

    def __init__(
        self, folder: LockFolder, uuid: str, command: str, until: float | None = None
    ) -> None:
        """Take it. `uuid`: of the GPU, or QUEUE; `until`: seconds since the epoch.

        While the folder's lock is held. ReservationError where the file cannot be made.
        """
        self.uuid, self.name = uuid, f"{uuid}.{os.urandom(8).hex()}"
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
        """Others may read it as soon as it is whole and locked."""
        lock_for_writing(self.descriptor)
        if os.write(self.descriptor, data) < len(data):
            raise OSError("no space left")
        os.fchmod(self.descriptor, 0o644)

    def release(self) -> None:
        """Let it go; who inherited it has nothing any more, either."""
        with suppress(OSError):
            os.unlink(self.name, dir_fd=self._folder.descriptor)
        os.close(self.descriptor)

    def inherit(self) -> int:
        """Have what runs after exec keep it; return the number of its descriptor."""
        before = self.descriptor
        try:
            self.descriptor = fcntl.fcntl(before, fcntl.F_DUPFD, _INHERITED)
        except OSError:  # there may be no such number (ulimit -n)
            self.descriptor = fcntl.fcntl(before, fcntl.F_DUPFD, 3)
        os.close(before)
        return self.descriptor


def tidy(folder: LockFolder) -> None:
    """Remove what is left of one's own reservations that have ended. While its lock is held."""
    for entry in entries(folder.descriptor):
        if entry.about.st_uid == os.geteuid() and not entry.is_locked:
            with suppress(OSError):
                os.unlink(entry.name, dir_fd=folder.descriptor)
