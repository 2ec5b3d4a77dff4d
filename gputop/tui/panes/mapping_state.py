"""The mapping query and its result, shared by all screens so that they agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gputop.model.cuda.enumeration import ORDERS, CudaDevice
from gputop.model.cuda.export import corrected_line, export_line, why_no_line
from gputop.model.cuda.inventory import Inventory, frame_inventory, usage_of, without
from gputop.model.cuda.mapping import Mapping
from gputop.model.cuda.mapping_query import (
    MappingQuery,
    MappingResult,
    completion,
    judge,
    mapping_result,
    suggest,
)
from gputop.model.cuda.pick import GpuPick
from gputop.model.cuda.probe import ProbeResult, answer_to
from gputop.model.cuda.process_mapping import ProcessMapping
from gputop.model.machine.finding import Finding, has_error
from gputop.model.machine.frame import Frame
from gputop.model.machine.probed import Probed
from gputop.protocol.messages import Probe, Reply
from gputop.sources.source import Moment

_KEPT_FRAMES = 5
"""The number of frames for which a GPU must be idle before it is offered."""
_MAX_PROBED = 16
_NOT_ASKED: dict[Moment, str] = {
    "past": "the driver can only be asked about now: Esc returns",
    "replay": "a replay has no driver to ask",
}
_REQUEST = "mapping"
"""The id of the requests for a probe."""


class InputHistory:
    """Lines that were entered; an unfinished line keeps its place after them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._index = 0
        self._unfinished = ""

    def enter(self, line: str) -> None:
        """Add a finished line, unless it repeats the last one."""
        if self._lines[-1:] != [line]:
            self._lines.append(line)
        self._index, self._unfinished = len(self._lines), line

    def move(self, step: int, line: str) -> str:
        """Return the line `step` lines after `line`; `line` itself if there is none."""
        if self._at(self._index) != line:
            self._index, self._unfinished = len(self._lines), line
        index = self._index + step
        while 0 <= index < len(self._lines) and self._lines[index] == line:
            index += step
        if not 0 <= index <= len(self._lines):
            return line
        self._index = index
        return self._at(index)

    def _at(self, index: int) -> str:
        return self._lines[index] if index < len(self._lines) else self._unfinished


class FollowedProcess(NamedTuple):
    """A process whose mapping is shown in place of the query's."""

    pid: int
    label: str
    mapping: ProcessMapping


