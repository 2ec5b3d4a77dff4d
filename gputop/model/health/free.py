"""What "free" means wherever gputop says it: in the heading, beside a GPU, in the mapping, in
`gputop free`, `--once` and `--json`; and who is on a GPU that is not.

A GPU is free if no process computes on it, little of its memory is in use, it is healthy, its mode
lets a job have it, it is not reserved or held by a job of Slurm, and it is not at work. If in
doubt, it is not free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from gputop.model.health.findings import blocking
from gputop.model.health.unaccounted import is_notable
from gputop.model.machine.finding import Finding, Level
from gputop.model.machine.frame import Frame, GpuReport, Process
from gputop.model.machine.gpu import Gpu, Listing, MigDevice
from gputop.model.machine.limits import is_unified
from gputop.model.machine.summary import (
    draws_only,
    is_own_job,
    job_words,
    pending_job,
    pending_reservation,
    reserved_words,
    tells_users,
    users_of,
    users_on,
)
from gputop.model.machine.text import MISSING, percent, printable, size

AT_WORK = 0.1
"""Utilization above which a GPU is at work, even if no process is seen; idle cards show a few
percent for a moment."""
UNSEEN = (
    "whether others are on it cannot be seen from inside a container"
    " (gputop free --shared --min-free SIZE goes by memory alone)"
)
JOBS_UNSEEN = "whether a Slurm job holds it cannot be read"

ObjectionCode = Literal[
    "health", "silent", "mode", "reserved", "job", "unseen", "unlisted", "users", "exclusive",
    "memory", "work",
]  # fmt: skip
"""
health    it is lost, or has a finding that keeps new work off it
silent    it does not answer, its UUID is not known, or it is asleep and is not asked
mode      it is in MIG mode, where a job gets an instance, or no program may use it
reserved  somebody has it with `gputop run` or `gputop reserve`
job       a job of Slurm holds it, other than gputop's own
unseen    gputop sees only the processes of its own container, or not what Slurm's jobs hold
unlisted  the driver does not list its processes
users     processes compute on it
exclusive processes compute on it, and its mode lets no others in
memory    its memory is in use, by no process seen to compute, or how much is in use is not known
work      it is at work, or its utilization is not known
"""


WORDS = (
    ("needs attention", "an error keeps new work off it; H says which"),
    ("lost", "the driver cannot reach the card any more"),
    ("no answer", "it does not answer, or its UUID is not known"),
    ("asleep", "powered down until it is used; a query would wake it"),
    ("MIG mode", "a job gets a slice (MIG device), not the GPU"),
    ("prohibited", "its compute mode keeps programs off it"),
    ("reserved", "somebody has it with gputop run or gputop reserve"),
    ("reserved?", "reservations have not been read yet, or cannot be"),
    ("Slurm job", "a job of Slurm holds it, with a process on it or without"),
    ("jobs unseen", "Slurm's jobs run here, and which GPUs they hold cannot be read"),
    ("none seen", "in a container: processes outside of it cannot be seen"),
    ("not listed", "the driver does not list its processes"),
    ("in use", "somebody's processes compute on it"),
    ("2.00G in use", "memory is in use, and no process is seen to hold it"),
    ("memory unknown", "how much of its memory is in use is not known"),
    ("97 % busy", "at work, though no process is seen on it"),
    ("load unknown", "its utilization is not known"),
)
"""Every `Objection.short`, with figures as examples, and what it means."""


class Objection(Finding, frozen=True, kw_only=True):
    """Why a GPU or MIG device is not free: an `error` if it needs attention, `info` if it is taken,
    a `warning` if it may be free and that cannot be found out. The text is a clause about the GPU.
    """

    code: ObjectionCode
    short: str
    """A word or two, for a cell."""

    @property
    def is_sure(self) -> bool:
        """Whether the GPU is known not to be free."""
        return self.level != "warning"


def _objection(code: ObjectionCode, short: str, text: str, level: Level = "info") -> Objection:
    return Objection(level=level, code=code, short=short, text=text)


def is_free(frame: Frame, gpu: Gpu, device: MigDevice | None = None) -> bool:
    """Whether a new job could have a GPU, or a MIG device of it, and be in nobody's way."""
    return not_free(frame, gpu, device) is None


def not_free(frame: Frame, gpu: Gpu, device: MigDevice | None = None) -> Objection | None:
    """Return the first reason why a GPU or a MIG device of it is not free; None if it is free."""
    return frame.cached(_first, gpu, device)


def _first(frame: Frame, gpu: Gpu, device: MigDevice | None) -> Objection | None:
    return next(objections(frame, gpu, device), None)


def is_doubtful(frame: Frame, gpu: Gpu, device: MigDevice | None = None) -> bool:
    """Whether it is not known if a GPU or a MIG device is free. One that does not answer any more
    is known not to be."""
    first = not_free(frame, gpu, device)
    if first is None or first.is_sure or gpu.state == "silent":
        return False
    return not any(reason.is_sure for reason in objections(frame, gpu, device))


