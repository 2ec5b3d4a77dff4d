"""Frames without what somebody wrote or is called."""

from __future__ import annotations

from msgspec.json import decode, encode
from msgspec.structs import replace

from gputop.model.doctor.redaction import Redaction
from gputop.model.machine.environment import (
    CudaContext,
    Environ,
    RelatedProcess,
)
from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.gpu import DeviceHolder, Reservation, SlurmJob
from gputop.model.machine.origin import Ancestor, Container, Origin
from tests import builders

SECRET = "s3cret"
VARIABLES = Environ({"CUDA_VISIBLE_DEVICES": SECRET, "CUDA_DEVICE_ORDER": ""})
AROUND = CudaContext(
    environ=VARIABLES,
    minors=(0,),
    descendant=RelatedProcess(7, VARIABLES),
    ancestor=RelatedProcess(3, VARIABLES),
)
PLACE = Origin(
    cwd=SECRET, venv=SECRET, ancestors=(Ancestor(1, SECRET),), session=SECRET, ssh_from=SECRET,
    container=Container(SECRET, "docker", SECRET, SECRET), pod=SECRET, slurm_job=SECRET,
    slurm_step=SECRET, unit=SECRET,
)  # fmt: skip


def told(*users: str | None) -> Frame:
    """A frame with a secret wherever somebody may have written one."""
    opener = DeviceHolder(
        pid=9, start_ticks=7, start_time=1.0, user=SECRET, command=SECRET, reason="open"
    )
    wanted = [
        builders.process(
            n, user=user, command=f"python {SECRET}", origin=PLACE, cuda_context=AROUND
        )
        for n, user in enumerate(users, 1)
    ]
    reservation = Reservation(user=SECRET, since=1.0, command=SECRET)
    job = SlurmJob(number=SECRET, user=SECRET)
    gpu = builders.gpu(holders=(opener,), reservation=reservation, slurm_job=job)
    frame = builders.frame([gpu], wanted)
    return replace(frame, host=Host(name=SECRET, boot_id=SECRET))


def test_no_secret_is_left() -> None:
    whole = told(f"{SECRET}-a", None)
    frame = Redaction().frame(whole)
    assert SECRET in encode(whole).decode()
    assert SECRET not in encode(frame).decode()
    assert decode(encode(frame), type=Frame) == frame
    first, other = frame.processes
    assert (first.user, first.command, other.user) == ("user2", "(13 characters)", None)
    assert first.cuda_context is not None
    assert first.cuda_context.minors == (0,)
    assert first.cuda_context.environ.variables == {
        "CUDA_VISIBLE_DEVICES": "(6 characters)",
        "CUDA_DEVICE_ORDER": "",
    }
    assert frame.gpus[0].holders[0].user == "user1"
    assert frame.gpus[0].reservation == Reservation(
        user="user1", since=1.0, command="(6 characters)"
    )
    assert frame.gpus[0].slurm_job == SlurmJob(user="user1")
    assert frame.gpus[0].uuid == whole.gpus[0].uuid


def test_a_user_has_one_number_in_all_frames() -> None:
    redaction = Redaction()
    numbers = [
        [process.user for process in redaction.frame(told(*users)).processes]
        for users in (("alice", "bob", "alice"), ("bob", "carol"))
    ]
    assert numbers == [["user2", "user3", "user2"], ["user3", "user4"]]
