"""What of a frame is recorded: a file is read by others, and later, than a screen is.

Variables of a process are not, but for those of one's own that decide which GPUs it sees. What
looks like a secret in a command line is not, whosever it is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import DeviceHolder, Gpu
from gputop.model.machine.origin import Origin
from gputop.model.machine.secrets import masked
from gputop.model.machine.text import short_command

Commands = Literal["none", "script", "all"]
"""What is recorded of other users' commands: nothing, the name of the program or script, or the
whole command line."""

_NOT_TOLD = Environ({}, "unreadable")


def recorded(frame: Frame, commands: Commands, user: str | None) -> Frame:
    """Return what is recorded of a frame; `user` is the name, on that machine, of who records."""
    return replace(
        frame,
        gpus=tuple(_gpu(gpu, commands, user) for gpu in frame.gpus),
        processes=tuple(_process(process, commands, user) for process in frame.processes),
    )


def _gpu(gpu: Gpu, commands: Commands, user: str | None) -> Gpu:
    if not gpu.holders:
        return gpu
    return replace(gpu, holders=tuple(_holder(holder, commands, user) for holder in gpu.holders))


def _holder(holder: DeviceHolder, commands: Commands, user: str | None) -> DeviceHolder:
    own = user is not None and holder.user == user
    return replace(holder, command=_command(holder.command, "all" if own else commands))


def _process(process: Process, commands: Commands, user: str | None) -> Process:
    if user is not None and process.user == user:
        return replace(process, command=_command(process.command, "all"))
    return replace(
        process,
        command=_command(process.command, commands),
        origin=process.origin if commands == "all" else _job_of(process.origin),
        cuda_context=_without_variables(process.cuda_context),
    )


@lru_cache(maxsize=4096)
def _command(command: str | None, commands: Commands) -> str | None:
    if not command or commands == "none":
        return None
    return masked(command if commands == "all" else short_command(command).split(" ")[0])


def _job_of(origin: Origin | None) -> Origin | None:
    """Return the container and the job, without folders, sessions and addresses."""
    if origin is None:
        return None
    return Origin(
        container=origin.container,
        pod=origin.pod,
        slurm_job=origin.slurm_job,
        slurm_step=origin.slurm_step,
        unit=origin.unit,
    )


def _without_variables(context: CudaContext | None) -> CudaContext | None:
    return None if context is None else replace(context, environ=_NOT_TOLD, descendant=None)
