"""What a GPU reports beyond the main screen, by subject: each section is one field of `Gpu`.

Every value is declared here and nowhere else. Values that are shown are annotated with unit, label
and help, `Annotated[Ratio, "ENC", "share of time ..."]`. The registry (`model.metrics.gpu`) is made
from these annotations; the columns, the page of a GPU and the graphs are made from the registry.
BRIEF marks what a table of GPUs prints and what findings and limits go by: a snapshot of an agent
that is `--brief` has no other values.

Units and `None` as in `model.machine.frame`. A section is None until the GPU has been asked for it,
and if the driver has no data for it. Rates cover the time since the previous sample. Counters that
fall (a reset, a reload) start again. Sources: NVML's API reference, and nvidia-smi for the names.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec

from gputop.model.machine.text import duration, percent, rate, size


class Unit(NamedTuple):
    """The unit of a value, and the text of a value that is not None."""

    name: str = ""
    show: Callable[[Any], str] = str
    suffix: str | None = None
    """The end of a metric's name for Prometheus: the base unit, and `_total` if it only rises. None
    if the value is no number."""
    width: int = 1
    """Cells that a column of processes has for such a value at least; its label may take more."""


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _energy(joules: float) -> str:
    """Return kJ, or kWh from 0.1 kWh on."""
    hours = joules / 3.6e6
    return f"{hours:.2f} kWh" if hours >= 0.1 else f"{joules / 1000:.1f} kJ"


def _fault(word: str) -> Unit:
    """Return the unit of a fault, which is there, and then so called, or not."""
    return Unit("", lambda is_there: word if is_there else "none", "")


BRIEF = "brief"
"""Marks a value that an agent asks for even if it is brief."""


@lru_cache(maxsize=16)
def marked(kind: type, mark: str) -> tuple[str, ...]:
    """Return the names of the values that a struct itself declares with a mark, in their order."""
    hints = kind.__annotations__.items()  # no strings here: evaluating them takes milliseconds
    return tuple(name for name, hint in hints if mark in getattr(hint, "__metadata__", ()))


PLAIN = Unit()
NUMBER = Unit("", str, "")
SWITCH = Unit("", lambda on: "on" if on else "off", "")
RATIO = Unit("0..1", percent, "_ratio", 3)
BYTES = Unit("bytes", size, "_bytes", 5)
RATE = Unit("B/s", rate, "_bytes_per_second", len("4.15 MB/s"))
SECONDS = Unit("s", duration, "_seconds", 6)

Text = Annotated[str | None, PLAIN]
Count = Annotated[int | None, NUMBER]
Total = Annotated[int | None, Unit("", str, "_total")]
Flag = Annotated[bool | None, SWITCH]
Pending = Annotated[bool | None, _fault("pending")]
Bytes = Annotated[int | None, BYTES]
BytesPerSecond = Annotated[float | None, RATE]
Ratio = Annotated[float | None, RATIO]
Cores = Annotated[float | None, Unit("cores", percent, "_ratio", 5)]
"""1.0 is one core, and shown as 100."""
Seconds = Annotated[float | None, SECONDS]
Hertz = Annotated[int | None, Unit("Hz", lambda hertz: f"{hertz / 1e6:.0f}", "_hertz")]
Watts = Annotated[float | None, Unit("W", _whole, "_watts")]
Celsius = Annotated[float | None, Unit("Celsius", _whole, "_celsius")]


class Identity(msgspec.Struct, frozen=True, gc=False):
    """What never changes."""

    serial: Annotated[Text, "SERIAL", "of the board"] = None
    vbios: Annotated[Text, "VBIOS", "version of the card's firmware"] = None
    architecture: Annotated[Text, "ARCH", "generation of the chip"] = None
    """As `Hopper`."""
    compute_capability: Annotated[Text, "CC", "compute capability", BRIEF] = None
    """As `9.0`."""
    virtualization: Annotated[Text, "VIRTUAL", "how a virtual machine got the card", BRIEF] = None
    """`none`, `passthrough`, `vgpu` (this is a virtual machine's share), `host_vgpu`, ..."""


class Bar1Memory(msgspec.Struct, frozen=True, gc=False):
    """The window through which the PCIe bus sees the memory."""

    total: Annotated[Bytes, "BAR1", "window through which the bus sees the memory"] = None
    used: Annotated[Bytes, "BAR1-USED", "mapped through that window"] = None


class Engines(msgspec.Struct, frozen=True, gc=False):
    """Share of the last sample period in which an engine was in use."""

    encoder: Annotated[Ratio, "ENC", "share of time the encoder was in use"] = None
    decoder: Annotated[Ratio, "DEC", "share of time the decoder was in use"] = None
    jpeg: Annotated[Ratio, "JPEG", "share of time the JPEG decoder was in use"] = None
    ofa: Annotated[Ratio, "OFA", "share of time optical flow was in use"] = None


class Clocks(msgspec.Struct, frozen=True, gc=False):
    """Clocks besides those of SMs and memory, which are in `Gpu`."""

    graphics: Annotated[Hertz, "GCLOCK", "of graphics, shown in MHz"] = None
    graphics_max: Annotated[Hertz, "GCLOCK-MAX", "the highest of graphics"] = None
    video: Annotated[Hertz, "VCLOCK", "of video engines, shown in MHz"] = None
    video_max: Annotated[Hertz, "VCLOCK-MAX", "the highest of video engines"] = None
    memory_max: Annotated[Hertz, "MCLOCK-MAX", "the highest memory clock"] = None


class Power(msgspec.Struct, frozen=True, gc=False):
    """Power besides draw and enforced limit, which are in `Gpu`."""

    average: Annotated[Watts, "POWER-AVG", "drawn, averaged over a second"] = None
    instant: Annotated[Watts, "POWER-NOW", "drawn at this instant"] = None
    limit_default: Annotated[Watts, "CAP-DEFAULT", "the limit after a reboot"] = None
    limit_min: Annotated[Watts, "CAP-MIN", "the lowest that can be set"] = None
    limit_max: Annotated[Watts, "CAP-MAX", "the highest that can be set"] = None
    energy: Annotated[
        float | None,
        Unit("J", _energy, "_joules_total"),
        "ENERGY",
        "used since gputop's first look",
    ] = None


class Thermal(msgspec.Struct, frozen=True, gc=False):
    """Temperatures besides the core's, which is in `Gpu`."""

    memory: Annotated[Celsius, "TEMP-MEM", "of the memory"] = None
    margin: Annotated[Celsius, "T.LIMIT", "degrees left before the GPU slows down"] = None
    """T.Limit, or if the card has none, the degrees to the fixed threshold."""
    slowdown: Annotated[Celsius, "SLOWDOWN", "where the GPU slows down"] = None
    """The fixed threshold; None if the card has none, as Hopper."""
    shutdown: Annotated[Celsius, "SHUTDOWN", "where the GPU shuts down"] = None


class Throttle(msgspec.Struct, frozen=True, gc=False):
    """What holds the clocks back; names as in `model.health.throttle`."""

    reasons: Annotated[
        tuple[str, ...], PLAIN, "THROTTLED", "what holds the clocks back now", BRIEF,
    ] = ()  # fmt: skip
    """Strongest first; empty also while the GPU is idle."""
    lasting: tuple[str, ...] = ()
    """Those of `reasons` that the two samples before had as well; empty in a single sample. A
    change of clocks may look like `hw_slowdown` for a moment."""
    shares: Annotated[
        dict[str, float], Unit("0..1"), "HELD-BACK", "share of time since the first look"
    ] = {}
    """By reason, as far as the driver counts them."""


LOADED = 0.5
"""Utilization from which a PCIe link should run at full speed: idle cards slow it down."""


class Pcie(msgspec.Struct, frozen=True, gc=False):
    """The link to the host; the highest values are those of GPU and slot together."""

    generation: Annotated[Count, "GEN", "of the link now; idle cards go low", BRIEF] = None
    generation_max: Annotated[Count, "GEN-MAX", "that card and slot can do", BRIEF] = None
    width: Annotated[Count, "LANES", "of the link now", BRIEF] = None
    width_max: Annotated[Count, "LANES-MAX", "that card and slot can do", BRIEF] = None
    tx: Annotated[BytesPerSecond, "PCIE-TX", "sent by the GPU"] = None
    rx: Annotated[BytesPerSecond, "PCIE-RX", "received by the GPU"] = None
    replays: Annotated[Total, "REPLAYS", "packets that had to be sent again"] = None


class Nvlink(msgspec.Struct, frozen=True, gc=False):
    """All NVLinks of the GPU; errors are those since the driver loaded."""

    up: Annotated[Count, "LINKS", "NVLinks that are up", BRIEF] = None
    down: Annotated[Count, "DOWN", "NVLinks that should be up and are not"] = None
    """Neither up nor asleep."""
    asleep: int | None = None
    """Links that are switched off to save power until they are used."""
    tx: Annotated[BytesPerSecond, "NVL-TX", "sent over all NVLinks"] = None
    rx: Annotated[BytesPerSecond, "NVL-RX", "received over all NVLinks"] = None
    errors: Annotated[Total, "NVL-ERR", "replays, recoveries and CRC errors"] = None


class Ecc(msgspec.Struct, frozen=True, gc=False):
    """Memory errors; uncorrected ones since the driver loaded are `Gpu.ecc_uncorrected`.

    Pages are retired before Ampere, rows remapped since.
    """

    enabled: Annotated[Flag, "ECC-MODE", "memory errors are found and corrected"] = None
    pending: Annotated[Flag, "ECC-NEXT", "the same after the next reboot"] = None
    corrected: Annotated[Total, "ECC-COR", "corrected ones since the driver loaded"] = None
    corrected_dram: Annotated[Total, "COR-DRAM", "corrected ones in the device memory"] = None
    corrected_sram: Annotated[Total, "COR-SRAM", "corrected ones in the chip itself"] = None
    uncorrected_dram: Annotated[Total, "ECC-DRAM", "uncorrected ones in the device memory"] = None
    uncorrected_sram: Annotated[Total, "ECC-SRAM", "uncorrected ones in the chip itself"] = None
    aggregate_corrected: Annotated[Total, "COR-LIFE", "corrected in the card's life"] = None
    aggregate_uncorrected: Annotated[Total, "ECC-LIFE", "uncorrected in the card's life"] = None
    sram_threshold_exceeded: Annotated[
        bool | None, _fault("exceeded"), "SRAM", "too many uncorrected SRAM errors", BRIEF
    ] = None
    retired_single: Annotated[Total, "PAGES-COR", "pages retired after corrected errors"] = None
    retired_double: Annotated[Total, "PAGES-UNC", "pages retired after uncorrected errors"] = None
    retired_pending: Annotated[Pending, "PAGES-NEXT", "pages wait for a reboot", BRIEF] = None
    remapped_correctable: Annotated[Total, "ROWS-COR", "rows remapped, corrected errors"] = None
    remapped_uncorrectable: Annotated[Total, "ROWS-UNC", "rows remapped, uncorrected errors"] = None
    remap_pending: Annotated[Pending, "ROWS-NEXT", "rows wait for a reset", BRIEF] = None
    remap_failure: Annotated[
        bool | None, _fault("failed"), "ROWS-FAIL", "a row could not be remapped", BRIEF
    ] = None


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver reported."""

    number: int
    """NVIDIA's XID catalog says what it means."""
    time: float
    """Seconds since the epoch, when gputop heard of it."""


class Health(msgspec.Struct, frozen=True, gc=False):
    """What the driver says about the whole card; `model.health.findings` says what it means."""

    xids: Annotated[
        tuple[Xid, ...] | None,
        Unit("", lambda xids: " ".join(str(xid.number) for xid in xids) or "none"),
        "XID", "errors that the driver reported",
    ] = None  # fmt: skip
    """The newest twenty since gputop started, the newest last: NVML reports no earlier ones, but
    the kernel's log has them. None if the driver does not report them, and in a single sample."""
    recovery_action: Annotated[Text, "RECOVERY", "what the driver says is needed", BRIEF] = None
    """`none`, `gpu_reset`, `node_reboot`, `drain_p2p`, `drain_and_reset`, ..."""
    fabric_state: Annotated[Text, "FABRIC", "state of the NVSwitch fabric", BRIEF] = None
    """`not_supported`, `not_started`, `in_progress`, `completed`, `failed`; of NVSwitch
    machines."""
    fabric_health: tuple[str, ...] | None = None
    """What is wrong with the fabric: `degraded_bandwidth`, `route_unhealthy`, `no_partition`, ...;
    None if the driver does not report it."""
    fabric_cluster: bool | None = None
    """Whether the fabric spans several machines."""
    repair_pending: Annotated[Pending, "REPAIR", "a repair waits for a reset", BRIEF] = None
    """Of channels or TPCs."""
    unrepairable_memory: Annotated[
        bool | None, _fault("found"), "UNREPAIRABLE", "memory beyond repair", BRIEF
    ] = None


class Activity(msgspec.Struct, frozen=True, gc=False):
    """What the parts of the chip did since the previous sample, by NVML's GPM (Hopper and later).
    Without GPM there is only `doing`, which says so."""

    graphics: Annotated[Ratio, "GR-ACT", "share of the last seconds in which anything ran"] = None
    """In MIG instances, too."""
    sm: Annotated[Ratio, "SM-ACT", "SMs that had a warp resident"] = None
    occupancy: Annotated[Ratio, "OCC", "warps resident, of those that fit"] = None
    tensor: Annotated[Ratio, "TENSOR", "tensor cores in use"] = None
    fp64: Annotated[Ratio, "FP64", "double-precision pipes in use"] = None
    fp32: Annotated[Ratio, "FP32", "single-precision pipes in use"] = None
    fp16: Annotated[Ratio, "FP16", "half-precision pipes in use"] = None
    dram: Annotated[Ratio, "DRAM", "bandwidth of the memory in use"] = None
    pcie_tx: float | None = None
    """Bytes per second, sent over PCIe."""
    pcie_rx: float | None = None
    """Bytes per second, received over PCIe."""
    nvlink_tx: float | None = None
    """Bytes per second, sent over NVLink."""
    nvlink_rx: float | None = None
    """Bytes per second, received over NVLink."""
    doing: Annotated[Text, "DOING", "what the last half minute looks like"] = None
    """See `model.health.activity`."""
