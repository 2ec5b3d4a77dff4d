"""Messages between an agent and its reader, one line of JSON each.

The agent begins with a Hello. For each instant it then sends a Sample with the numbers, preceded by
an InventoryUpdate if facts that rarely change have changed; `assemble` makes Frames of them. A
Reply comes between any two of these, as soon as it is known. The reader's lines are Requests. The
agent ends when its standard input ends.

Unknown fields and columns are ignored; missing ones are None.
"""

from __future__ import annotations

import msgspec

from gputop.model.machine.detail import ProcessDetail, ProcessStack
from gputop.model.machine.environment import CudaContext
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame, Host, Problem, ProcessFacts
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.probed import Probed
from gputop.model.machine.process_id import ProcessId, ProcessLiveness
from gputop.model.machine.signals import Candidate, Target, Verdict
from gputop.model.machine.topology import Links, Topology
from gputop.protocol.versions import SPOKEN
from gputop.version import __version__

MIN_INTERVAL, MAX_INTERVAL = 0.1, 60.0
"""Seconds."""


class Preview(Frame, frozen=True, kw_only=True, dict=True):
    """What GPUs report at once, before their processes have been read. Do not judge by it: the
    processes on the GPUs are not known yet."""


# The agent's lines


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="hello"):
    """The first line of a stream, the same in all versions of the protocol."""

    oldest: int
    """The versions of the protocol that the agent speaks."""
    newest: int
    protocol: int
    """The version of the lines that follow."""
    version: str
    """The version of the agent's gputop."""
    host: str
    user: str | None = None
    """The user that the agent runs as."""


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
    """Facts that rarely change; they replace what was known under these ids.

    An id stands for a GPU or for a process on a GPU, until a Sample comes without it. Of a GPU it
    has all fields but the numbers that `split` names.
    """

    machine: MachineFacts | None = None
    gpus: dict[int, Gpu] = {}
    processes: dict[int, ProcessFacts] = {}


class Sample(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sample", omit_defaults=True
):
    """The numbers of one instant."""

    time: float
    interval: float | None = None
    cpu: float | None = None
    """CPU use of the host; `memory_used` is the host's too."""
    memory_used: int | None = None
    problem: Problem | None = None
    gpus: dict[str, msgspec.Raw] = {}
    """Columns named as in Gpu, or `power_more.average` for a field of a section; one is `id`. A
    column is a list with a value for each row, or the one value that all rows have."""
    processes: dict[str, msgspec.Raw] | None = None
    """Likewise, named as in Process. None in a Preview, before processes have been read."""


class Reply(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="reply", omit_defaults=True
):
    """What is known so far in answer to a request, in the field for its kind."""

    request: str
    """The id of the request."""
    done: bool = True
    """False while more replies follow. Even after that a verdict may change."""
    error: str | None = None
    """Why there is no answer."""
    invalid: bool = False
    """With `error`: the request itself is wrong, and will never be answered."""
    verdicts: tuple[Verdict, ...] = ()
    """For a Signal: all verdicts, in its order."""
    probed: tuple[Probed, ...] = ()
    """For a Probe: the answer for its value, and the one for the value left unset."""
    detail: ProcessDetail | None = None
    stack: ProcessStack | None = None
    candidates: tuple[Candidate, ...] = ()
    uids: dict[str, int] = {}
    """For Candidates: the user IDs of its `users` on that machine."""
    context: CudaContext | None = None
    """None also if there is no such process."""
    checks: tuple[Finding, ...] = ()
    liveness: tuple[ProcessLiveness, ...] = ()
    """Ordered as in the request."""


AgentMessage = Hello | InventoryUpdate | Sample | Reply


# The reader's lines


class SetInterval(msgspec.Struct, frozen=True, tag_field="request", tag="interval"):
    """Make a frame every `seconds`."""

    seconds: float


class Refresh(msgspec.Struct, frozen=True, tag_field="request", tag="refresh"):
    """Make a frame now."""


class Ping(msgspec.Struct, frozen=True, tag_field="request", tag="ping"):
    """Reply at once, whatever else goes on."""

    id: str


class Signal(msgspec.Struct, frozen=True, tag_field="request", tag="signal"):
    """Send a signal. A Reply comes as soon as it is sent, and whenever a verdict changes."""

    id: str
    """Chosen by the reader; a request with a known id is not done again."""
    targets: tuple[Target, ...]
    """Each is signalled once, in this order, even if it is listed twice."""
    number: int
    """0 sends nothing; the verdicts then show what would be signalled."""
    grace: float
    """Seconds that a process gets to end, after a signal that should end it."""
    descendants: bool = False
    """Whether to signal their descendants too, a parent before its children."""
    boot_id: str | None = None
    """The machine's boot id when the targets were seen: after a reboot nothing is sent."""


class Probe(msgspec.Struct, frozen=True, tag_field="request", tag="probe"):
    """Ask the CUDA driver what the variables mean (None: unset), and in which order it counts all
    GPUs."""

    value: str | None
    order: str | None
    id: str = ""


class Detail(msgspec.Struct, frozen=True, tag_field="request", tag="detail"):
    """Read the details of a process."""

    process: ProcessId
    """If another process has the PID by now, its details are not read."""
    hidden: bool = False
    """Whether to return the values of all variables but secrets."""
    id: str = ""


class Stack(msgspec.Struct, frozen=True, tag_field="request", tag="stack"):
    """Have py-spy report where a Python process is."""

    process: ProcessId
    id: str = ""


class Candidates(msgspec.Struct, frozen=True, tag_field="request", tag="candidates"):
    """Read more of all processes on GPUs, for a person to choose by."""

    ancestors: bool = False
    id: str = ""
    users: tuple[str, ...] = ()
    """Users to find the IDs of: names, numbers, or `me` for the agent's own user."""


class Context(msgspec.Struct, frozen=True, tag_field="request", tag="context"):
    """Read what decides which GPUs a process sees, whether it is on a GPU or not."""

    pid: int
    id: str = ""


class Checks(msgspec.Struct, frozen=True, tag_field="request", tag="checks"):
    """Check what is installed for the GPUs."""

    python: str | None = None
    """An interpreter or the folder of an environment, to check as well."""
    cuda_version: str | None = None
    """The newest CUDA version that the driver runs."""
    capabilities: dict[str, list[int]] = {}
    """The indices of GPUs by compute capability."""
    id: str = ""


class Liveness(msgspec.Struct, frozen=True, tag_field="request", tag="liveness"):
    """Read whether processes still run, whether they are on a GPU or not."""

    processes: tuple[ProcessId, ...]
    id: str = ""


AnsweredRequest = Signal | Probe | Detail | Stack | Candidates | Context | Checks | Liveness
"""Requests that are answered by Replies."""
Request = SetInterval | Refresh | Ping | AnsweredRequest


def hello(host: str, protocol: int = SPOKEN.newest, user: str | None = None) -> Hello:
    """Return the Hello of this gputop."""
    return Hello(
        oldest=SPOKEN.oldest,
        newest=SPOKEN.newest,
        protocol=protocol,
        version=__version__,
        host=host,
        user=user,
    )


def clamp_interval(seconds: float) -> float:
    """Return the nearest interval that every part honours."""
    return min(MAX_INTERVAL, max(MIN_INTERVAL, seconds))
