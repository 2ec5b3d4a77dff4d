"""Picks GPUs and reserves them, with everybody else who does so at the same time.

Who finds enough takes them under the folder's lock, by reservations that are read there and then.
After that the driver is looked at again: somebody who knows nothing of reservations may have been
quicker. Who has to wait takes a place in the queue. The first in it looks every half a second and
keeps what it can have until that is enough; while there is a queue, the others take only what has
been free for a whole window, which the first did not want.
"""

from __future__ import annotations

import argparse
import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from gputop.commands.watching import Picked, Watch, not_enough, tally
from gputop.model.cuda.pick import GpuPick, PickRequest, choose
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, Reservation
from gputop.output import complain
from gputop.protocol.messages import Refresh, SetInterval
from gputop.reservations.folder import LockFolder
from gputop.reservations.hold import Hold, tidy
from gputop.reservations.locks import QUEUE, LockFile, read_locks

HELD = "GPUTOP_RESERVATION"
"""The variable that names the processes whose reservations a shell and its children may use."""
_LOOKS = 2
"""Frames after a reservation, of which the last was begun after it."""
_SLOWEST = 8.0
"""Seconds between two looks of somebody who is far behind in the queue; an agent that is silent for
longer is taken for stopped."""


class ReservingWatch(Watch):
    """Watches the GPUs of this machine until enough of them are reserved."""

    def __init__(
        self, folder: LockFolder, request: PickRequest, options: argparse.Namespace, command: str,
        lasts: float | None,
    ) -> None:  # fmt: skip
        """`command`: what it is for; `lasts`: seconds, None where nobody knows."""
        super().__init__(None, options, request, options.wait or 0)
        self._window = self._paced = options.window
        self._folder, self._command, self._lasts = folder, command, lasts
        self._locks: list[LockFile] = []
        self._place: Hold | None = None
        """In the queue."""
        self._looks = 0
        self.holds: dict[str, Hold] = {}
        """By the UUID of the GPU."""

    def _decide(self, over: bool) -> bool:
        if self._looks:
            self._looks -= 1
            if self._looks:
                return False
            if self._is_still_good():
                return True
            self._keep(())
        self._locks = read_locks()
        pick = self._choose()
        if self._wants(pick):
            with self._folder.exclusive():
                tidy(self._folder)
                self._locks = read_locks()
                pick = self._choose()
                self._keep(self._wants(pick))
        self._pick = pick
        if pick.gpus:
            self._look_again()
            return False
        if self._gives_up(over):
            return True
        self._pace()
        return False

    def release(self) -> None:
        """Give back what is held, and the place in the queue."""
        self._keep(())
        self.leave_queue()

    def leave_queue(self) -> None:
        """Let the next one be first."""
        if self._place is not None:
            self._place.release()
            self._place = None

    # What there is to have

    def _choose(self) -> GpuPick:
        """Pick by the frames, with the reservations of others as they are now."""
        frames = [self._seen(frame) for frame in self._frames]
        pick = choose(frames, self._request)
        if not pick.gpus or not self._ahead:
            return pick
        late: set[str] = set()
        for frame in frames[:-1]:
            late.update(map(str, choose([frame], self._request).reasons))
        request = replace(self._request, exclude=(*self._request.exclude, *sorted(late)))
        return replace(pick, gpus=choose(frames, request).gpus)

    def _seen(self, frame: Frame) -> Frame:
        """The frame with the reservations of others, and without ours."""
        own = {hold.name for hold in self.holds.values()}
        taken = {lock.uuid: lock for lock in reversed(self._locks)
                 if lock.name not in own and not _is_ours(lock)}  # fmt: skip
        gpus = (replace(gpu, reservation=_told(taken.get(gpu.uuid or ""))) for gpu in frame.gpus)
        return replace(frame, gpus=tuple(gpus))

    def _wants(self, pick: GpuPick) -> Sequence[Gpu]:
        """All that was picked; the first in the queue has what it can of what it waits for."""
        if pick.gpus or self._place is None or self._ahead:
            return pick.gpus or ()
        return [gpu for gpu in pick.hoped or () if gpu.index not in pick.reasons]

    def _is_still_good(self) -> bool:
        """Whether nobody else has come on the GPUs that are held now."""
        self._locks = read_locks()
        pick = choose([self._seen(frame) for frame in self._frames], self._request)
        gpus = {gpu.uuid: gpu.index for gpu in self._frames[-1].gpus}
        return all(gpus.get(uuid) not in (None, *pick.reasons) for uuid in self.holds)

    # Taking it

    def _keep(self, gpus: Sequence[Gpu]) -> None:
        """Hold these and no others."""
        wanted = [gpu.uuid for gpu in gpus if gpu.uuid]
        for uuid in self.holds.keys() - set(wanted):
            self.holds.pop(uuid).release()
        until = None if self._lasts is None else time.time() + self._lasts
        for uuid in wanted:
            if uuid not in self.holds:
                self.holds[uuid] = Hold(self._folder, uuid, self._command, until)

    def _look_again(self) -> None:
        self._looks = _LOOKS
        for _ in range(_LOOKS):
            self._source.request(Refresh())

    # The queue

    @property
    def _ahead(self) -> int:
        """How many have waited for longer."""
        queue = [lock.name for lock in self._locks if lock.uuid == QUEUE]
        own = None if self._place is None else self._place.name
        return queue.index(own) if own in queue else len(queue)

    def _begin_to_wait(self) -> None:
        with self._folder.exclusive():
            self._place = Hold(self._folder, QUEUE, self._command)
        self._locks = read_locks()
        ahead = f", {self._ahead} ahead" if self._ahead else ""
        complain(f"waiting: {tally(self._pick, self._request)}{ahead}")

    def _pace(self) -> None:
        """Look the more seldom, the more are ahead: a crowd that waits costs little."""
        seconds = max(self._window / 4, 0.5)
        left = self._begun + self._wait - time.monotonic()
        interval = max(0.5, min(seconds * (1 + self._ahead), _SLOWEST, left))
        if interval != self._paced:
            self._paced = interval
            self._source.request(SetInterval(interval))


