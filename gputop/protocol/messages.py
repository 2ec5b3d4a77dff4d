"""What an agent and its reader say to each other, one line of JSON each.

The agent begins with a Hello. Then, for each instant, it sends an InventoryUpdate if something has
changed that rarely does, and a Sample with the numbers; `assemble` makes Frames of them. A Reply
comes whenever it is known, between any two of these. The reader's lines are Requests. The agent
ends when its standard input does.

Fields and columns that the other side does not know are ignored; what is missing is None.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gputop.model.machine.check import Check
from gputop.model.machine.detail import ProcessDetail, ProcessStack
from gputop.model.machine.environment import CudaContext
from gputop.model.machine.frame import Frame, Host, Problem, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.liveness import ProcessLiveness, ProcessStart
from gputop.model.machine.probed import Probed
from gputop.model.machine.signals import Candidate, Target, Verdict
from gputop.model.machine.topology import Links, Topology

MIN_INTERVAL = 0.1
"""Seconds."""
MAX_INTERVAL = 60.0
"""Seconds."""


class Preview(Frame, frozen=True, kw_only=True, dict=True):
    """What GPUs say at once, before their processes have been read. Not a Frame to judge by: who
    is on the GPUs is not known yet."""


# The agent's lines


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="hello"):
    """The first line of a stream, the same in all versions of the protocol."""

    oldest: int
    """The versions of the protocol that the agent speaks."""
    newest: int
    protocol: int
    """The version of the lines that follow."""
    version: str
    """Of the agent's gputop."""
    host: str
    boot_id: str | None = None
    user: str | None = None
    """The user that the agent runs as."""
    capabilities: tuple[str, ...] = ()
    """The requests that it answers."""


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a Frame that rarely change."""

    host: Host
    """Without the numbers that are in the Sample."""
    driver_version: str | None = None
    cuda_version: str | None = None
    links: Links | None = None
    topology: Topology | None = None
    demo: bool = False


class InventoryUpdate(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="inventory", omit_defaults=True
):
    """What rarely changes, in place of what was known under these ids before.

    An id stands for a GPU or for a process on a GPU, until a Sample comes without it. Of each the
    InventoryUpdate has all but the numbers that `split` names.
    """

    machine: MachineFacts | None = None
    gpus: dict[int, Gpu] = {}
    processes: dict[int, Process] = {}


Integers = list[int | None] | int | None
"""A column: a value for each row, or the one value that all rows have."""
Floats = list[float | None] | float | None
Texts = list[str | None] | str | None


class ProcessNumbers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers of the processes on GPUs, a row each, named as in Process."""

    id: list[int] = []
    gpu_memory: Integers = None
    sm_utilization: Floats = None
    memory_utilization: Floats = None
    encoder_utilization: Floats = None
    decoder_utilization: Floats = None
    idle_for: Floats = None
    cpu: Floats = None
    rss: Integers = None
    state: Texts = None
    threads: Integers = None
    io_read: Floats = None
    io_write: Floats = None


class Sample(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sample", omit_defaults=True
):
    """The numbers of one instant."""

    time: float
    interval: float | None = None
    cpu: float | None = None
    """Of the host, as the next."""
    memory_used: int | None = None
    problem: Problem | None = None
    gpus: dict[str, Any] = {}
    """Columns, named as in Gpu, `power_more.average` for a field of a section; `id` is one."""
    processes: ProcessNumbers | None = None
    """None before they have been read: this is a Preview."""


class Reply(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="reply", omit_defaults=True
):
    """What is known of a request by now; it has the field that the request is about."""

    request: str
    """The id of the request."""
    done: bool = True
    """False while more is to come. After that a verdict may still change."""
    error: str | None = None
    """Why there is no answer."""
    invalid: bool = False
    """With `error`: no such request can be answered, now or later."""
    verdicts: tuple[Verdict, ...] = ()
    """Of a Signal: all of them, in its order."""
    probed: tuple[Probed, ...] = ()
    """Of a Probe: the answer for its value, and the one for the value left unset."""
    detail: ProcessDetail | None = None
    stack: ProcessStack | None = None
    candidates: tuple[Candidate, ...] = ()
    uids: dict[str, int] = {}
    """Of Candidates: the numbers of its `users`, of that machine."""
    context: CudaContext | None = None
    """None also where there is no such process."""
    checks: tuple[Check, ...] = ()
    liveness: tuple[ProcessLiveness, ...] = ()
    """In the order of the question."""


