"""What is waited for, over frames whose times are made up."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.conditions.ended import AwaitedProcess, EndOfProcesses, end_of, names_of
from gputop.model.machine.frame import Frame, Host, Problem
from gputop.model.machine.process_id import LivenessState, ProcessId, ProcessLiveness
from tests.builders import frame, gpu, process

PROBLEM = Problem(code="driver_not_loaded", text="no driver", advice="load it")


def train(pid: int = 123, followed: bool = True) -> AwaitedProcess:
    return AwaitedProcess(
        id=ProcessId(pid, 7),
        is_followed=followed,
        start_time=1000.0,
        user="alice",
        command="python train.py -x",
    )


def live(pid: int, state: LivenessState) -> ProcessLiveness:
    return ProcessLiveness(process=ProcessId(pid, 7), state=state)


def test_the_agent_alone_says_who_has_ended() -> None:
    """To leave the GPUs is not to end; nor is what could not be looked at."""
    end = EndOfProcesses([train(), train(124)], "boot")
    assert end.receive_frame(frame()) == []
    assert [process.pid for process in end.followed] == [123, 124]
    assert end.receive_liveness([live(123, "unknown"), live(124, "ended")]) == [train(124)]
    assert list(end.running) == [123]
    assert end.receive_liveness([live(123, "running"), live(124, "ended")]) == []
    assert end.receive_liveness([live(123, "ended")]) == [train()]
    assert (end.running, end.followed) == ({}, ())


def test_who_cannot_be_asked_for_ends_by_leaving_the_gpus() -> None:
    """But not while a GPU, or the driver, does not say who is there."""
    end = EndOfProcesses([train(followed=False)], "boot")
    assert end.followed == ()
    on_it = frame(processes=[process(123)])
    silent = [frame([gpu(**values)]) for values in (
        {"stale_for": 3.0}, {"error": "lost"}, {"state": "asleep"}, {"listed": "none"},
    )]  # fmt: skip
    for seen in (on_it, *silent, replace(frame(), problem=PROBLEM, gpus=())):
        assert end.receive_frame(seen) == []
    assert end.receive_frame(frame()) == [train(followed=False)]


def test_a_reboot_ends_all() -> None:
    end = EndOfProcesses([train(), train(124)], "boot")
    unknown = replace(frame(), host=Host(name="node", boot_id=None))
    assert end.receive_frame(unknown) == []
    again = replace(frame(), host=Host(name="node", boot_id="another"), problem=PROBLEM)
    assert end.receive_frame(again) == [train(), train(124)]


def test_sentences() -> None:
    def last(host: str, time: float) -> Frame:
        return replace(frame(), host=Host(name=host), time=time)

    assert end_of(train(), last("node-07", 1000.0 + 8040)) == (
        "train.py (PID 123) of alice has ended on node-07 after 2h14m"
    )
    assert end_of(train(followed=False), last("n", 1001.0)).endswith(
        "has left the GPUs on n after 1s"
    )
    nobody = AwaitedProcess(id=ProcessId(9), is_followed=True)
    hostile_name = end_of(nobody, last("n\x1b]0;x\x07", 5.0))
    assert hostile_name == "process (PID 9) has ended on n\ufffd]0;x\ufffd"
    hostile = replace(train(), command="\x1b]9;\x07 a", user="e\nve")
    assert str(hostile) == "\ufffd]9;\ufffd (PID 123) of e\ufffdve"
    many = [train(pid) for pid in range(1, 8)]
    assert names_of(many).endswith("train.py (PID 5) of alice and 2 more")
