"""One physical GPU at one instant, and what it consists of.

Units and `None` as in `model.frame`. What most monitors show of a GPU stands in `Gpu` itself;
the rest in `model.sections`, a field for each.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gputop.model.sections import (
    Activity,
    Bar1,
    Clocks,
    Ecc,
    Engines,
    Health,
    Identity,
    Nvlink,
    Pcie,
    Power,
    Thermal,
    Throttle,
)

Reason = Literal["orphan", "zombie_child", "other_namespace", "open", "monitor"]
"""Why a process has a GPU open that the driver does not list there.

orphan           its job has ended: its parent is process 1 and it leads no group of its own, or the
                 leader of its group is gone
zombie_child     its parent, or the leader of its group, is a zombie
other_namespace  it lives in another PID namespace, as in a container
open             none of these
monitor          it is known to watch GPUs (nvidia-persistenced, DCGM), or only asks the driver: it
                 has no /dev/nvidia-uvm open, without which nobody computes
"""


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
    memory_used: int | None = None
    activity: Activity | None = None
    """Of its GPU instance; compute instances of one share it."""

    @property
    def place(self) -> tuple[int, int]:
        """Which instances it is, as a process says where it is."""
        return self.gi, self.ci


UNREADABLE = "gputop cannot read it"
"""The beginning of a `Gpu.error` that is gputop's own."""


class Opener(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has a GPU's device node open while the driver does not list it there."""

    pid: int
    start_time: float
    """Seconds since the epoch: identity, with the pid."""
    user: str | None = None
    command: str | None = None
    reason: Reason
    """See `model.unexplained` for what to do."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One physical GPU, in the order of NVML's indices."""

    index: int
    """NVML's index, the number nvidia-smi prints. It is not CUDA's ordinal."""
    uuid: str | None = None
    """Identity. None only until the GPU has answered for the first time."""
    name: str | None = None
    pci_bus_id: str | None = None
    """As NVML writes it: `00000000:17:00.0`."""
    minor: int | None = None
    """The N of /dev/nvidiaN; it need not equal the index."""

    memory_total: int | None = None
    memory_used: int | None = None
    """Without what the driver reserves, as nvidia-smi shows it; with it where NVML has only the
    v1 call, and then `memory_reserved` is None."""
    memory_free: int | None = None
    memory_reserved: int | None = None
    memory_unexplained: int | None = None
    """In use, and of no listed process; see `model.unexplained`."""

    utilization: float | None = None
    """Share of the driver's last sample period in which a kernel ran."""
    memory_utilization: float | None = None
    """Share of that period in which device memory was read or written."""
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None
    """The limit that is enforced."""
    sm_clock: int | None = None
    sm_clock_max: int | None = None
    memory_clock: int | None = None
    fan: float | None = None
    """Intended speed; the driver may say more than 1."""
    pstate: int | None = None
    """0 (maximum performance) to 15."""

    persistence_mode: bool | None = None
    accounting_mode: bool | None = None
    """The driver keeps figures of processes that have ended."""
    display_active: bool | None = None
    compute_mode: str | None = None
    """`default`, `exclusive_thread`, `prohibited` or `exclusive_process`."""
    ecc_uncorrected: int | None = None
    """Volatile, all of the GPU; None where ECC is off or absent."""
    mig_mode: bool | None = None
    mig: tuple[MigDevice, ...] | None = None
    """In NVML's order; empty where MIG mode is on without any. None where MIG mode is off, and
    where not all of them are known."""
    cores: int | None = None
    """CUDA cores; None also in MIG mode, where drivers do not tell."""
    sm: int | None = None
    """Streaming multiprocessors."""

    processes_known: bool | None = None
    """False where the driver does not list compute processes (WSL, no permission): that none is
    listed then says nothing."""
    idle_for: float | None = None
    """Seconds since it was last seen to run a kernel, or since gputop first looked: at least so
    long. None where utilization is not known, and in a single look."""
    openers: tuple[Opener, ...] = ()
    """Looked for, every ten seconds at most, where memory is unexplained or processes are not
    listed: without root among the user's own processes only. Those who say most come first."""

    identity: Identity | None = None
    bar1: Bar1 | None = None
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

    asleep: bool = False
    """The kernel has switched it off until somebody uses it, as on laptops. It is not asked, which
    would wake it: identity is all there is. Processes may hold some of it all the same, so it does
    not count as free."""
    stale_for: float | None = None
    """Age of the values when the GPU did not answer in this cycle; None while it answers."""
    error: str | None = None
    """What the driver says instead of values: the GPU is lost, needs a reset, ... Or, with
    UNREADABLE, what went wrong in gputop."""

    @property
    def complaint(self) -> str | None:
        """`error`, and whose it is."""
        if self.error is None or self.error.startswith(UNREADABLE):
            return self.error
        return f"the driver says: {self.error}"

    @property
    def key(self) -> str:
        """Identity; of a GPU that never answered, its place."""
        return self.uuid or f"index {self.index}"
