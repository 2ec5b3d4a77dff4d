"""A reader keeps what it has made of the facts of GPUs and processes for the next frame; whatever
changes in between, a frame is the same as if it were the first."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.sections import Clocks, Pcie, Throttle
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import encode_line
from gputop.protocol.split import Splitter
from tests import builders
from tests.protocol.streams import HELLO

RATIOS = st.sampled_from([None, 0.0, 0.25, 1.0])
NUMBERS = st.sampled_from([None, 0, 7, 1 << 40])
THROTTLE = st.builds(
    Throttle,
    reasons=st.sampled_from([(), ("sw_power_cap",), ("hw_slowdown", "hw_thermal_slowdown")]),
    shares=st.sampled_from([{}, {"sw_power_cap": 0.5}]),
)
SECTIONS: dict[str, Any] = {
    "pcie": st.none() | st.builds(Pcie, generation=NUMBERS, tx=RATIOS),
    "clocks": st.none() | st.builds(Clocks, video=NUMBERS),
    "throttle": st.none() | THROTTLE,
}


@st.composite
def gpus(draw: st.DrawFn, index: int) -> Gpu:
    facts = {"power_limit": draw(RATIOS), "listed": draw(st.sampled_from(["all", "none"]))}
    values = {"utilization": draw(RATIOS), "memory_used": draw(NUMBERS)}
    sections = {name: draw(section) for name, section in SECTIONS.items()}
    return builders.gpu(index, **facts, **values, **sections)


@st.composite
def processes(draw: st.DrawFn, pid: int) -> Process:
    command = draw(st.sampled_from(["a", "b"]))
    return builders.process(pid, command=command, gpu_memory=draw(NUMBERS), cpu=draw(RATIOS))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """GPUs and processes of a few, in any order, with any values."""
    indices = draw(st.lists(st.integers(0, 3), unique=True, min_size=1))
    pids = draw(st.lists(st.integers(1, 4), unique=True))
    return builders.frame(
        [draw(gpus(index)) for index in indices], [draw(processes(pid)) for pid in pids]
    )


class Stream:
    """The messages of an agent, and their reader."""

    def __init__(self) -> None:
        self._splitter, self.assembler = Splitter(), Assembler()
        self._number = 0
        self._read(HELLO)

    def pass_on(self, frame: Frame) -> Frame:
        """What the reader makes of a frame."""
        *_, made = [self._read(message) for message in self._splitter.split(frame)]
        assert isinstance(made, Frame)
        return made

    def _read(self, message: Any) -> Any:
        self._number += 1
        return self.assembler.read(encode_line(self._number - 1, message))


@given(st.lists(frames(), min_size=2, max_size=6))
def test_a_frame_is_what_it_would_be_as_the_first(sequence: list[Frame]) -> None:
    stream = Stream()
    for frame in sequence:
        assert stream.pass_on(frame) == frame == Stream().pass_on(frame)


@given(frames(), frames())
def test_a_fork_goes_its_own_way(before: Frame, after: Frame) -> None:
    stream = Stream()
    stream.pass_on(before)
    fork = stream.assembler.fork()
    changed = list(Splitter().split(after))
    assert [fork.read_again(encode_line(0, message)) for message in changed][-1] == after
    assert stream.pass_on(after) == after
    assert stream.pass_on(before) == before