AgentMessage = Hello | InventoryUpdate | Sample | Reply


# The reader's lines


class SetInterval(msgspec.Struct, frozen=True, tag_field="request", tag="interval"):
    """Make a frame every `seconds`."""

    seconds: float


class Refresh(msgspec.Struct, frozen=True, tag_field="request", tag="refresh"):
    """Make a frame now."""


class Pause(msgspec.Struct, frozen=True, tag_field="request", tag="pause"):
    """Make no more frames until told otherwise; a Refresh still gives one."""

    paused: bool


class Ping(msgspec.Struct, frozen=True, tag_field="request", tag="ping"):
    """Reply at once, whatever else goes on."""

    id: str


class Stop(msgspec.Struct, frozen=True, tag_field="request", tag="stop"):
    """End."""


class Signal(msgspec.Struct, frozen=True, tag_field="request", tag="signal"):
    """Send a signal. A Reply comes as soon as it is sent, and whenever a verdict changes."""

    id: str
    """The asker chooses it: the same one twice is done once."""
    targets: tuple[Target, ...]
    """Each is signalled once, in this order; one that stands twice is one."""
    number: int
    """0 sends nothing, and tells what would be signalled."""
    grace: float
    """Seconds in which a process that the signal should end may do so."""
    descendants: bool = False
    """What they started as well, a parent before its children."""
    boot_id: str | None = None
    """Of the machine when they were seen: after another start of it nothing is sent."""


class Probe(msgspec.Struct, frozen=True, tag_field="request", tag="probe"):
    """Ask the CUDA driver what the variables mean (None: unset), and in which order it counts all
    GPUs."""

    value: str | None
    order: str | None
    id: str = ""


class Detail(msgspec.Struct, frozen=True, tag_field="request", tag="detail"):
    """Tell more of a process."""

    pid: int
    start_time: float
    """Another process that has the number by now is not told of."""
    hidden: bool = False
    """The values of all variables but secrets."""
    id: str = ""


class Stack(msgspec.Struct, frozen=True, tag_field="request", tag="stack"):
    """Have py-spy tell where a Python process is."""

    pid: int
    start_time: float
    id: str = ""


class Candidates(msgspec.Struct, frozen=True, tag_field="request", tag="candidates"):
    """Tell more of all processes on GPUs, for a person to choose by."""

    ancestors: bool = False
    id: str = ""
    users: tuple[str, ...] = ()
    """Whose numbers are wanted: names, `me` for whom the agent runs as, or numbers."""


class Context(msgspec.Struct, frozen=True, tag_field="request", tag="context"):
    """Tell what decides which GPUs a process sees, be it on a GPU or not."""

    pid: int
    id: str = ""


class Checks(msgspec.Struct, frozen=True, tag_field="request", tag="checks"):
    """Check what is installed for the GPUs."""

    python: str | None = None
    """An interpreter or the folder of an environment, to be checked as well."""
    cuda_version: str | None = None
    """The newest that the driver runs."""
    capabilities: dict[str, list[int]] = {}
    """The indices of GPUs by compute capability."""
    id: str = ""


class Liveness(msgspec.Struct, frozen=True, tag_field="request", tag="liveness"):
    """Tell whether processes still run, be they on a GPU or not."""

    processes: tuple[ProcessStart, ...]
    id: str = ""


AnsweredRequest = Signal | Probe | Detail | Stack | Candidates | Context | Checks | Liveness
"""Requests that are answered by Replies."""
Request = SetInterval | Refresh | Pause | Ping | Stop | AnsweredRequest


def clamp_interval(seconds: float) -> float:
    """Return the nearest interval that every part honours."""
    return min(MAX_INTERVAL, max(MIN_INTERVAL, seconds))
