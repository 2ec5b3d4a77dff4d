"""Frames that may be shown to strangers, without people's names and the text they wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import SlurmJob
from gputop.model.machine.secrets import MASK, is_secret, masked

T = TypeVar("T")

LEFT_OUT = (
    "command lines (their lengths are there), users (user1, user2, ... instead), working"
    " directories, environments, sessions, containers, pods, jobs, values of the variables of"
    " processes, the host's name, names of home directories"
)
"""What `Redaction` leaves out of frames, and the report's writer out of other texts."""


class Redaction:
    """Removes people's names and words. A user has the same number in all frames, from 1 on."""

    def __init__(self) -> None:
        self._users: dict[str, str] = {}

    def frame(self, frame: Frame) -> Frame:
        """Return a frame with the same GPUs, but without names and words of people."""
        surroundings = replace(frame.host.surroundings, job=None, job_gpus=None)
        shown = _shown(
            frame,
            user=self._user,
            command=_length,
            variables=lambda names: {name: _length(names[name]) for name in names},
            origin=lambda _: None,
            slurm_job=lambda job: job and SlurmJob(user=self._user(job.user)),
        )
        host = replace(frame.host, name="host", boot_id=None, surroundings=surroundings)
        return replace(shown, host=host)

    def _user(self, user: str | None) -> str | None:
        return user and self._users.setdefault(user, f"user{len(self._users) + 1}")


def without_secrets(frame: Frame) -> Frame:
    """Return the frame with possible secrets masked in its command lines and variables."""
    return _shown(
        frame,
        command=lambda command: command and masked(command),
        variables=lambda names: {
            name: MASK if is_secret(name, value) else value for name, value in names.items()
        },
    )


def _shown(item: T, **fields: Callable[[Any], Any]) -> T:
    """Return an item with the functions applied to the fields of those names, at any depth."""
    if isinstance(item, tuple):
        return type(item)(_shown(part, **fields) for part in item)
    if not isinstance(item, msgspec.Struct):
        return item
    shown = {
        name: fields[name](value) if name in fields else _shown(value, **fields)
        for name, value in asdict(item).items()
    }
    return replace(item, **shown)


def _length(text: str | None) -> str | None:
    return text and f"({len(text)} characters)"
