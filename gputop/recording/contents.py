"""What is recorded of a frame, and how precisely.

A file is read by more people than a screen, and later. A process's variables are recorded only if
they decide which GPUs it sees, and only for the recording user's own processes. What looks like a
secret in a command line is never recorded.

Numbers are as precise as anybody reads them: half of a recording would be digits that no screen
shows. CPU use is in whole percents of a core, main memory in whole MiB, and rates have three
digits. Values of a GPU that people compare with other programs, as memory and power, stay exact.
"""

from __future__ import annotations

from functools import lru_cache
from math import floor, log10
from typing import Literal, TypeVar

from msgspec.structs import replace

from gputop.model.machine.environment import Environ
from gputop.model.machine.frame import Frame, Host, Process
from gputop.model.machine.gpu import DeviceHolder, Gpu, Reservation
from gputop.model.machine.origin import Origin
from gputop.model.machine.secrets import masked
from gputop.model.machine.text import MIB, printable, short_command

Commands = Literal["none", "script", "all"]
"""What is recorded of other users' commands: nothing, the name of the program or script, or the
whole command line."""

T = TypeVar("T", DeviceHolder, Reservation, Process)

_MAX_COMMAND_CHARS: dict[Commands, int] = {"none": 0, "script": 128, "all": 1024}
"""Characters of a command: users choose them, and new ones are written repeatedly."""
_NOT_TOLD = Environ({}, "unreadable")
_DIGITS = 3
"""Digits of rates, as `model.machine.text` writes them."""


def recorded(frame: Frame, commands: Commands, user: str | None) -> Frame:
    """Return what is recorded of a frame; `user` is the recording user's name on that machine."""
    return replace(
        frame,
        host=_host(frame.host),
        gpus=tuple(_gpu(gpu, commands, user) for gpu in frame.gpus),
        processes=tuple(_process(process, commands, user) for process in frame.processes),
    )


def _host(host: Host) -> Host:
    return replace(host, cpu=_round(host.cpu, 3), memory_used=_whole_mib(host.memory_used))


def _gpu(gpu: Gpu, commands: Commands, user: str | None) -> Gpu:
    pcie, nvlink = gpu.pcie, gpu.nvlink
    return replace(
        gpu,
        holders=tuple(_recordable(holder, commands, user) for holder in gpu.holders),
        reservation=gpu.reservation and _recordable(gpu.reservation, commands, user),
        pcie=pcie and replace(pcie, tx=_rate(pcie.tx), rx=_rate(pcie.rx)),
        nvlink=nvlink and replace(nvlink, tx=_rate(nvlink.tx), rx=_rate(nvlink.rx)),
        idle_for=_round(gpu.idle_for, 0),
    )


def _process(process: Process, commands: Commands, user: str | None) -> Process:
    origin, context = process.origin, process.cuda_context
    if not _is_own(process, user):
        origin = origin if commands == "all" else origin and _job_of(origin)
        context = context and replace(context, environ=_NOT_TOLD, descendant=None, ancestor=None)
    return replace(
        _recordable(process, commands, user),
        origin=origin,
        cuda_context=context,
        cpu=_round(process.cpu, 2),
        rss=_whole_mib(process.rss),
        io_read=_rate(process.io_read),
        io_write=_rate(process.io_write),
        idle_for=_round(process.idle_for, 0),
    )


def _is_own(owned: Process | DeviceHolder | Reservation, user: str | None) -> bool:
    return user is not None and owned.user == user


def _recordable(owned: T, commands: Commands, user: str | None) -> T:
    """Return an owned item with only as much of its command as may be recorded."""
    extent: Commands = "all" if _is_own(owned, user) else commands
    return replace(owned, command=_command(owned.command, extent))


@lru_cache(maxsize=1024)
def _command(command: str | None, commands: Commands) -> str | None:
    if not command or commands == "none":
        return None
    text = masked(command if commands == "all" else short_command(command).split(" ")[0])
    return text and printable(text, _MAX_COMMAND_CHARS[commands])


def _job_of(origin: Origin) -> Origin:
    """Return the container and the job, without folders, sessions and addresses."""
    return Origin(
        container=origin.container,
        pod=origin.pod,
        slurm_job=origin.slurm_job,
        slurm_step=origin.slurm_step,
        slurm_account=origin.slurm_account,
        unit=origin.unit,
    )


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _whole_mib(count: int | None) -> int | None:
    return None if count is None else round(count / MIB) * MIB


def _rate(value: float | None) -> float | None:
    return round(value, _DIGITS - 1 - floor(log10(abs(value)))) if value else value
