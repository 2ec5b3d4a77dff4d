"""`gputop reserve`: reserves GPUs for a shell, lists reservations, and releases them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from shlex import quote
from typing import NoReturn

from gputop.allocation.own import HELD, user_name, with_our_hold
from gputop.allocation.reserve_watch import reserved
from gputop.commands.shared.values import duration
from gputop.commands.targets.gpu_request import add_pick_options, pick_request
from gputop.errors import GputopError, UsageError
from gputop.export.table import aligned
from gputop.model.machine import text
from gputop.model.machine.gpu import Gpu, gpus_named, parts_of
from gputop.output import complain, write
from gputop.reservations import holder
from gputop.reservations.hold import Hold, remove
from gputop.reservations.locks import LockFile, read_locks
from gputop.sources.ask import readable_frame
from gputop.sources.child import end_all
from gputop.sources.opening import TABLE, open_source
from gputop.variables import callers_environment

DESCRIPTION = "Reserve GPUs for a shell: print the line that has it see these alone."
EPILOG = """\
examples:
  eval "$(gputop reserve --for 30m)"    a GPU for this shell, for half an hour
  gputop reserve --list                 who has reserved what
  gputop reserve --release 3            give GPU 3 back; all for all of your own

A small process of yours holds the reservation until the time is over or the
session has ended that it was made in. It is advice: gputop shows it, and gputop
free, run and reserve leave the GPU out, but who does not ask gputop is not kept
away. A container has reservations of its own, unless it shares /run/lock or
/dev/shm.

exit status: 0 done, 1 there are not enough GPUs, none can be reserved, or there
is nothing to release, 2 usage, 3 the NVIDIA driver cannot be read
"""
_duration = duration("a time, as 90, 30m or 2h", least=1, most=366 * 86400)
NEEDS = {"--shared": ("--min-free",)}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_pick_options(parser)
    parser.add_argument(
        "--for", dest="seconds", metavar="TIME", type=_duration, default=3600.0,
        help="how long: 90, 30m, 2h (default: 1h)",
    )  # fmt: skip
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="list what is reserved, and by whom")
    instead.add_argument(
        "--release", metavar="GPU", help="give back your own: an index, a UUID, or all"
    )


def run(options: argparse.Namespace) -> int:
    if options.list:
        return _list()
    if options.release is not None:
        return _release(options.release)
    return _reserve_in_child(options)


# Reserving


def _reserve_in_child(options: argparse.Namespace) -> int:
    """Reserve in a child, which runs on when we end: a shell waits for us and reads our output. If
    the child fails, it has complained itself, and its exit status is ours."""
    leader = os.getsid(0)
    session = 0 if leader == os.getpid() else leader  # we end now: then there is no leader
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _reserve(options, session, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        line = pipe.read()
    if not line:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or 1
    write(line, "utf-8", required=True)
    if os.isatty(1):
        complain('these are for a shell that reads them: eval "$(gputop reserve ...)"')
    return 0


def _reserve(options: argparse.Namespace, session: int, pipe: int) -> NoReturn:
    """Reserve, write the line for the shell to the pipe `pipe`, and become the holder until
    `session`, the PID of the session's leader, ends (0: there is no leader)."""
    request, wait = pick_request(options), options.wait
    words = f"gputop reserve --for {text.duration(options.seconds)}"
    with reserved(
        request, wait, words, options.uuid, options.window, options.seconds, complain
    ) as (taken, holds):
        values = {**taken.variables, HELD: with_our_hold(callers_environment())}
        line = "export " + " ".join(f"{name}={quote(value)}" for name, value in values.items())
        end = text.clock_time(time.time() + options.seconds, time.time())
        complain(f"{taken} reserved until {end}, or until this session ends")
        os.write(pipe, f"{line}\n".encode())
        os.close(pipe)
        _hold(holds, options.seconds, session)


def _hold(holds: list[Hold], seconds: float, leader: int) -> NoReturn:
    """Leave the session, keep only the reservations, and become a small Python that waits."""
    numbers = [str(hold.inherit()) for hold in holds]
    end_all()
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    command = [sys.executable, "-I", "-S", holder.__file__, str(seconds), str(leader), *numbers]
    os.execv(sys.executable, command)


# Listing and releasing


def _list() -> int:
    locks, gpus = read_locks(), _gpus()
    names = _numbers(gpus)
    rows = [[names.get(lock.uuid, lock.uuid), *_cells(lock)] for lock in locks]
    heads = ("GPU<", "USER<", "PID", "SINCE", "UNTIL<", "COMMAND<")
    write(aligned(heads, rows) + "\n" if rows else "nothing is reserved\n")
    return 0


def _cells(lock: LockFile) -> list[str]:
    now = time.time()
    until = text.MISSING if lock.until is None else text.clock_time(lock.until, now)
    pid = text.MISSING if lock.pid is None else str(lock.pid)
    since = text.duration(now - lock.since)
    return [user_name(lock.uid), pid, since, until, lock.command or text.MISSING]


def _release(word: str) -> int:
    own = [lock for lock in read_locks() if lock.uid == os.geteuid()]
    shown = text.printable(word, 100)
    if word != "all":
        wanted = _uuids(word, [lock.uuid for lock in own])
        own = [lock for lock in own if lock.uuid in wanted]
    if not own:
        raise GputopError(f"you have reserved nothing that {shown!r} names: gputop reserve --list")
    for lock in own:
        remove(lock)
    names = _numbers(_gpus())
    for lock in own:
        name = f"GPU {names[lock.uuid]}" if lock.uuid in names else lock.uuid
        write(f"{name} released: {lock.command or text.MISSING}\n")
    return 0


def _uuids(word: str, reserved: Iterable[str]) -> set[str]:
    """Return the UUIDs that a word names: a number by the driver, a UUID by what is reserved. A
    beginning of all UUIDs names none: `GPU-$ID` without an ID. UsageError for several."""
    if ":" in word:
        return {uuid for uuid, number in _numbers(_gpus()).items() if uuid and number == word}
    if not word.isdecimal():
        is_every = any(kind.startswith(word.lower()) for kind in ("gpu-", "mig-"))
        named = {uuid for uuid in reserved if uuid.lower().startswith(word.lower())}
        if len(named) > 1 and not is_every:
            shown = text.printable(word, 100)
            raise UsageError(f"{shown!r} is several GPUs: give an index or more of its UUID")
        return set() if is_every else named
    return {gpu.uuid for gpu in gpus_named(_gpus(), word) if gpu.uuid}


def _numbers(gpus: Sequence[Gpu]) -> dict[str | None, str]:
    """Return the numbers of GPUs and MIG devices by their UUIDs."""
    return {part.subject.uuid: part.number for part in parts_of(gpus)}


def _gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine; none if the driver cannot be read."""
    source = open_source(None, None, less=TABLE)
    with suppress(GputopError), closing(source):
        return readable_frame(source, lambda _: True).gpus
    return ()