def count_of_free(frame: Frame) -> int | None:
    """Return how many GPUs are free; None if none is, but that is not known of some."""
    return _count(frame, [(gpu, None) for gpu in frame.gpus])


def _count(frame: Frame, parts: Sequence[tuple[Gpu, MigDevice | None]]) -> int | None:
    against = [not_free(frame, *part) for part in parts]
    is_unseen = any(reason and reason.code in ("unseen", "unlisted") for reason in against)
    is_unknown = is_unseen or any(is_doubtful(frame, *part) for part in parts)
    return against.count(None) or (None if is_unknown else 0)


class FreeSlices(NamedTuple):
    """How many MIG devices are free, of how many."""

    free: int | None = None
    """None if none is free, but that is not known of some."""
    total: int = 0

    @property
    def words(self) -> str:
        """As `1 of 7 slices`; empty without slices, or if it is not known."""
        return "" if self.free is None or not self.total else f"{self.free} of {self.total} slices"


def free_slices(frame: Frame) -> FreeSlices:
    """Count the free MIG devices."""
    slices = [(gpu, device) for gpu in frame.gpus for device in gpu.mig or ()]
    return FreeSlices(_count(frame, slices), len(slices))


def free_words(frame: Frame) -> list[str]:
    """Return `3 free` for GPUs, `1 of 7 slices free` for MIG devices; the first is left out where
    all GPUs are in MIG mode, the second where there are none, and what is not known."""
    free, slices = count_of_free(frame), free_slices(frame)
    words = [f"{free} free"] if free is not None and has_whole_gpus(frame) else []
    return [*words, f"{slices.words} free"] if slices.words else words


def has_whole_gpus(frame: Frame) -> bool:
    """Return whether a job could have a GPU here, or else slices only."""
    return not any(gpu.mig for gpu in frame.gpus) or any(not gpu.mig_mode for gpu in frame.gpus)


def jobs_note(frame: Frame) -> str | None:
    """Return a sentence where it is not known which GPUs the jobs of Slurm hold; otherwise None."""
    if not frame.host.jobs_unknown:
        return None
    return "Slurm's jobs run here, and which GPUs they hold cannot be read: only root can"


def objections(frame: Frame, gpu: Gpu, device: MigDevice | None = None) -> Iterator[Objection]:
    """Yield every reason against it: first its state and mode, then its users. Each is worked out
    only when it is asked for."""
    if (report := frame.report(gpu)) is not None:
        yield from _reported(report)
        return
    if gpu.state != "answers" or gpu.uuid is None:
        yield from _state(gpu)
    if device is None and (gpu.mig_mode or gpu.compute_mode == "prohibited"):
        yield from _mode(gpu)
    here = processes_on(frame, gpu, device)
    if not here:
        yield from _claims(frame, gpu, device)
    if gpu.listed != "all":
        yield _unlisted(gpu.listed)
    if here:
        yield _in_use(gpu, here)
        yield from _claims(frame, gpu, device)
    if gpu.state != "lost" and (sick := blocking(frame, gpu)):
        yield _objection(
            "health", "needs attention", f"it needs attention (gputop doctor): {sick.text}", "error"
        )
    yield from _memory(gpu, device)
    yield from _work(gpu, device)


_BY_REPORT: dict[str, tuple[ObjectionCode, str]] = {
    "health": ("health", "needs attention"),
    "silent": ("silent", "no answer"),
    "mode": ("mode", "MIG mode"),
    "reserved": ("reserved", "reserved"),
}
"""The objection and its short text for the code in a report; the rest means that it is in use."""


def _reported(report: GpuReport) -> Iterator[Objection]:
    if report.free is None:
        text = "whether it is free is not reported"
        yield _objection("unlisted", "not listed", text, "warning")
    elif not report.free:
        code, short = _BY_REPORT.get(report.reason, ("users", "in use"))
        yield _objection(code, short, f"it is reported as not free: {short}")


def _state(gpu: Gpu) -> Iterator[Objection]:
    if gpu.state == "lost":
        yield _objection("health", "lost", printable(gpu.reported_error or "", 200), "error")
    if gpu.is_overdue:
        yield _objection("silent", "no answer", "it does not answer", "warning")
    elif gpu.uuid is None:
        text = "its UUID is not known" if gpu.has_answered else "it has not answered yet"
        yield _objection("silent", "no answer", text, "warning")
    if gpu.state == "asleep":
        text = "it is asleep, and asking who is on it would wake it"
        yield _objection("silent", "asleep", text, "warning")


def _mode(gpu: Gpu) -> Iterator[Objection]:
    if gpu.mig_mode:
        text = "it is in MIG mode, where a job gets a slice (nvidia-smi -L), not the GPU"
        yield _objection("mode", "MIG mode", text)
    if gpu.compute_mode == "prohibited":
        yield _objection("mode", "prohibited", "its compute mode is prohibited")


