"""Frames that may be shown to strangers: nothing in them that somebody wrote or is called."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.environ import Environ, Surroundings
from gputop.model.frame import Frame, Process
from gputop.model.gpu import Gpu, Opener

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
        """The same looks of the GPUs, without names and words of people."""
        return replace(
            frame,
            host=replace(frame.host, name="host", boot_id=None),
            gpus=tuple(map(self._gpu, frame.gpus)),
            processes=tuple(map(self._process, frame.processes)),
            probed=(),
            verdicts=(),
            detail=None,
            stack=None,
        )

    def _gpu(self, gpu: Gpu) -> Gpu:
        return replace(gpu, openers=tuple(map(self._opener, gpu.openers)))

    def _opener(self, one: Opener) -> Opener:
        return replace(one, user=self._user(one.user), command=_length(one.command))

    def _process(self, one: Process) -> Process:
        return replace(
            one,
            user=self._user(one.user),
            command=_length(one.command),
            place=None,
            surroundings=one.surroundings and _surroundings(one.surroundings),
        )

    def _user(self, user: str | None) -> str | None:
        return user and self._users.setdefault(user, f"user{len(self._users) + 1}")


def _surroundings(one: Surroundings) -> Surroundings:
    below = one.descendant
    return replace(
        one,
        environ=_environ(one.environ),
        descendant=below and replace(below, environ=_environ(below.environ)),
    )


def _environ(environ: Environ) -> Environ:
    values = {name: _length(value) or "" for name, value in environ.variables.items()}
    return replace(environ, variables=values)


def _length(text: str | None) -> str | None:
    return text and f"({len(text)} characters)"
