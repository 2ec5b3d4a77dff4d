"""Marks on the screen: GPUs until they are free, processes until they have ended."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.conditions.marks import Marks
from gputop.model.machine.frame import Frame, Host, Problem
from gputop.model.machine.gpu import Gpu, GpuPart, MigDevice, parts_of
from gputop.model.machine.process_id import LivenessState, ProcessLiveness
from gputop.model.machine.sections import Activity
from tests.builders import GIB, frame, gpu, id_of, process

BUSY = frame([gpu(0), gpu(1)], [process(1, on=0), process(2, on=0)])
EMPTY = frame([gpu(0), gpu(1)])


def answer(pid: int, state: LivenessState = "running") -> ProcessLiveness:
    return ProcessLiveness(process=id_of(pid), state=state)


def marked(shown: Frame = BUSY, *answers: ProcessLiveness) -> Marks:
    """Marks on all processes of a frame, once the agent has told of them."""
    marks = Marks()
    marks.toggle_processes(shown, map(shown.key, shown.processes))
    assert marks.receive_liveness(answers, shown) == []
    return marks


def test_a_gpu_until_it_is_free() -> None:
    marks = Marks()
    assert marks.toggle_gpu(BUSY, GpuPart(BUSY.gpus[0]))
    assert marks.has_gpu(GpuPart(BUSY.gpus[0]))
    problem = Problem(code="driver_not_loaded", text="no driver", advice="load it")
    for shown in (BUSY, replace(EMPTY, problem=problem, gpus=()), frame([gpu(0, stale_for=2.0)])):
        assert marks.receive_frame(shown) == []
    [news] = marks.receive_frame(EMPTY)
    assert news == ("GPU 0 is free", "GPU 0 is free on node")
    assert not marks.has_gpu(GpuPart(EMPTY.gpus[0]))
    assert marks.receive_frame(EMPTY) == []


def test_a_gpu_that_has_not_answered_keeps_its_mark_when_it_does() -> None:
    marks, waking = Marks(), frame([Gpu(index=0), gpu(1)])
    assert marks.toggle_gpu(waking, GpuPart(waking.gpus[0]))
    assert marks.receive_frame(waking) == marks.receive_frame(BUSY) == []
    assert marks.has_gpu(GpuPart(BUSY.gpus[0]))
    assert [news.short for news in marks.receive_frame(EMPTY)] == ["GPU 0 is free"]


def test_the_mark_comes_off_again_and_what_is_free_gets_none() -> None:
    marks = Marks()
    assert [marks.toggle_gpu(BUSY, GpuPart(BUSY.gpus[0])) for _ in range(2)] == [True, True]
    assert not marks.toggle_gpu(BUSY, GpuPart(BUSY.gpus[1]))
    assert not any(map(marks.has_gpu, parts_of(BUSY.gpus)))
    assert marks.receive_frame(EMPTY) == []


def test_a_mig_device_by_itself() -> None:
    activity = Activity(graphics=0.0)
    devices = tuple(
        MigDevice(gi=gi, ci=0, memory_total=GIB, memory_used=0, activity=activity) for gi in (1, 2)
    )
    divided = gpu(mig_mode=True, mig=devices, utilization=None)
    there = frame([divided], [process(1, gpu_instance=1, compute_instance=0)])
    marks = Marks()
    assert marks.toggle_gpu(there, GpuPart(divided, devices[0]))
    assert not marks.has_gpu(GpuPart(divided))
    assert not marks.has_gpu(GpuPart(divided, devices[1]))
    assert marks.receive_frame(there) == []
    assert [news.short for news in marks.receive_frame(frame([divided]))] == ["GPU 0:1 is free"]


def test_a_process_until_the_agent_says_that_it_has_ended() -> None:
    marks = marked()
    assert [marks.has_process(pid) for pid in (1, 2, 3)] == [True, True, False]
    assert marks.questions(BUSY) == (id_of(1), id_of(2))
    assert marks.receive_liveness([answer(1), answer(2, "unknown")], BUSY) == []
    assert marks.questions(BUSY) == (id_of(2),)
    marks.receive_liveness([answer(2)], BUSY)
    assert marks.questions(BUSY) == ()
    assert marks.receive_frame(EMPTY) == [], "it may have left the GPUs alone"
    assert marks.questions(EMPTY) == (id_of(1), id_of(2))
    [news] = marks.receive_liveness([answer(1, "ended"), answer(2)], EMPTY)
    assert news.short == "train.py (PID 1) has ended"
    assert news.sentence == "train.py (PID 1) of alice has ended on node after 16m40s"
    assert not marks.has_process(1)


def test_one_that_ended_at_once() -> None:
    """Before the agent was asked: the PID is nobody's, or another one's, which may be listed."""
    another = frame(processes=[process(1, start_time=1500.0), process(2)])
    for shown in (BUSY, another):
        marks = marked()
        assert marks.receive_frame(shown) == []
        assert marks.questions(shown) == (id_of(1), id_of(2))
        [news] = marks.receive_liveness([answer(1, "ended")], shown)
        assert news.short == "train.py (PID 1) has ended"


def test_another_agent_reckons_other_seconds() -> None:
    """The clock was set meanwhile: the start in ticks is the same."""
    marks = marked(BUSY, answer(1), answer(2))
    later = frame(processes=[process(1, start_ticks=id_of(1).start_ticks, start_time=4000.0)])
    assert marks.receive_frame(later) == []
    assert marks.questions(later) == (id_of(2),)
    assert marks.has_process(1)


def test_one_that_no_agent_can_tell_of() -> None:
    """As a PID of the host in a container: it is not asked about a process of that number here."""
    there = frame(processes=[process(1, start_time=None, elsewhere=True, user=None, command=None)])
    marks = marked(there)
    assert marks.questions(there) == ()
    assert [news.short for news in marks.receive_frame(frame())] == [
        "process (PID 1) has left the GPUs"
    ]


def test_a_group_is_marked_and_unmarked_as_one() -> None:
    marks, keys = Marks(), [BUSY.key(row) for row in BUSY.processes]
    marks.toggle_processes(BUSY, keys[:1])
    marks.toggle_processes(BUSY, keys)
    assert [marks.has_process(pid) for pid in (1, 2)] == [True, True]
    marks.toggle_processes(BUSY, keys)
    assert [marks.has_process(pid) for pid in (1, 2)] == [False, False]


def test_a_reboot() -> None:
    again = replace(EMPTY, host=Host(name="node", boot_id="next"))
    assert len(marked(BUSY, answer(1), answer(2)).receive_frame(again)) == 2
