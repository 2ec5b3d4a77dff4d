"""What is asked of the mapping, and what is known of it: one for all views, so that they agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from textual.message import Message

from gputop.model.advice import Advice
from gputop.model.choice import Choice
from gputop.model.enumeration import Device
from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.inventory import Inventory, frame_inventory
from gputop.model.mapping import Mapping
from gputop.model.probe import Verdict, answer_to
from gputop.model.process_mapping import ProcessMapping
from gputop.model.protocol import Probe
from gputop.model.question import Answer, Question, answer, completion, judge, suggest
from gputop.model.visibility import FASTEST_FIRST, PCI_BUS_ID, export_line
from gputop.tui.widgets.editor import Past

_ORDERS = (None, PCI_BUS_ID, FASTEST_FIRST)
_LOOKS = 5
FIELDS = ("tf-visible", "tf-logical", "jax-visible", "fraction", "local-rank", "request")


@dataclass
class ProbeWanted(Message):
    """The driver is to be asked."""

    probe: Probe


class Followed(NamedTuple):
    """A process in place of the question."""

    label: str
    mapping: ProcessMapping


class Inquiry:
    """A question, the machine it is about, and the answer."""

    def __init__(self, value: str | None, order: str | None) -> None:
        self.question = self.own = Question(value, order)
        """`own`: what gputop itself was started with."""
        self.inventory = Inventory(())
        self.past = Past()
        """What was entered before."""
        self.fields = dict.fromkeys(FIELDS, "")
        """What was written of the layers, as it was written."""
        self.note = ""
        """What is said for a while."""
        self.frame: Frame | None = None
        self._advice: tuple[Advice, ...] = ()
        self.followed: Followed | None = None
        """The process that is shown instead of the answer."""
        self._frames: deque[Frame] = deque(maxlen=_LOOKS)
        self._choices: dict[tuple[int, ...], Choice] = {}
        self._asked: Probe | None = None
        self._last: object = None
        self.answer: Answer = answer(self.question, self.inventory)

    @property
    def mapping(self) -> Mapping:
        """The answer of now, or of the process that is followed."""
        return self.followed.mapping.mapping if self.followed else self.answer.mapping

    @property
    def verdict(self) -> Verdict | None:
        """The driver's word on the answer; it is not asked about processes."""
        return None if self.followed else self.answer.verdict

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What is worth a word."""
        return self.followed.mapping.advice if self.followed else self._advice

    @property
    def export(self) -> str:
        """The line that sets the value; empty where the value is not known."""
        return "" if self.followed and self.followed.mapping.unread else export_line(self.mapping)

    @property
    def asking(self) -> bool:
        """Whether the driver's answer to this is on its way."""
        return self._asked is not None and self._asked == self._probe

    @property
    def choice(self) -> Choice | None:
        """What `gputop free` would take; None before the first frame."""
        return self._choose(()) if self._frames else None

    def take(self, frame: Frame) -> None:
        """Another frame: the answer changes only with the GPUs, what is said of them always."""
        self.frame = frame
        self._frames.append(frame)
        self._choices.clear()
        self.inventory = frame_inventory(frame)
        if self._asked and answer_to(frame.probed, self._asked.value, self._asked.order):
            self._asked = None
        self._work_out()

    def ask(self, **changes: object) -> None:
        """Change the question: `text`, `order`, `layers`."""
        self.question = msgspec.structs.replace(self.question, **changes)
        self._work_out()

    def next_order(self) -> None:
        """Go round the values of CUDA_DEVICE_ORDER."""
        order = self.question.order
        place = _ORDERS.index(order) if order in _ORDERS else -1
        self.ask(order=_ORDERS[(place + 1) % len(_ORDERS)])

    def probe(self) -> Probe | None:
        """What to ask of the driver; None, and a note, where it cannot be asked."""
        frame, probe = self.frame, self._probe
        if self.followed:
            self.note = "the driver is asked about a value: m, and type one"
        elif frame is None or frame.demo:
            self.note = "the demo has no driver to ask" if frame else "no GPU has answered yet"
        elif not f"{probe.value}{probe.order}".isprintable():
            self.note = "the driver can be asked only about printable text"
        else:
            self._asked = probe
            if answer_to(frame.probed, probe.value, probe.order):
                self._asked = None
            return probe
        return None

    def forget(self) -> None:
        """Nobody is there who was asked."""
        self._asked = None
        self._frames.clear()

    def complete(self, text: str) -> str | None:
        """What a text may become."""
        return completion(text, self.answer, self.inventory, self._free)

    def _free(self, named: Sequence[Device]) -> Gpu | None:
        choice = self._choose(named) if self._frames else None
        return choice.gpus[0] if choice is not None and choice.gpus else None

    def _choose(self, named: Sequence[Device]) -> Choice:
        """Once for each frame, whoever asks and how often."""
        key = tuple(device.index for device in named)
        if key not in self._choices:
            self._choices[key] = suggest(self._frames, self.own, named)
        return self._choices[key]

    @property
    def _probe(self) -> Probe:
        return Probe(self.mapping.value, self.mapping.order)

    def _work_out(self) -> None:
        probed = self.frame.probed if self.frame else ()
        found = self.inventory
        facts = (self.question, found.devices, found.driver_version, probed)
        if facts != self._last:
            self._last = facts
            self.answer = answer(self.question, found, probed)
        self._advice = judge(self.answer, found.usage)