class MappingState:
    """A query, the machine it is about, and the result."""

    def __init__(self, value: str | None, order: str | None) -> None:
        self.query = self.own = MappingQuery(value, order, inherited=value)
        """`own` is the query that gputop itself was started with."""
        self.inventory = Inventory(())
        self.history = InputHistory()
        self.fields: dict[str, str] = {}
        """The fields about what the program selects, as far as the user has typed them."""
        self.frame: Frame | None = None
        self.moment: Moment = "now"
        self._advice: tuple[Finding, ...] = ()
        self.followed: FollowedProcess | None = None
        self.follows = True
        """Whether the process under the cursor comes before the query."""
        self._frames: deque[Frame] = deque(maxlen=_KEPT_FRAMES)
        self._picks: dict[tuple[int, ...], GpuPick] = {}
        self.probed: tuple[Probed, ...] = ()
        """What the CUDA driver has answered about the current GPUs."""
        self._asked: Probe | None = None
        self._last: object = None
        self._others: tuple[tuple[float, int], Frame, Inventory] | None = None
        self.result: MappingResult = mapping_result(self.query, self.inventory)

    @property
    def mapping(self) -> Mapping:
        """The mapping of the process that is followed, or otherwise the result's."""
        return self.followed.mapping.mapping if self.followed else self.result.mapping

    @property
    def probe_result(self) -> ProbeResult | None:
        """The driver's answer on the result; it is not asked about processes."""
        return None if self.followed else self.result.probe_result

    @property
    def advice(self) -> tuple[Finding, ...]:
        return self.followed.mapping.advice if self.followed else self._advice

    @property
    def export(self) -> str:
        """The shell line that sets the value, without a mistake in it; empty if it is not known or
        cannot be quoted."""
        if self.followed is None:
            is_cut = self.mapping.stopped_at is not None and has_error(self.advice)
            line = corrected_line if is_cut else export_line
            return (line(self.mapping) or "") if self.result.unknown is None else ""
        return next(iter(self.followed.mapping.shell_lines), "")

    @property
    def why_no_export(self) -> str:
        """Why there is no line to export, where there is none."""
        if self.followed is None:
            unknown = "no GPU is named" if self.mapping.stopped_at else "no value is known"
            return why_no_line(self.mapping) or f"there is no line to copy: {unknown}"
        what = "variables" if self.followed.mapping.unread else "GPUs"
        return f"there is no line to copy: the process's {what} are not known"

    @property
    def other_users(self) -> tuple[Frame | None, Inventory]:
        """The frame and the usage of its GPUs (an inventory), without the followed process."""
        if self.followed is None or self.frame is None:
            return self.frame, self.inventory
        about = (self.frame.time, self.followed.pid)
        if self._others is None or self._others[0] != about:
            rest = without(self.frame, self.followed.pid)
            before = self._others[2] if self._others and self._others[0][1] == about[1] else None
            taken = msgspec.structs.replace(self.inventory, usage=usage_of(rest, before))
            self._others = about, rest, taken
        return self._others[1:]

    @property
    def is_asking(self) -> bool:
        """Whether the driver's answer to this query is still to come."""
        return self._asked is not None and self._asked == self._probe

    def pick(self, named: Sequence[CudaDevice] = ()) -> GpuPick | None:
        """Return the GPU or MIG device that `gputop free` would take in addition to those that are
        named, worked out once for each frame; None before the first frame."""
        if not self._frames:
            return None
        key = tuple(device.index for device in named)
        if key not in self._picks:
            self._picks[key] = suggest(self._frames, self.own, named)
        return self._picks[key]

    def show_frame(self, frame: Frame, moment: Moment = "now") -> None:
        """Take in a frame: the result changes only with the GPUs, the advice with their usage."""
        self.moment = moment
        if frame is not self.frame:
            self._frames.append(frame)
        self.frame = frame
        self._picks.clear()
        before, self.inventory = self.inventory, frame_inventory(frame, self.inventory)
        machine = (self.inventory.devices, self.inventory.driver_version)
        if machine != (before.devices, before.driver_version):
            self.probed = ()
        self._work_out()

    def handle(self, reply: Reply) -> None:
        """Keep the driver's answers to a probe: they hold as long as the GPUs are the same."""
        probed, asked = reply.probed, self._asked
        if not probed and reply.error is not None and asked is not None:
            probed = (Probed(None, reply.error, asked.value, asked.order),)
        answers = {(probe.value, probe.order): probe for probe in (*self.probed, *probed)}
        self.probed = tuple(answers.values())[-_MAX_PROBED:]
        if asked and answer_to(probed, asked.value, asked.order):
            self._asked = None
        self._work_out()

    def stop_following(self) -> None:
        """Show the query until the cursor is moved."""
        self.follows, self.followed = False, None

    def ask(self, **changes: object) -> None:
        """Change parts of the query, `text`, `order` or `layers`, and show it."""
        self.stop_following()
        self.query = msgspec.structs.replace(self.query, **changes)
        self._work_out()

    def next_order(self) -> None:
        """Go to the next value of CUDA_DEVICE_ORDER."""
        order = self.query.order
        index = ORDERS.index(order) if order in ORDERS else -1
        self.ask(order=ORDERS[(index + 1) % len(ORDERS)])

    def return_to_own(self) -> bool:
        """Ask about the variables that gputop was started with; return whether others were asked
        about."""
        if self.query == self.own:
            return False
        if self.query.text is not None:
            self.history.enter(self.query.text)
        self.query, self.fields = self.own, {}
        self._work_out()
        return True

    def probe(self) -> Probe | str:
        """Return what to ask the driver, or why it cannot be asked."""
        frame, probe = self.frame, self._probe
        if self.moment != "now":
            return _NOT_ASKED[self.moment]
        if self.followed:
            return "the driver can only be asked about a value: press m and type one"
        if self.result.unknown is not None:
            return "the driver can only be asked about a value that is known here"
        if frame is None or frame.demo:
            return "the demo has no driver to ask" if frame else "no GPU has answered yet"
        if not f"{probe.value}{probe.order}".isprintable():
            return "the driver can only be asked about printable text"
        is_known = answer_to(self.probed, probe.value, probe.order)
        self._asked = None if is_known else probe
        return probe

    def reset(self) -> None:
        """Forget the frames and the probes of an agent that is gone."""
        self._asked, self.probed = None, ()
        self._frames.clear()

    def complete(self, text: str) -> str | None:
        """Return what a text may be completed to; None if there is nothing."""
        return completion(text, self.result, self.inventory, self.pick)

    @property
    def _probe(self) -> Probe:
        return Probe(self.mapping.value, self.mapping.order, _REQUEST)

    def _work_out(self) -> None:
        inventory = self.inventory
        facts = (self.query, inventory.devices, inventory.driver_version, self.probed)
        if facts != self._last:
            self._last = facts
            self.result = mapping_result(self.query, inventory, self.probed)
        self._advice = judge(self.result, inventory.usage)
