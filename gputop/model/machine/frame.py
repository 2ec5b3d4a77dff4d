"""A Frame is everything known of one GPU machine at one instant; every reader sees only it.

Units: bytes, seconds, watts, degrees Celsius, hertz; ratios are 0..1 (`cpu`: 1.0 is one core).
`None` means unknown, not supported or no sample; it never means 0. The JSON of a frame is what
`gputop --json` prints.

No part of a frame refers back to what holds it, so Python's garbage collector need not look for
cycles there (`gc=False`): with a hundred machines that would be a fifth of what their screen costs.
"""

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from gputop.model.machine.environment import AgentSurroundings, CudaContext
from gputop.model.machine.finding import Finding, Level
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.grouped import grouped
from gputop.model.machine.origin import Origin
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.sections import (
    PLAIN,
    Bytes,
    BytesPerSecond,
    Cores,
    Count,
    Ratio,
    Seconds,
    Text,
    Unit,
)
from gputop.model.machine.text import short_command
from gputop.model.machine.topology import Links, Topology

T = TypeVar("T")

SCHEMA = 3
"""Raised when a field changes its meaning or goes away; new fields do not raise it."""

ProblemCode = Literal[
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
    """A process among those of several machines, or of one before and after a reboot."""

    boot_id: str | None
    process: ProcessId


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine around the GPUs."""

    name: str
    """As `hostname` prints it."""
    requested_name: str | None = None
    """The name that was given with -H; None for this machine."""
    boot_id: str | None = None
    """From /proc/sys/kernel/random/boot_id; it changes with every boot."""
    cpu: float | None = None
    """Share of all cores in use since the previous frame."""
    cpu_count: int | None = None
    """Logical CPUs."""
    memory_total: int | None = None
    """Bytes of RAM."""
    memory_used: int | None = None
    """Bytes of RAM that are not available to a new process."""
    wsl: bool = False
    """Windows runs the driver, which lists no processes there."""
    nested: bool = False
    """gputop runs in a PID namespace below the first, as in a container: the driver's PIDs are not
    those of this /proc."""
    jobs_unknown: bool = False
    """Slurm's jobs run here, and which GPUs they hold cannot be read, at least of some."""
    reservations_unknown: bool = False
    """There may be reservations, and they have not been read yet, or cannot be."""
    surroundings: AgentSurroundings = AgentSurroundings()
    """What gputop itself can reach: NVML lists no other GPU."""


ON_GPU = "on this GPU"
"""Marks a number that a process has on each of its GPUs, by the driver. Prometheus gets these; the
unmarked ones are of the whole process, and left to exporters of the machine."""


class ProcessFacts(msgspec.Struct, frozen=True, gc=False):
    """Which process is on which GPU, and what rarely changes of it."""

    # Not kw_only: the protocol gives them by position, which takes a third of the time.

    pid: Annotated[int, Unit(width=7), "PID", "process number"]
    start_ticks: int | None = None
    """Clock ticks from the boot to its start: identity, with the PID. None if the process is not in
    this /proc."""
    gpu_uuid: str | None = None
    """The GPU that it is on."""
    gpu_instance: int | None = None
    """Id of the GPU instance; None outside of MIG, like `compute_instance`."""
    compute_instance: int | None = None
    """Id of the compute instance within it."""
    start_time: float | None = None
    """Its start in seconds since the epoch."""
    type: Annotated[str, PLAIN, "TYPE", "C compute, G graphics, M MPS"] = "C"
    """As nvidia-smi writes it: C compute, G graphics, M MPS, and sums such as C+G."""
    elsewhere: bool = False
    """The PID is the driver's, and matches no process that is known here: nothing else is known of
    it, and a process with that PID here is another one."""
    user: Annotated[str | None, Unit(width=8), "USER", "who owns it"] = None
    command: Annotated[
        str | None, Unit("", short_command), "COMMAND", "the script first; c shows the whole line"
    ] = None
    """The whole command line, harmless to print."""
    parent: int | None = None
    """PID of its parent."""
    origin: Origin | None = None
    """Where it belongs; None until it has been read."""
    cuda_context: CudaContext | None = None
    """What decides which GPUs it sees; None until it has been read."""

    @property
    def id(self) -> ProcessId:
        """Which process it is; rows on several GPUs have the same."""
        return ProcessId(self.pid, self.start_ticks)


class Process(ProcessFacts, frozen=True):
    """One process on one GPU (or MIG instance): a process on two GPUs is two of these.

    Its numbers are declared here and nowhere else, like those of a GPU (`model.machine.sections`):
    the messages of the protocol, the columns, the page of a process, what is recorded and what
    Prometheus gets are made from these annotations.
    """

    gpu_memory: Annotated[Bytes, "GPU-MEM", "its memory on this GPU", ON_GPU] = None
    sm_utilization: Annotated[
        Ratio, "SM%", "its share of the SMs' time; - is no sample", ON_GPU
    ] = None
    """Share of the SMs' time. None is "no sample since the last frame", which is not 0; so it is
    for the next three."""
    memory_utilization: Annotated[
        Ratio, "MEM%", "share of time it read or wrote device memory", ON_GPU
    ] = None
    encoder_utilization: Annotated[Ratio, "ENC%", "its share of the video encoder", ON_GPU] = None
    decoder_utilization: Annotated[Ratio, "DEC%", "its share of the video decoder", ON_GPU] = None
    idle_for: Annotated[
        Seconds, "IDLE",
        "time without work in its samples; blank under a minute", ON_GPU,
    ] = None  # fmt: skip
    """Seconds since one of these four was last above 0, or since gputop first saw the process, so
    at least that long. None if the driver takes no samples, and in a single frame."""
    cpu: Annotated[Cores, "CPU%", "100 is one core; - in the first sample"] = None
    """1.0 is one core."""
    rss: Annotated[Bytes, "RSS", "resident memory"] = None
    state: Annotated[Text, "S", "R run, S sleep, D wait in the kernel, Z zombie"] = None
    """The letter of /proc/PID/stat: R, S, D, Z, T, ..."""
    threads: Annotated[Count, "THREADS", "its threads"] = None
    io_read: Annotated[BytesPerSecond, "READ", "bytes per second read from storage"] = None
    """Bytes per second from storage; only for the user's own processes, unless as root."""
    io_write: Annotated[BytesPerSecond, "WRITE", "bytes per second written to storage"] = None
    """Bytes per second to storage, likewise."""


ProcessIdentity = tuple[int, int | None, str | None, int | None, int | None]
identity_of: Callable[[Process], ProcessIdentity] = attrgetter(
    "pid", "start_ticks", "gpu_uuid", "gpu_instance", "compute_instance"
)
"""What identifies a process on a GPU or MIG instance. Its ProcessId is spelled out, as this is read
of all processes of every frame."""


class PciCard(msgspec.Struct, frozen=True, kw_only=True):
    """An NVIDIA card that the PCI bus shows, whether a driver has it or not."""

    bus_id: str
    """Its place on the bus: `0000:17:00.0`."""
    device_id: str
    """PCI device id, hexadecimal."""
    driver: str | None = None
    """The kernel driver that has it, as `nvidia` or `nouveau`."""

    def __str__(self) -> str:
        driver = f"driver {self.driver}" if self.driver else "no driver"
        return f"{self.bus_id} (10de:{self.device_id}, {driver})"


class Problem(Finding, frozen=True, kw_only=True):
    """Why there is nothing to show, and what to do."""

    level: Level = "error"
    """Always `error`."""
    code: ProblemCode
    """`library_not_found`, `driver_not_loaded`, `version_mismatch`, `no_permission`, `no_gpu`,
    `not_answering`, `agent_ended` or `error`."""
    cards: tuple[PciCard, ...] = ()
    """The NVIDIA cards that the PCI bus shows nevertheless."""

    def __str__(self) -> str:
        cards = ", ".join(map(str, self.cards))
        return f"{self.text}: {self.advice}" + (f"; on the PCI bus: {cards}" if cards else "")


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an exporter reports of a GPU, where no agent of gputop has read the machine."""

    free: bool | None = None
    """Whether a new job could have it; None if the exporter cannot tell either."""
    reason: str = ""
    """Why it is not free, or why that is not known: the code of an objection
    (`model.health.free`), or empty."""
    users: tuple[str, ...] | None = None
    """Who computes on it, most processes first; None if the exporter does not report users.
    Names in parentheses stand for users that are not told apart."""
    jobs: tuple[str, ...] = ()
    """The jobs on it: `slurm 4711 (alice)`."""
    findings: tuple[Finding, ...] | None = None
    """What needs attention; None if the exporter reports none."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One machine at one instant. What is worked out of it is kept with it (`dict`)."""

    schema: int = SCHEMA
    """Rises when a field changes its meaning or goes away."""
    host: Host
    """The machine around the GPUs."""
    time: float
    """Seconds since the epoch, by the clock of the machine it shows."""
    interval: float | None = None
    """Seconds to the next frame; None if there will be none."""
    driver_version: str | None = None
    """As `580.159.03`."""
    cuda_version: str | None = None
    """The newest CUDA that the driver runs, as `13.0`."""
    gpus: tuple[Gpu, ...] = ()
    """In the order of their indices."""
    processes: tuple[Process, ...] = ()
    """One entry for each process and GPU: a process on two GPUs is there twice."""
    problem: Problem | None = None
    """Why there are no GPUs; only with `--watch`, since without it this is an error."""
    links: Links | None = None
    """How the GPUs are connected, once that is known: a row and a column each, in the words of
    `nvidia-smi topo -m`."""
    topology: Topology | None = None
    """Where they stand in the machine, once that is known."""
    demo: bool = False
    """True for an invented machine."""
    reported_by: str | None = None
    """What reports the machine if no agent of gputop does, as `Prometheus`: little is known then,
    and nothing about single processes."""
    reports: dict[str, GpuReport] = {}
    """What it says of GPUs, by their UUIDs, beyond the values that they have; else empty."""

    @cached_property
    def compute_processes(self) -> dict[str | None, list[Process]]:
        """The processes that compute, by the UUID of their GPU."""
        return grouped((p for p in self.processes if p.type != "G"), attrgetter("gpu_uuid"))

    @cached_property
    def by_instance(self) -> dict[tuple[str | None, int | None, int | None], list[Process]]:
        """The processes by the UUID of their GPU, their GPU instance and compute instance."""
        return grouped(self.processes, attrgetter("gpu_uuid", "gpu_instance", "compute_instance"))

    def cached(self, compute: Callable[..., T], gpu: Gpu, *device: MigDevice | None) -> T:
        """Return `compute(self, gpu, *device)`, which is called once for each GPU or MIG device of
        the frame: several panes and pages need it."""
        key = (compute, id(gpu), *map(id, device))  # these stay unique: what has them is kept, too
        computed: tuple[object, T] | None = self._computed.get(key)
        if computed is None:
            computed = self._computed[key] = (gpu, device), compute(self, gpu, *device)
        return computed[1]

    @cached_property
    def _computed(self) -> dict[object, tuple[object, Any]]:
        """What `cached` has returned."""
        return {}

    def report(self, gpu: Gpu) -> GpuReport | None:
        return self.reports.get(gpu.uuid or "")

    def key(self, process: Process) -> ProcessKey:
        return ProcessKey(self.host.boot_id, process.id)
