"""What of a frame is recorded: of other users, of secrets, of digits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.model.machine.environment import (
    CudaContext,
    Environ,
    RelatedProcess,
)
from gputop.model.machine.frame import Process
from gputop.model.machine.gpu import DeviceHolder, Reservation
from gputop.model.machine.origin import Ancestor, Container, Origin
from gputop.model.machine.sections import Pcie
from gputop.model.machine.text import MIB
from gputop.protocol.codec import encode
from gputop.recording.contents import Commands, recorded
from tests.builders import frame, gpu, process

ENVIRON = Environ({"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICE": "hush"})
ORIGIN = Origin(
    cwd="/home/x/hush", venv="/home/x/hush", ancestors=(Ancestor(1, "hush"),), session="tmux hush",
    ssh_from="10.0.0.hush", container=Container("c" * 64, name="box"), pod="p", slurm_job="4711",
    unit="u.service",
)  # fmt: skip
COMMAND = "/usr/bin/python3 -u /opt/train.py --data hush --api-key hf_abcdefghij0123456789"
CONTEXT = CudaContext(
    ENVIRON, minors=(0,), descendant=RelatedProcess(7, ENVIRON), ancestor=RelatedProcess(3, ENVIRON)
)


def of(user: str | None, command: str = COMMAND) -> Process:
    return process(1, user=user, command=command, origin=ORIGIN, cuda_context=CONTEXT)


def only(user: str | None, commands: Commands, command: str = COMMAND) -> Process:
    [process] = recorded(frame(processes=[of(user, command)]), commands, "me").processes
    return process


@pytest.mark.parametrize("user", ["bob", None, "1001"])
@pytest.mark.parametrize(("commands", "shown"), [("none", None), ("script", "train.py")])
def test_of_others(commands: Commands, shown: str | None, user: str | None) -> None:
    process = only(user, commands)
    assert process.command == shown
    assert process.origin == Origin(
        container=ORIGIN.container, pod="p", slurm_job="4711", unit="u.service"
    )
    assert process.cuda_context is not None
    assert process.cuda_context.minors == (0,)
    assert b"hush" not in encode(process)
    assert b"0,1" not in encode(process)


def test_all_of_others_is_without_secrets_and_variables() -> None:
    process = only("bob", "all")
    assert process.command == COMMAND.replace("hf_abcdefghij0123456789", "***")
    assert process.origin == ORIGIN
    assert b"VISIBLE" not in encode(process)


@pytest.mark.parametrize("commands", ["none", "script", "all"])
def test_ones_own_is_whole_without_secrets(commands: Commands) -> None:
    expected = of("me", COMMAND.replace("hf_abcdefghij0123456789", "***"))
    assert only("me", commands) == expected


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python -m torch.distributed.run x.py --key v", "torch.distributed.run"),
        ("python -c import_os;print('hush')", "python"),
        ("VLLM::EngineCore hush", "VLLM::EngineCore"),
        ("bash -lc hush", "bash"),
        ("/opt/hf_abcdefghij0123456789 x", "***"),
        ("", None),
    ],
)
def test_the_name_of_a_script(command: str, shown: str | None) -> None:
    assert only("bob", "script", command).command == shown


def test_commands_are_cut() -> None:
    """What a user calls a script is written again at each start."""
    command = "python " + "train_me-" * 400
    assert len(only("bob", "script", command).command or "") == 128
    assert len(only("bob", "all", command).command or "") == 1024


def test_who_holds_a_gpu() -> None:
    holders = tuple(
        DeviceHolder(
            pid=1, start_ticks=7, start_time=1.0, user=user, command=COMMAND, reason="open"
        )
        for user in ("bob", "me")
    )
    seen = recorded(frame([gpu(holders=holders)]), "script", "me").gpus[0].holders
    assert seen[0] == replace(holders[0], command="train.py")
    assert seen[1].command is not None
    assert seen[1].command.endswith("--api-key ***")


def test_nobody_is_oneself_where_that_is_not_known() -> None:
    [process] = recorded(frame(processes=[of(None)]), "script", None).processes
    assert process.command == "train.py"


def test_numbers_are_as_fine_as_anybody_reads_them() -> None:
    busy = process(
        1, cpu=1.2345, rss=4_321_012_345, io_read=123_456_789.4, io_write=0.0, idle_for=12.34,
        gpu_memory=12_345_678, sm_utilization=0.123,
    )  # fmt: skip
    card = gpu(power=123.456, pcie=Pcie(tx=98_765.4), idle_for=0.4)
    seen = recorded(frame([card], [busy]), "all", None)
    assert seen.processes[0] == replace(
        busy, cpu=1.23, rss=4121 * MIB, io_read=123_000_000.0, idle_for=12.0
    )
    assert seen.gpus[0] == gpu(power=123.456, pcie=Pcie(tx=98_800.0), idle_for=0.0)
    assert recorded(frame([gpu()], [process(1)]), "all", None) == frame([gpu()], [process(1)])


@pytest.mark.parametrize(("user", "shown"), [("me", COMMAND[:40]), ("bob", "train.py")])
def test_who_has_reserved_a_gpu(user: str, shown: str) -> None:
    reserved = gpu(reservation=Reservation(user=user, since=1.0, command=COMMAND[:40]))
    reservation = recorded(frame([reserved]), "script", "me").gpus[0].reservation
    assert reservation == Reservation(user=user, since=1.0, command=shown)
