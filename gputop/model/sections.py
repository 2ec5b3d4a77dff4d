"""What a GPU says beyond the main screen, by subject: each is one field of `model.gpu.Gpu`.

Units and `None` as in `model.frame`. A section is None until the GPU has been asked for it, and
where the driver has nothing of it. Rates are since the look before. Counters that fall (a reset, a
reload) start again. Sources: NVML's API reference; nvidia-smi's names for the same.
"""

from __future__ import annotations

import msgspec


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What never changes."""

    serial: str | None = None
    vbios: str | None = None
    architecture: str | None = None
    """As `Hopper`."""
    compute_capability: str | None = None
    """As `9.0`."""
    virtualization: str | None = None
    """`none`, `passthrough`, `vgpu` (this is a virtual machine's share), `host_vgpu`, ..."""


class Bar1(msgspec.Struct, frozen=True, kw_only=True):
    """The window through which the PCIe bus sees the memory."""

    total: int | None = None
    used: int | None = None


class Engines(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the last sample period in which an engine was in use."""

    encoder: float | None = None
    decoder: float | None = None
    jpeg: float | None = None
    ofa: float | None = None


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """Beside the SM's and the memory's clocks, which are in `Gpu`."""

    graphics: int | None = None
    graphics_max: int | None = None
    video: int | None = None
    video_max: int | None = None
    memory_max: int | None = None


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """Beside draw and enforced limit, which are in `Gpu`."""

    average: float | None = None
    instant: float | None = None
    limit_default: float | None = None
    limit_min: float | None = None
    limit_max: float | None = None
    energy: float | None = None
    """Joules since gputop's first look."""


class Thermal(msgspec.Struct, frozen=True, kw_only=True):
    """Beside the core's temperature, which is in `Gpu`."""

    memory: float | None = None
    margin: float | None = None
    """Degrees left before the GPU slows down (T.Limit; the fixed threshold where there is none)."""
    slowdown: float | None = None
    """The fixed threshold; None where the card has none, as Hopper."""
    shutdown: float | None = None


THROTTLE_REASONS: dict[str, tuple[str, str]] = {
    "hw_thermal_slowdown": ("H", "too hot: the hardware halves the clocks or more"),
    "hw_power_brake_slowdown": ("B", "power brake: the machine's supply asks for less"),
    "hw_slowdown": ("S", "the hardware halves the clocks or more: heat, or the supply"),
    "sw_thermal_slowdown": ("T", "warm: the driver lowers the clocks"),
    "sw_power_cap": ("P", "the power limit is reached"),
    "sync_boost": ("Y", "waits for the slowest GPU of its sync boost group"),
}
"""By nvidia-smi's name, the letter and the words for it; what costs most comes first."""


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """What holds the clocks back; names as in `THROTTLE_REASONS`."""

    reasons: tuple[str, ...] = ()
    """Now, strongest first; empty also while the GPU is idle."""
    shares: dict[str, float] = {}
    """Share of the time since gputop's first look, by reason; of those whose counter there is."""


class Pcie(msgspec.Struct, frozen=True, kw_only=True):
    """The link to the host."""

    generation: int | None = None
    generation_max: int | None = None
    """Of GPU and slot together."""
    width: int | None = None
    width_max: int | None = None
    tx: float | None = None
    """Bytes per second that the GPU sends."""
    rx: float | None = None
    replays: int | None = None


class Nvlink(msgspec.Struct, frozen=True, kw_only=True):
    """All NVLinks of the GPU."""

    up: int | None = None
    down: int | None = None
    """Links that the GPU has and that are not up."""
    tx: float | None = None
    """Bytes per second."""
    rx: float | None = None
    errors: int | None = None
    """Replays, recoveries and CRC errors since the driver loaded."""


class Ecc(msgspec.Struct, frozen=True, kw_only=True):
    """Memory errors; uncorrected ones since the driver loaded are `Gpu.ecc_uncorrected`."""

    enabled: bool | None = None
    pending: bool | None = None
    """Whether it will be on after the next reboot."""
    corrected: int | None = None
    """Since the driver loaded."""
    corrected_dram: int | None = None
    """Of `corrected`, those in the device memory; likewise the three below."""
    corrected_sram: int | None = None
    uncorrected_dram: int | None = None
    uncorrected_sram: int | None = None
    aggregate_corrected: int | None = None
    """In the card's life."""
    aggregate_uncorrected: int | None = None
    sram_threshold_exceeded: bool | None = None
    retired_single: int | None = None
    """Pages retired after several correctable errors; before Ampere."""
    retired_double: int | None = None
    retired_pending: bool | None = None
    remapped_correctable: int | None = None
    """Rows; Ampere and later."""
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver reported."""

    number: int
    time: float
    """Seconds since the epoch, when gputop heard of it."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver says of the card as a whole; see `model.health` for what it means."""

    xids: tuple[Xid, ...] | None = None
    """The newest twenty since the driver was opened, the newest last; None where the driver does
    not report them, and in a single look."""
    recovery_action: str | None = None
    """`none`, `gpu_reset`, `node_reboot`, `drain_p2p`, `drain_and_reset`, ..."""
    fabric_state: str | None = None
    """`not_supported`, `not_started`, `in_progress`, `completed`, `failed`; of NVSwitch
    machines."""
    repair_pending: bool | None = None
    """Channel or TPC repair waits for a reset."""
    unrepairable_memory: bool | None = None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts of the chip did since the look before, by NVML's GPM (Hopper and later);
    ratios. Without GPM there is the verdict alone, and it says so."""

    graphics: float | None = None
    """Time in which anything ran, in MIG instances, too."""
    sm: float | None = None
    """SMs that had a warp resident."""
    occupancy: float | None = None
    """Warps resident, of those that fit."""
    tensor: float | None = None
    fp64: float | None = None
    fp32: float | None = None
    fp16: float | None = None
    dram: float | None = None
    """Bandwidth of the memory."""
    pcie_tx: float | None = None
    """Bytes per second."""
    pcie_rx: float | None = None
    nvlink_tx: float | None = None
    nvlink_rx: float | None = None
    verdict: str | None = None
    """Over the last half minute; see `model.activity`."""
