"""A frame in a few words: who is on which GPU, and the memory that is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu, MigDevice, Reservation, SlurmJob
from gputop.model.machine.limits import is_unified
from gputop.model.machine.text import counted, duration, printable

_MARGIN = 0.02
"""Share of the memory by which use must fall below the limit."""


def users(frame: Frame, gpu: Gpu | None = None) -> list[str]:
    """Return the users with compute processes, on one GPU or on any, most memory first; those that
    are reported without processes come last."""
    if gpu is not None:
        return frame.cached(_users, gpu)
    reported = (user for report in frame.reports.values() for user in report.users or ())
    return list(dict.fromkeys([*users_of(frame.processes), *reported]))


def _users(frame: Frame, gpu: Gpu) -> list[str]:
    report = frame.report(gpu)
    reported = report.users if report is not None else None
    return [*users_of(_on_gpu(frame, gpu)), *(reported or ())]


def _on_gpu(frame: Frame, gpu: Gpu) -> Sequence[Process]:
    return frame.compute_processes.get(gpu.uuid, ())


def users_of(processes: Iterable[Process]) -> list[str]:
    """Return the users of compute processes, most memory first."""
    held: dict[str, int] = {}
    for process in processes:
        user = process.user
        if user is not None and process.type != "G":
            held[user] = held.get(user, 0) + (process.gpu_memory or 0)
    return sorted(held, key=lambda user: (-held[user], user)) if len(held) > 1 else list(held)


def users_on(frame: Frame, gpu: Gpu, device: MigDevice | None = None) -> tuple[list[str], int]:
    """Return the users of a GPU or a MIG device, most memory first, and how many of the compute
    processes there have no known user."""
    if device is None:
        return users(frame, gpu), count_without_user(frame, gpu)
    here = frame.by_instance.get((gpu.uuid, *device.instance_ids), ())
    return users_of(here), sum(process.user is None for process in here)


def pending_reservation(
    frame: Frame, gpu: Gpu, device: MigDevice | None = None
) -> Reservation | None:
    """Return the reservation of a user who is not on the GPU or MIG device yet, or no longer;
    otherwise None."""
    reservation = (device or gpu).reservation
    there = reservation is not None and reservation.user in users_on(frame, gpu, device)[0]
    return None if there else reservation


def reserved_words(reservation: Reservation, now: float) -> str:
    """Say who has reserved a GPU, and for how long so far; `now` in seconds since the epoch."""
    age = duration(max(0.0, now - reservation.since))
    return f"reserved by {printable(reservation.user, 40)}, {age}"


def pending_job(frame: Frame, gpu: Gpu) -> SlurmJob | None:
    """Return the job of Slurm that holds a GPU and has nobody on it; otherwise None."""
    job = gpu.slurm_job
    if job is None:
        return None
    there = _on_gpu(frame, gpu) if job.user is None else job.user in users(frame, gpu)
    return None if there else job


def job_words(job: SlurmJob) -> str:
    """Say which job holds a GPU: `held by Slurm job 4711 of alice`."""
    number = "" if job.number is None else f" {printable(job.number, 20)}"
    return f"held by {'Slurm' if number else 'a Slurm'} job{number}" + (
        f" of {printable(job.user, 40)}" if job.user else ""
    )


def is_own_job(frame: Frame, job: SlurmJob) -> bool:
    """Whether gputop runs in a job itself."""
    return frame.host.surroundings.job == f"Slurm {job.number}"


def count_of_users(frame: Frame) -> str:
    """Return how many users compute, in words: never 0 if the driver does not list processes, or
    not those outside of a container."""
    count = sum(not user.startswith("(") for user in users(frame))
    if all(tells_users(frame, gpu) for gpu in frame.gpus):
        return counted(count, "user")
    return f"{counted(count, 'user')} seen" if count else "users unknown"


def tells_users(frame: Frame, gpu: Gpu) -> bool:
    """Whether all users of a GPU are known: by its processes, or by report."""
    report = frame.report(gpu)
    return gpu.listed == "all" or (report is not None and report.users is not None)


def count_without_user(frame: Frame, gpu: Gpu) -> int:
    """Return how many compute processes of a GPU have no known user, as in a container."""
    return sum(process.user is None for process in _on_gpu(frame, gpu))


def is_full(used: float, was_full: bool, limit: float = 0.95) -> bool:
    """Return whether the memory is full with this share of it in use (0 to 1): from the limit on,
    and if it was full until it is clearly below, so that use about the limit does not flicker."""
    return used >= limit - _MARGIN * was_full


def free_memory(frame: Frame, gpu: Gpu) -> int | None:
    """Return the bytes that a job could have; None if not known. If the system manages the memory,
    that is what no process on the GPU holds; if it is the machine's own RAM, what is free."""
    if gpu.state != "answers":
        return None
    if is_unified(gpu):
        total, used = frame.host.memory_total, frame.host.memory_used
        return None if total is None or used is None else total - used
    if gpu.numa_node is None:
        return gpu.memory_free
    held = [process.gpu_memory for process in frame.processes if process.gpu_uuid == gpu.uuid]
    if gpu.memory_total is None or None in held or gpu.listed != "all":
        return None
    return max(0, gpu.memory_total - sum(filter(None, held)))


def draws_only(frame: Frame, gpu: Gpu) -> bool:
    """Whether a GPU has processes, all of which draw a screen and none computes."""
    types = {process.type for process in frame.processes if process.gpu_uuid == gpu.uuid}
    return types == {"G"}