def _claims(frame: Frame, gpu: Gpu, device: MigDevice | None) -> Iterator[Objection]:
    """Yield who has a right to it, whether anybody is on it or not."""
    job = gpu.slurm_job
    if job is not None and not is_own_job(frame, job):
        yield _objection("job", "Slurm job", f"it is {job_words(job)}")
    for reservation in (gpu.reservation, None if device is None else device.reservation):
        if reservation is not None:
            words = reserved_words(reservation, frame.time)
            yield _objection("reserved", "reserved", f"it is {words}")
    if frame.host.reservations_unknown:
        yield _objection("unseen", "reserved?", "whether it is reserved is not known", "warning")
    if job is None and frame.host.jobs_unknown:
        yield _objection("unseen", "jobs unseen", JOBS_UNSEEN, "warning")


def _unlisted(listed: Listing) -> Objection:
    if listed == "ours":
        return _objection("unseen", "none seen", UNSEEN, "warning")
    text = "the driver does not say who is on it"
    if listed == "unknown":
        text = "who is on it has not been seen yet"
    return _objection("unlisted", "not listed", text, "warning")


def _in_use(gpu: Gpu, here: Sequence[Process]) -> Objection:
    unknown = [process.user for process in here].count(None)
    exclusive = (gpu.compute_mode or "").startswith("exclusive")
    who = [printable(user, 40) for user in users_of(here)]
    who += [f"{unknown} of unknown users"] if unknown else []
    mode = ", and its compute mode is exclusive" if exclusive else ""
    code: ObjectionCode = "exclusive" if exclusive else "users"
    return _objection(code, "in use", f"processes of {', '.join(who)}{mode}")


def processes_on(frame: Frame, gpu: Gpu, device: MigDevice | None) -> Sequence[Process]:
    """Return the compute processes there; for a MIG device also those of an unknown instance."""
    here = frame.compute_processes.get(gpu.uuid, ())
    if device is None:
        return here
    return [
        process
        for process in here
        if process.gpu_instance in (None, device.gi)
        and process.compute_instance in (None, device.ci)
    ]


def _memory(gpu: Gpu, device: MigDevice | None) -> Iterator[Objection]:
    if gpu.numa_node is not None or is_unified(gpu):
        return  # its memory is the system's: what is in use says nothing about the GPU
    used = (device or gpu).memory_used
    if used is None:
        text = "how much of its memory is in use is not known"
        yield _objection("memory", "memory unknown", text, "warning")
    elif is_notable(used):
        hidden = gpu.memory_unaccounted is None or is_notable(gpu.memory_unaccounted)
        holder = "by nobody who can be seen from here" if hidden else "by graphics processes"
        yield _objection("memory", f"{size(used)} in use", f"{size(used)} in use, {holder}")


def _work(gpu: Gpu, device: MigDevice | None) -> Iterator[Objection]:
    """Yield what speaks against it by its load; of a MIG device only GPM's activity is known."""
    utilization = (device or gpu).utilization
    if device is None and utilization is None:
        yield _objection("work", "load unknown", "its utilization is not known", "warning")
    if utilization is not None and utilization > AT_WORK:
        text = f"{utilization * 100:.3g} % busy, more than {AT_WORK * 100:g} %"
        yield _objection("work", f"{percent(utilization)} % busy", text)


def who(frame: Frame, gpu: Gpu, device: MigDevice | None = None) -> str:
    """Return the users of a GPU or MIG device, most memory first, and who has reserved
    or holds it; or `free`, or why neither can be said."""
    people, unnamed = users_on(frame, gpu, device)
    words = [" ".join([*people, *([f"{unnamed} not in /proc"] if unnamed else [])])]
    reservation = pending_reservation(frame, gpu, device)
    if reservation is not None:
        words.append(reserved_words(reservation, frame.time))
    if device is None and (job := pending_job(frame, gpu)) is not None:
        words.append(job_words(job))
    return " ".join(filter(None, words)) or vacancy(frame, gpu, device) or MISSING


def vacancy(frame: Frame, gpu: Gpu, device: MigDevice | None) -> str | None:
    """Return what a GPU or MIG device without users is: `free`, or another word; None: unknown."""
    if gpu.state == "asleep":
        return "asleep"
    if gpu.listed == "ours":
        return "none seen" if device is None else None
    if is_free(frame, gpu, device):
        return "free"
    if gpu.listed == "none" and not tells_users(frame, gpu):
        return "not listed" if device is None else None
    if device is None and gpu.mig_mode and gpu.mig is not None:
        return f"{len(gpu.mig)} MIG" if gpu.mig else "no MIG device"
    memory = (gpu if device is None else device).memory_used
    is_told = memory is not None or (device is None and is_unified(gpu))
    if not is_told or gpu.is_overdue:
        return None
    if device is None and is_notable(gpu.memory_unaccounted):
        return "unaccounted"
    return "display" if device is None and draws_only(frame, gpu) else "no process"
