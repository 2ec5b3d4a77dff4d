"""Picks GPUs and reserves them, while other users may do so at the same time.

A watch that finds enough GPUs takes them under the folder's lock, by the reservations it reads
then. It then reads the driver again: a program that ignores reservations may have been quicker. A
watch that must wait takes a place in the queue. The first in the queue looks every half second and
keeps the GPUs that it can get until they are enough. While there is a queue, the others take only
GPUs that have been free for a whole window, which the first did not want.
"""

from __future__ import annotations

import os
import pwd
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from gputop.allocation.gpu_watch import WINDOW, Watch, tally
from gputop.allocation.taken import Taken, take
from gputop.model.cuda.pick import GpuPick, PickRequest, choose
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, Reservation
from gputop.model.machine.secrets import masked_words
from gputop.model.machine.text import printable
from gputop.protocol.messages import Refresh, SetInterval
from gputop.reservations.folder import LockFolder
from gputop.reservations.hold import Hold, tidy
from gputop.reservations.locks import QUEUE, LockFile, read_locks

HELD = "GPUTOP_RESERVATION"
"""The variable with the PIDs of processes whose reservations a shell and its children may use."""
_MOST_HELD = 64
"""PIDs in that variable; each shell inside another adds one."""
_DIGITS = 10
_LOOKS = 2
"""Frames to wait for after a reservation: the last of them was begun after it."""
_SLOWEST = 8.0
"""The longest interval in seconds, far behind in the queue: if no frame comes for longer, the agent
is taken for stopped."""


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
        self._window = self._paced = window
        self._folder, self._command, self._lasts = folder, command, lasts
        self._locks: list[LockFile] = []
        self._place: Hold | None = None
        """The place in the queue; None: not waiting."""
        self._looks = 0
        self.holds: dict[str, Hold] = {}
        """What is held, by the UUID of the GPU."""

    def _decide(self, over: bool) -> bool:
        if self._looks:
            self._looks -= 1
            if self._looks:
                return False
            if self._is_still_good():
                return True
            self._keep(())
        self._locks = read_locks(held=self._folder)
        pick = self._choose()
        if self._wants(pick):
            with self._exclusive() as held:
                if held:
                    tidy(self._folder)
                self._locks = read_locks(held=self._folder)
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
        """Give back the GPUs and the place in the queue."""
        self._keep(())
        self.leave_queue()

    def leave_queue(self) -> None:
        """Give up the place in the queue."""
        if self._place is not None:
            self._place.release()
            self._place = None

    # Which GPUs can be had

    def _choose(self) -> GpuPick:
        """Pick by the frames of the window, with the reservations of others as they are now."""
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
        """Return the frame with the reservations of others and without ours."""
        own = {hold.name for hold in self.holds.values()}
        taken = {lock.uuid: lock for lock in reversed(self._locks)
                 if lock.name not in own and not _is_ours(lock)}  # fmt: skip
        gpus = (replace(gpu, reservation=_told(taken.get(gpu.uuid or ""))) for gpu in frame.gpus)
        return replace(frame, gpus=tuple(gpus))

    def _wants(self, pick: GpuPick) -> Sequence[Gpu]:
        """Return the GPUs to hold: those picked; if none, for the first in the queue any it can."""
        if pick.gpus or self._place is None or self._ahead:
            return pick.gpus or ()
        return [gpu for gpu in pick.possible_later or () if gpu.index not in pick.reasons]

    def _is_still_good(self) -> bool:
        """Return whether the GPUs that are held are still free of other users. Of two who took the
        same, which takes a folder that stays locked, the later one gives it back."""
        locks, names = read_locks(held=self._folder), {hold.name for hold in self.holds.values()}
        own = {lock.uuid: lock for lock in locks if lock.name in names}
        if len(own) < len(names):  # removed meanwhile
            return False
        self._locks = [lock for lock in locks if not _is_later(lock, own.get(lock.uuid))]
        pick = choose([self._seen(frame) for frame in self._frames], self._request)
        gpus = {gpu.uuid: gpu.index for gpu in self._frames[-1].gpus}
        return all(gpus.get(uuid) not in (None, *pick.reasons) for uuid in self.holds)

    # Taking it

    @contextmanager
    def _exclusive(self) -> Iterator[bool]:
        before = self._folder.kept_by
        with self._folder.exclusive() as held:
            if self._folder.kept_by != before:
                self._say(f"{self._folder.kept_by} keeps {self._folder.path} locked: gputop goes on"
                          " without its lock")  # fmt: skip
            yield held

    def _keep(self, gpus: Sequence[Gpu]) -> None:
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
        """The number of watches that have waited for longer."""
        queue = [lock.name for lock in self._locks if lock.uuid == QUEUE]
        own = None if self._place is None else self._place.name
        return queue.index(own) if own in queue else len(queue)

    def _begin_to_wait(self) -> None:
        with self._exclusive():
            self._place = Hold(self._folder, QUEUE, self._command)
        self._locks = read_locks(held=self._folder)
        ahead = f", {self._ahead} ahead" if self._ahead else ""
        self._say(f"waiting: {tally(self._pick, self._request)}{ahead}")

    def _pace(self) -> None:
        """Read less often the more are ahead, so that a crowd that waits costs little."""
        seconds = max(self._window / 4, 0.5)
        left = self._begun + self._wait - time.monotonic()
        interval = max(0.5, min(seconds * (1 + self._ahead), _SLOWEST, left))
        if interval != self._paced:
            self._paced = interval
            self._source.request(SetInterval(interval))


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
    with LockFolder() as folder:
        watch = ReservingWatch(folder, request, command, lasts, wait, window, say)
        try:
            taken = take(watch.watch(), request, by_uuid)
            watch.leave_queue()
            yield taken, list(watch.holds.values())
        finally:
            watch.release()


def command_text(program: Sequence[str]) -> str:
    """Return a command line that others may read, without what looks like a secret."""
    pairs = zip(program, masked_words(program), strict=True)
    words = (shlex.quote(word) if word == shown else shown for word, shown in pairs)
    return printable(" ".join(words), 400)


def with_our_hold(environ: Mapping[str, str]) -> str:
    """Return the value of HELD that adds this process: its children may use what it holds."""
    own = str(os.getpid())
    others = [pid for pid in _pids_in(environ) if pid != own]
    return ",".join([*others[1 - _MOST_HELD :], own])


def _pids_in(environ: Mapping[str, str]) -> list[str]:
    """Return the PIDs in HELD, and nothing else that may be in it: a shell will read it."""
    words = environ.get(HELD, "").split(",")
    return [word for word in words if word.isascii() and word.isdecimal() and len(word) <= _DIGITS]


def user_name(uid: int) -> str:
    """Return the name of a user, or the number if there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_later(lock: LockFile, own: LockFile | None) -> bool:
    """Return whether a reservation was made after ours of the same GPU, if there is one."""
    return own is not None and (lock.since, lock.name) > (own.since, own.name)


def _is_ours(lock: LockFile) -> bool:
    """Return whether `gputop reserve` or `run` holds the lock for the shell that this runs in."""
    return lock.uid == os.geteuid() and str(lock.pid) in _pids_in(os.environ)


def _told(lock: LockFile | None) -> Reservation | None:
    if lock is None:
        return None
    return Reservation(user=user_name(lock.uid), since=lock.since, pid=lock.pid)
