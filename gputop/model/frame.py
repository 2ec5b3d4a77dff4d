"""A Frame is everything known of one GPU machine at one instant; every reader sees only it.

Units: bytes, seconds, watts, degrees Celsius, hertz; ratios are 0..1 (`cpu`: 1.0 is one core).
`None` means unknown, not supported or no sample; it never means 0. The JSON of a frame is what
`gputop --json` prints and what the agent sends.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from gputop.model.detail import ProcessDetail, ProcessStack
from gputop.model.environ import Surroundings
from gputop.model.gpu import Gpu
from gputop.model.links import Links
from gputop.model.place import Place
from gputop.model.probed import Probed
from gputop.model.signals import Verdict
from gputop.model.topology import Topology

SCHEMA = 1
"""Raised when a field changes its meaning or goes away; new fields do not raise it."""

ProblemKind = Literal[
    "library_not_found",
    "driver_not_loaded",
    "version_mismatch",
    "no_permission",
    "no_gpu",
    "not_answering",
    "agent_ended",
    "error",
]


class ProcessKey(NamedTuple):
    """What a process is, whatever becomes of its number: a pid is reused, a key is not."""

    boot_id: str | None
    pid: int
    start_time: float | None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine around the GPUs."""

    name: str
    boot_id: str | None = None
    """Of /proc/sys/kernel/random/boot_id: tells one run of a machine from the next."""
    cpu: float | None = None
    """Share of all cores in use since the frame before."""
    cpu_count: int | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    wsl: bool = False
    """Windows runs the driver: see `model.limits` for what it does not tell."""
    nested: bool = False
    """gputop runs in a PID namespace below the first, as in a container: the driver's PIDs are not
    those of this /proc."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process on one GPU (or MIG instance): a process on two GPUs is two of these."""

    pid: int
    start_time: float | None = None
    """Seconds since the epoch; None where the process is not in this /proc."""
    gpu_uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    type: str = "C"
    """As nvidia-smi writes it: C compute, G graphics, M MPS, and sums such as C+G."""
    gpu_memory: int | None = None
    sm_utilization: float | None = None
    """None is "no sample since the last frame", which is not 0; so are the next three."""
    memory_utilization: float | None = None
    encoder_utilization: float | None = None
    decoder_utilization: float | None = None
    idle_for: float | None = None
    """Seconds since one of these four was last above 0, or since gputop first saw it: at least so
    long. None where the driver takes no samples, and in a single look."""
    elsewhere: bool = False
    """The pid is the driver's, and of no process that is known to be seen here: nothing else is
    known of it, and a process of that number here is another one."""
    user: str | None = None
    command: str | None = None
    """The whole command line, harmless to print."""
    cpu: float | None = None
    rss: int | None = None
    state: str | None = None
    """The letter of /proc/PID/stat: R, S, D, Z, T, ..."""
    parent: int | None = None
    threads: int | None = None
    io_read: float | None = None
    """Bytes per second from storage; of the user's own processes, of all for root."""
    io_write: float | None = None
    place: Place | None = None
    """Where it belongs; None until that has been looked at."""
    surroundings: Surroundings | None = None
    """What decides which GPUs it sees; None until that has been looked at."""


class PciCard(msgspec.Struct, frozen=True, kw_only=True):
    """An NVIDIA card that the PCI bus shows, whether a driver has it or not."""

    bus_id: str
    device_id: str
    driver: str | None = None

    def __str__(self) -> str:
        driver = f"driver {self.driver}" if self.driver else "no driver"
        return f"{self.bus_id} (10de:{self.device_id}, {driver})"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is nothing to show, and what to do."""

    kind: ProblemKind
    message: str
    advice: str
    cards: tuple[PciCard, ...] = ()

    def __str__(self) -> str:
        cards = ", ".join(map(str, self.cards))
        return f"{self.message}: {self.advice}" + (f"; on the PCI bus: {cards}" if cards else "")


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One machine at one instant."""

    schema: int = SCHEMA
    host: Host
    time: float
    """Seconds since the epoch, by the clock of the machine it shows."""
    interval: float | None = None
    """Seconds to the next frame; None where there will be none."""
    driver_version: str | None = None
    cuda_version: str | None = None
    """The newest CUDA that the driver runs, as `13.0`."""
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    problem: Problem | None = None
    links: Links | None = None
    """How the GPUs are connected, once that is known; see `model.links`."""
    topology: Topology | None = None
    """Where they stand in the machine, once that is known."""
    probed: tuple[Probed, ...] = ()
    """What the CUDA driver answered, to those who had it asked; for the GPUs of this frame."""
    verdicts: tuple[Verdict, ...] = ()
    """What became of the signals that were asked for, for a while; see `model.signals`."""
    detail: ProcessDetail | None = None
    """More of one process, in the one frame after it was asked for; see `model.detail`."""
    stack: ProcessStack | None = None
    """Where a Python process is, likewise."""
    demo: bool = False
    """True for an invented machine."""

    def key(self, process: Process) -> ProcessKey:
        """Identity of a process of this frame."""
        return ProcessKey(self.host.boot_id, process.pid, process.start_time)
