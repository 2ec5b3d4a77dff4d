"""Picks GPUs and reserves them, while other users may do so at the same time.

A watch that finds enough GPUs takes them under the folder's lock, by the reservations it reads
then. It then reads the driver again: a program that ignores reservations may have been quicker. A
watch that waits holds nothing: of several that wait, the first that finds enough GPUs takes them.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gputop.allocation.gpu_watch import WINDOW, Taken, Watch, take
from gputop.allocation.own import is_own, reserved_by, user_name
from gputop.model.cuda.pick import GpuPick, PickRequest, choose
from gputop.model.machine.gpu import Reservation, parts_of
from gputop.model.machine.secrets import masked_words
from gputop.model.machine.text import printable
from gputop.protocol.messages import Refresh
from gputop.reservations.folder import LockFolder
from gputop.reservations.hold import Hold, tidy
from gputop.reservations.locks import LockFile, read_locks

_LOOKS = 2
"""Frames to wait for after a reservation: the last of them was begun after it."""


class ReservingWatch(Watch):
    """Watches the GPUs of this machine until enough of them are reserved."""

    def __init__(
        self,
        folder: LockFolder,
        request: PickRequest,
        command: str,
        lasts: float | None,
        wait: float,
        window: float,
        say: Callable[[str], None],
    ) -> None:
        """`command`: what the GPUs are for; `lasts`: seconds, None if not known; the others as for
        `Watch`."""
        super().__init__(request, wait, window, say=say)
        self._folder, self._command, self._lasts = folder, command, lasts
        self._looks = 0
        self.holds: dict[str, Hold] = {}
        """What is held, by the UUID of the GPU or MIG device."""

    def _decide(self, over: bool) -> bool:
        if self._looks:
            self._looks -= 1
            if self._looks:
                return False
            if self._is_still_good():
                return True
            self.release()
        self._pick = self._choose()
        if not self._pick.gpus:
            return self._gives_up(over)
        with self._folder.exclusive() as held:
            if held:
                tidy(self._folder)
            self._pick = self._choose()
            self._hold(self._pick.uuids)
        if not self._pick.gpus:
            return self._gives_up(over)
        self._looks = _LOOKS
        for _ in range(_LOOKS):
            self._source.request(Refresh())
        return False

    def release(self) -> None:
        while self.holds:
            self.holds.popitem()[1].release()

    def _choose(self, locks: Sequence[LockFile] | None = None) -> GpuPick:
        """Pick by the frames of the window, with the reservations of others: these, or those that
        there are now."""
        locks = read_locks(held=self._folder) if locks is None else locks
        own = {hold.name for hold in self.holds.values()}
        others = {lock.uuid: reservation for lock in reversed(locks)
                  if lock.name not in own and not is_own(reservation := _told(lock))}  # fmt: skip
        frames = [
            reserved_by(frame, lambda part: others.get(part.uuid or "")) for frame in self._frames
        ]
        return choose(frames, self._request)

    def _is_still_good(self) -> bool:
        """Return whether the GPUs that are held are still free of other users. Of two who took the
        same, which takes a folder that stays locked, the later one gives it back."""
        locks, names = read_locks(held=self._folder), {hold.name for hold in self.holds.values()}
        own = {lock.uuid: lock for lock in locks if lock.name in names}
        if len(own) < len(names):  # removed meanwhile
            return False
        pick = self._choose([lock for lock in locks if not _is_later(lock, own.get(lock.uuid))])
        parts = parts_of(self._frames[-1].gpus)
        there = {part.subject.uuid for part in parts if part.number not in pick.reasons}
        return there >= self.holds.keys()

    def _hold(self, uuids: Sequence[str]) -> None:
        until = None if self._lasts is None else time.time() + self._lasts
        for uuid in uuids:
            self.holds[uuid] = Hold(self._folder, uuid, self._command, until)


@contextmanager
def reserved(
    request: PickRequest,
    wait: float,
    command: str,
    by_uuid: bool = False,
    window: float = WINDOW,
    lasts: float | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Taken, list[Hold]]]:
    """Pick GPUs and hold them until the context and all who inherit the holds have ended. The
    arguments are those of `ReservingWatch`.

    ReservationError, DriverError, SourceError, NotEnoughGpusError.
    """
    with LockFolder(say) as folder:
        watch = ReservingWatch(folder, request, command, lasts, wait, window, say)
        try:
            taken = take(watch.watch(), request, by_uuid)
            yield taken, list(watch.holds.values())
        finally:
            watch.release()


def command_text(program: Sequence[str]) -> str:
    """Return a command line that others may read, without what looks like a secret."""
    pairs = zip(program, masked_words(program), strict=True)
    words = (shlex.quote(word) if word == shown else shown for word, shown in pairs)
    return printable(" ".join(words), 400)


def _is_later(lock: LockFile, own: LockFile | None) -> bool:
    """Return whether a reservation was made after ours of the same GPU, if there is one."""
    return own is not None and (lock.since, lock.name) > (own.since, own.name)


def _told(lock: LockFile) -> Reservation:
    return Reservation(user=user_name(lock.uid), since=lock.since, pid=lock.pid)
