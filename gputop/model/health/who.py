"""Who is on a GPU, in words; or why nobody is named."""

from __future__ import annotations

from gputop.model.health.free import is_free
from gputop.model.health.unaccounted import is_notable
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.limits import is_unified
from gputop.model.machine.summary import (
    draws_only,
    job_words,
    pending_job,
    pending_reservation,
    reserved_words,
    tells_users,
    users_on,
)
from gputop.model.machine.text import MISSING


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
