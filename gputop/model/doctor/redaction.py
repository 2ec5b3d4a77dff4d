"""Frames that may be shown to strangers: nothing in them that somebody wrote or is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import DeviceHolder, Reservation
from gputop.model.machine.secrets import MASK, is_secret, masked

T = TypeVar("T", DeviceHolder, Process)

LEFT_OUT = (
    "command lines (their lengths are there), users (user1, user2, ... instead), working"
    " directories, environments, sessions, containers, pods and jobs of processes, values of their"
    " variables, the host's name, names of home directories"
)
"""What `Redaction` takes out, and who writes the report out of other texts."""


class Redaction:
    """Users get numbers in the order in which they appear, the same in all frames."""

    def __init__(self) -> None:
        self._users: dict[str, str] = {}

    def frame(self, frame: Frame) -> Frame:
        """The same GPUs, without names and words of people."""
        standpoint = replace(frame.host.standpoint, job=None, job_gpus=None)
        shown = _shown(frame, self._user, _length, lambda _, value: _length(value) or "")
        return replace(
            shown,
            host=replace(frame.host, name="host", boot_id=None, standpoint=standpoint),
            processes=tuple(replace(process, origin=None) for process in shown.processes),
        )

    def _user(self, user: str | None) -> str | None:
        return user and self._users.setdefault(user, f"user{len(self._users) + 1}")


def without_secrets(frame: Frame) -> Frame:
    """The same with command lines and variables as they are, but for what may be a secret."""
    return _shown(
        frame,
        lambda user: user,
        lambda command: command and masked(command),
        lambda name, value: MASK if is_secret(name, value) else value,
    )


def _shown(
    frame: Frame,
    user: Callable[[str | None], str | None],
    command: Callable[[str | None], str | None],
    variable: Callable[[str, str], str],
) -> Frame:
    def owner(item: T) -> T:
        return replace(item, user=user(item.user), command=command(item.command))

    def reserved(reservation: Reservation) -> Reservation:
        by, words = user(reservation.user) or "", command(reservation.command)
        return replace(reservation, user=by, command=words)

    def environ(environ: Environ) -> Environ:
        values = environ.variables.items()
        return replace(environ, variables={name: variable(name, value) for name, value in values})

    def context(context: CudaContext | None) -> CudaContext | None:
        below = context and context.descendant
        return context and replace(
            context,
            environ=environ(context.environ),
            descendant=below and replace(below, environ=environ(below.environ)),
        )

    return replace(
        frame,
        gpus=tuple(
            replace(
                gpu,
                holders=tuple(map(owner, gpu.holders)),
                reservation=gpu.reservation and reserved(gpu.reservation),
            )
            for gpu in frame.gpus
        ),
        processes=tuple(
            replace(owner(process), cuda_context=context(process.cuda_context))
            for process in frame.processes
        ),
    )


def _length(text: str | None) -> str | None:
    return text and f"({len(text)} characters)"
