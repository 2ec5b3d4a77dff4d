"""One physical GPU at one instant, and what it consists of.

Units and `None` as in `model.machine.frame`. What most monitors show of a GPU is in `Gpu` itself;
the rest is in `model.machine.sections`, a field for each section.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from gputop.model.machine.sections import (
    BRIEF,
    PLAIN,
    Activity,
    Bar1Memory,
    Bytes,
    Celsius,
    Clocks,
    Count,
    Ecc,
    Engines,
    Flag,
    Health,
    Hertz,
    Identity,
    Nvlink,
    Pcie,
    Power,
    Ratio,
    Seconds,
    Text,
    Thermal,
    Throttle,
    Total,
    Unit,
    Watts,
)
from gputop.model.machine.text import short_name

HolderReason = Literal["orphan", "zombie_child", "other_namespace", "open", "monitor"]
"""Why a process that the driver does not list has a GPU open.

orphan           its job has ended: its parent is process 1 and it leads no group of its own, or the
                 leader of its group is gone
zombie_child     its parent, or the leader of its group, is a zombie
other_namespace  it lives in another PID namespace, as in a container
open             none of these
monitor          it is known to watch GPUs (nvidia-persistenced, DCGM), or only asks the driver: it
                 has no /dev/nvidia-uvm open, without which no program computes
"""


GpuState = Literal["answers", "late", "asleep", "lost", "silent"]
"""What the values of a GPU are worth: see `Gpu.state`. Those of a GPU that is late are shown dim,
with `≈`; in place of those of a silent one there is a sentence."""

Listing = Literal["all", "ours", "none", "unknown"]
"""Which compute processes of a GPU are listed: see `Gpu.listed`. Only with `all` does an empty list
say that nobody computes there; `unknown`: the GPU has not been asked, or has no answer."""

PartKey = tuple[str, tuple[int, int] | None]
"""The key of a GPU, and the `instance_ids` of its MIG device or None."""

SILENT_AFTER = 4.0
"""Seconds without an answer after which a GPU is silent: less than a command waits for all GPUs. A
GPU that wakes up may take two or three."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A user means to use a GPU or MIG device, and said so with `gputop run` or `gputop reserve`.
    Advisory."""

    user: str
    """Who has reserved it, by the kernel."""
    since: float
    """Seconds since the epoch, by the kernel."""
    pid: int | None = None
    """The user's process that took it; this and the next two are only the user's word. None if it
    has ended, and others have inherited the reservation."""
    until: float | None = None
    """When it will end, seconds since the epoch, if that was said."""
    command: str | None = None
    """What it is for."""


class MigDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A compute instance of a GPU in MIG mode."""

    uuid: str | None = None
    """As `nvidia-smi -L` prints it, with its MIG-."""
    gi: int
    """Id of the GPU instance."""
    ci: int
    """Id of the compute instance within it."""
    profile: str | None = None
    """As `2g.20gb`."""
    memory_total: int | None = None
    """Bytes of its own memory."""
    memory_used: int | None = None
    """Bytes of it in use."""
    activity: Activity | None = None
    """That of its GPU instance, which all compute instances in it share."""
    reservation: Reservation | None = None
    """The oldest one, if it is reserved."""

    @property
    def instance_ids(self) -> tuple[int, int]:
        return self.gi, self.ci

    @property
    def memory_free(self) -> int | None:
        """What is left of its memory."""
        total, used = self.memory_total, self.memory_used
        return None if total is None or used is None else total - used

    @property
    def utilization(self) -> float | None:
        """That of its graphics engine, as far as GPM tells it."""
        return None if self.activity is None else self.activity.graphics


def mig_number(index: int, gi: int, ci: int | None) -> str:
    """Return the number of a MIG device: `0:2` for GPU instance 2 of GPU 0, and `0:2/1` for its
    compute instance 1, as there is seldom more than compute instance 0."""
    return f"{index}:{gi}" + (f"/{ci}" if ci else "")


UNREADABLE = "gputop cannot read it"
"""The beginning of a `Gpu.error` that is gputop's own."""


class DeviceHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has a GPU's device node open while the driver does not list it there."""

    pid: int
    """Process number."""
    start_ticks: int
    """Clock ticks from the boot to its start: identity, with the PID."""
    start_time: float
    """Seconds since the epoch."""
    user: str | None = None
    """Who owns it."""
    command: str | None = None
    """Its command line."""
    reason: HolderReason
    """`orphan`, `zombie_child`, `other_namespace`, `open` or `monitor`."""


class SlurmJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of Slurm that holds a GPU, with a process on it or without."""

    number: str | None = None
    """As `4711`, from its control group; None where that is not named by it."""
    user: str | None = None
    """Whose job it is."""


def _profiles(devices: tuple[MigDevice, ...]) -> str:
    return " ".join(device.profile or f"{device.gi}/{device.ci}" for device in devices)


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One physical GPU. The fields that are shown are annotated, as `model.machine.sections`
    explains."""

    # Not kw_only: the protocol gives them by position, as those of ProcessFacts.

    index: Annotated[int, PLAIN, "GPU", "NVML's index, the number that nvidia-smi prints"]
    """It is not CUDA's ordinal."""
    uuid: Annotated[Text, "UUID", "identity, whatever the order of the GPUs"] = None
    """None only until the GPU has answered for the first time."""
    name: Annotated[str | None, Unit("", short_name), "NAME", "the product's name"] = None
    pci_bus_id: Annotated[Text, "BUS-ID", "domain:bus:device.function"] = None
    """As NVML writes it: `00000000:17:00.0`."""
    minor: Annotated[int | None, PLAIN, "MINOR", "the N of /dev/nvidiaN"] = None
    """It need not equal the index."""

    memory_total: Annotated[Bytes, "MEM-TOTAL", "device memory"] = None
    memory_used: Annotated[Bytes, "MEM-USED", "in use, without what is reserved"] = None
    """As nvidia-smi shows it. If NVML has only the v1 call, it includes what the driver reserves,
    and `memory_reserved` is None."""
    memory_free: Annotated[Bytes, "MEM-FREE", "what can still be allocated"] = None
    memory_reserved: Annotated[Bytes, "MEM-RSVD", "kept by the driver and firmware"] = None
    memory_unaccounted: Annotated[
        Bytes, "UNACCOUNTED", "memory in use, and of no listed process"
    ] = None
    """See `model.health.unaccounted`."""
    numa_node: int | None = None
    """The NUMA node that its memory is to the system (GH200, GB200). The system then manages it,
    and keeps pages after their process has ended: memory in use says little about who uses it."""

    utilization: Annotated[Ratio, "UTIL", "share of the last sample with work in it"] = None
    """The driver's sample period is 1/6 to 1 s. It reports whole percents, so 0 may still be a
    little work."""
    memory_utilization: Annotated[Ratio, "MEM-UTIL", "share of time memory was busy"] = None
    """Of the same period: read or written."""
    temperature: Annotated[Celsius, "TEMP", "of the GPU's core", BRIEF] = None
    power: Annotated[Watts, "POWER", "drawn by the board", BRIEF] = None
    power_limit: Annotated[Watts, "CAP", "the power limit that is enforced", BRIEF] = None
    sm_clock: Annotated[Hertz, "CLOCK", "of the multiprocessors, shown in MHz"] = None
    sm_clock_max: Annotated[Hertz, "CLOCK-MAX", "the highest SM clock of this card"] = None
    memory_clock: Annotated[Hertz, "MCLOCK", "of the memory, shown in MHz"] = None
    fan: Annotated[Ratio, "FAN", "intended speed; may pass 1", BRIEF] = None
    pstate: Annotated[
        int | None,
        Unit("", "P{}".format, ""),
        "PERF",
        "performance state, P0 is the highest",
        BRIEF,
    ] = None
    """0 to 15."""

    persistence_mode: Annotated[Flag, "PERS", "the driver stays loaded without clients", BRIEF] = (
        None
    )
    accounting_mode: Annotated[Flag, "ACCT", "figures of ended processes are kept"] = None
    display_active: Annotated[Flag, "DISP", "a display is driven", BRIEF] = None
    compute_mode: Annotated[Text, "COMPUTE", "who may open a context", BRIEF] = None
    """`default`, `exclusive_thread`, `prohibited` or `exclusive_process`."""
    ecc_uncorrected: Annotated[
        Total, "ECC", "uncorrected memory errors since the driver loaded", BRIEF
    ] = None
    """Of the whole GPU; None if ECC is off or absent."""
    mig_mode: Annotated[Flag, "MIG", "the card is partitioned"] = None
    mig: Annotated[
        tuple[MigDevice, ...] | None, Unit("", _profiles), "MIG-DEVICES", "its MIG devices"
    ] = None
    """In NVML's order; empty if MIG mode is on without any. None if MIG mode is off, or if not all
    of them are known."""
    cores: Annotated[Count, "CORES", "CUDA cores"] = None
    """None also in MIG mode, since drivers do not report it then."""
    sm: Annotated[Count, "SM", "streaming multiprocessors"] = None

    listed: Annotated[Listing, PLAIN, "LISTED", "which of its compute processes are listed"] = (
        "unknown"
    )
    """`all`; `ours`: those of gputop's own PID namespace, as in a container; `none`: the driver
    does not list them (WSL, no permission), or not all; or `unknown`."""
    idle_for: Annotated[Seconds, "IDLE", "no work seen in its samples for so long"] = None
    """Or since gputop's first sample. A burst between two samples is not seen. None if utilization
    is not known, and in a single sample."""
    holders: tuple[DeviceHolder, ...] = ()
    """Unlisted processes that have it open, the most suspect first. Searched every ten seconds at
    most, if memory is unaccounted or processes are not listed; only the user's own without root."""
    holders_known: bool | None = None
    """False if some process has more files open than could be searched so far: others may have the
    GPU open, too. None without a search."""

    reservation: Reservation | None = None
    """The oldest one, if the GPU is reserved."""
    slurm_job: SlurmJob | None = None
    """The job of Slurm that holds it; None also where that cannot be read (`host.jobs_unknown`)."""

    identity: Identity | None = None
    bar1: Bar1Memory | None = None
    engines: Engines | None = None
    clocks: Clocks | None = None
    power_more: Power | None = None
    thermal: Thermal | None = None
    throttle: Throttle | None = None
    pcie: Pcie | None = None
    nvlink: Nvlink | None = None
    ecc: Ecc | None = None
    health: Health | None = None
    activity: Activity | None = None

    state: Annotated[GpuState, PLAIN, "STATE", "what its values are worth"] = "answers"
    """`answers`; `late`: they are old; `asleep`: the kernel has switched it off until it is used,
    and it is not asked, which would wake it; `lost`: there is an error instead of values;
    `silent`: no answer for four seconds, or ever."""
    stale_for: Annotated[Seconds, "AGE", "age of the values while the GPU does not answer"] = None
    error: Annotated[Text, "ERROR", "what the driver says instead of values"] = None
    """The GPU is lost, needs a reset, ... Or what went wrong in gputop, which then begins with
    "gputop cannot read it" (UNREADABLE)."""

    @property
    def has_answered(self) -> bool:
        """Whether anything is known of it besides its index."""
        values = (self.uuid, self.name, self.pci_bus_id, self.memory_total, self.utilization)
        return any(value is not None for value in values)

    @property
    def is_overdue(self) -> bool:
        """Whether it has yet to answer: its values are old, or there are none."""
        return self.state in ("late", "silent")

    @property
    def tells_processes(self) -> bool:
        """Whether its processes are listed now, if only those of gputop's own PID namespace."""
        return self.state == "answers" and self.listed in ("all", "ours")

    @property
    def reported_error(self) -> str | None:
        """`error`, with its author if that is the driver."""
        if self.error is None or self.error.startswith(UNREADABLE):
            return self.error
        return f"the driver says: {self.error}"

    @property
    def key(self) -> str:
        """Its identity: the UUID, or the index if it never answered."""
        return self.uuid or f"index {self.index}"


