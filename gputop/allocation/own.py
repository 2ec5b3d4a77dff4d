"""The caller's own reservations: those of the shells and programs that this process runs in."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice, Reservation

HELD = "GPUTOP_RESERVATION"
"""The variable with the PIDs of processes whose reservations a shell and its children may use."""
_MOST_HELD = 64
"""PIDs in that variable; each shell inside another adds one."""
_DIGITS = 10
_Reservable = TypeVar("_Reservable", Gpu, MigDevice)


def with_our_hold(environ: Mapping[str, str]) -> str:
    """Return the value of HELD that adds this process: its children may use what it holds."""
    own = str(os.getpid())
    others = [pid for pid in _pids_in(environ) if pid != own]
    return ",".join([*others[1 - _MOST_HELD :], own])


def is_own(reservation: Reservation | None) -> bool:
    """Return whether `gputop reserve` or `run` holds it for the shell that this runs in."""
    if reservation is None or str(reservation.pid) not in _pids_in(os.environ):
        return False
    uid = os.geteuid()
    return reservation.user in (user_name(uid), str(uid))  # an agent looks names up later


def without_own(frame: Frame) -> Frame:
    """Return a frame of this machine without the caller's own reservations."""
    return reserved_by(frame, lambda part: None if is_own(part.reservation) else part.reservation)


def reserved_by(
    frame: Frame, reservation_of: Callable[[Gpu | MigDevice], Reservation | None]
) -> Frame:
    """Return a frame with these reservations of its GPUs and MIG devices."""

    def reserved(part: _Reservable) -> _Reservable:
        return replace(part, reservation=reservation_of(part))

    gpus = (replace(gpu, mig=gpu.mig and tuple(map(reserved, gpu.mig))) for gpu in frame.gpus)
    return replace(frame, gpus=tuple(map(reserved, gpus)))


def user_name(uid: int) -> str:
    """Return the name of a user, or the number if there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _pids_in(environ: Mapping[str, str]) -> list[str]:
    """Return the PIDs in HELD, and nothing else that may be in it: a shell will read it."""
    words = environ.get(HELD, "").split(",")
    return [word for word in words if word.isascii() and word.isdecimal() and len(word) <= _DIGITS]