@contextmanager
def reserved(
    options: argparse.Namespace, request: PickRequest, command: str, lasts: float | None = None
) -> Iterator[tuple[tuple[Gpu, ...], list[Hold]]]:
    """Pick GPUs and hold them for as long as this lasts, or for who inherits the holds.

    ReservationError, DriverError, SourceError, and GputopError where there is not enough.
    """
    with LockFolder() as folder:
        watch = ReservingWatch(folder, request, options, command, lasts)
        try:
            gpus = require(watch.watch(), request)
            watch.leave_queue()
            yield gpus, list(watch.holds.values())
        finally:
            watch.release()


def require(picked: Picked, request: PickRequest) -> tuple[Gpu, ...]:
    """Return the GPUs; GputopError where there are not enough, and of each is said why."""
    frame, pick = picked
    if pick.gpus:
        return pick.gpus
    if pick.note:
        complain(pick.note)
    raise not_enough(frame, pick, request)


def with_our_hold(environ: Mapping[str, str]) -> str:
    """Return the value of HELD for who may use the reservations of this process as well."""
    return ",".join(filter(None, (environ.get(HELD), str(os.getpid()))))


def user_name(uid: int) -> str:
    """Return the name of a user, or the number of one who has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_ours(lock: LockFile) -> bool:
    """Whether the shell that this runs in has it, by `gputop reserve` or `run`."""
    return lock.uid == os.geteuid() and str(lock.pid) in os.environ.get(HELD, "").split(",")


def _told(lock: LockFile | None) -> Reservation | None:
    if lock is None:
        return None
    return Reservation(user=user_name(lock.uid), since=lock.since, pid=lock.pid)