class GpuPart(msgspec.Struct, frozen=True):
    """What a job can have of a GPU: all of it, or a MIG device."""

    gpu: Gpu
    device: MigDevice | None = None

    @property
    def subject(self) -> Gpu | MigDevice:
        return self.device or self.gpu

    @property
    def key(self) -> PartKey:
        return self.gpu.key, None if self.device is None else self.device.instance_ids

    @property
    def id(self) -> tuple[int, int | None, int | None]:
        """As `CudaDevice.id`."""
        return self.gpu.index, *(self.device.instance_ids if self.device else (None, None))

    @property
    def number(self) -> str:
        """As `2`, and `0:2` for a MIG device."""
        ids = () if self.device is None else self.device.instance_ids
        return mig_number(self.gpu.index, *ids) if ids else str(self.gpu.index)


def parts_of(gpus: Iterable[Gpu]) -> list[GpuPart]:
    """Return each GPU, followed by its MIG devices."""
    return [GpuPart(gpu, device) for gpu in gpus for device in (None, *(gpu.mig or ()))]


def overdue_state(stale_for: float) -> GpuState:
    """Return the state of a GPU that has not answered for so many seconds."""
    return "late" if stale_for < SILENT_AFTER else "silent"


def is_named(gpu: Gpu, word: str) -> bool:
    """Return whether a word is the index of a GPU, or a beginning of its UUID in any case."""
    if word.isascii() and word.isdecimal():
        return str(gpu.index) == (word.lstrip("0") or "0")
    return bool(word) and (gpu.uuid or "").casefold().startswith(word.casefold())


def gpus_named(gpus: Iterable[Gpu], word: str) -> list[Gpu]:
    """Return the GPUs that a word names; none for a beginning that all UUIDs share."""
    if "gpu-".startswith(word.casefold()):
        return []
    return [gpu for gpu in gpus if is_named(gpu, word)]
