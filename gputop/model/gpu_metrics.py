"""The registry of what is shown of a GPU; see `model.metrics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gputop.model.gpu import Gpu, MigDevice
from gputop.model.metrics import Metric
from gputop.model.sections import Xid
from gputop.model.text import duration, percent, short_name, size


def _megahertz(hertz: float) -> str:
    return f"{hertz / 1e6:.0f}"


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _yes(flag: bool) -> str:
    return "on" if flag else "off"


def _profiles(devices: tuple[MigDevice, ...]) -> str:
    return " ".join(one.profile or f"{one.gi}/{one.ci}" for one in devices)


def _pstate(state: int) -> str:
    return f"P{state}"


def _rate(per_second: float) -> str:
    return size(int(per_second))


def _energy(joules: float) -> str:
    """In kWh from 0.1 on."""
    hours = joules / 3.6e6
    return f"{hours:.2f} kWh" if hours >= 0.1 else f"{joules / 1000:.1f} kJ"


def _names(names: tuple[str, ...]) -> str:
    return " ".join(names) or "no"


def _shares(shares: dict[str, float]) -> str:
    return " ".join(f"{name} {percent(share)}%" for name, share in shares.items()) or "none known"


def _xids(xids: tuple[Xid, ...]) -> str:
    return " ".join(str(xid.number) for xid in xids) or "none"


def _gpu(id_: str, label: str, unit: str, show: Callable[[Any], str], help_: str) -> Metric[Gpu]:
    """`id_` is the way to the field, as jq has it: `pcie.tx`."""
    names = id_.split(".")

    def read(gpu: Gpu) -> Any:
        value: Any = gpu
        for name in names:
            value = getattr(value, name, None)
        return value

    return Metric(id_, label, unit, help_, read, show)


SECTIONS: dict[str, tuple[Metric[Gpu], ...]] = {
    "Identity": (
        _gpu("index", "GPU", "", str, "NVML's index, the number that nvidia-smi prints"),
        _gpu("name", "NAME", "", short_name, "the product's name"),
        _gpu("uuid", "UUID", "", str, "identity, whatever the order of the GPUs"),
        _gpu("pci_bus_id", "BUS-ID", "", str, "domain:bus:device.function"),
        _gpu("minor", "MINOR", "", str, "the N of /dev/nvidiaN"),
        _gpu("identity.serial", "SERIAL", "", str, "of the board"),
        _gpu("identity.vbios", "VBIOS", "", str, "version of the card's firmware"),
        _gpu("identity.architecture", "ARCH", "", str, "generation of the chip"),
        _gpu("identity.compute_capability", "CC", "", str, "compute capability"),
        _gpu("identity.virtualization", "VIRTUAL", "", str, "how a virtual machine got the card"),
        _gpu("cores", "CORES", "", str, "CUDA cores"),
        _gpu("sm", "SM", "", str, "streaming multiprocessors"),
    ),
    "Memory": (
        _gpu("memory_total", "MEM-TOTAL", "bytes", size, "device memory"),
        _gpu("memory_used", "MEM-USED", "bytes", size, "in use, without what is reserved"),
        _gpu("memory_free", "MEM-FREE", "bytes", size, "what can still be allocated"),
        _gpu("memory_reserved", "MEM-RSVD", "bytes", size, "kept by the driver and firmware"),
        _gpu("memory_unexplained", "MEM-?", "bytes", size, "in use, and of no listed process"),
        _gpu("bar1.total", "BAR1", "bytes", size, "window through which the bus sees the memory"),
        _gpu("bar1.used", "BAR1-USED", "bytes", size, "mapped through that window"),
    ),
    "Utilization": (
        _gpu("utilization", "UTIL", "0..1", percent, "share of time in which a kernel ran"),
        _gpu("memory_utilization", "MEM-UTIL", "0..1", percent, "share of time memory was busy"),
        _gpu("engines.encoder", "ENC", "0..1", percent, "share of time the encoder was in use"),
        _gpu("engines.decoder", "DEC", "0..1", percent, "share of time the decoder was in use"),
        _gpu("engines.jpeg", "JPEG", "0..1", percent, "share of time the JPEG decoder was in use"),
        _gpu("engines.ofa", "OFA", "0..1", percent, "share of time optical flow was in use"),
        _gpu("idle_for", "IDLE", "s", duration, "at least so long without a kernel"),
    ),
    "Activity": (
        _gpu("activity.verdict", "DOING", "", str, "what the last half minute looks like"),
        _gpu("activity.graphics", "GR-ACT", "0..1", percent, "time in which anything ran"),
        _gpu("activity.sm", "SM-ACT", "0..1", percent, "SMs that had a warp resident"),
        _gpu("activity.occupancy", "OCC", "0..1", percent, "warps resident, of those that fit"),
        _gpu("activity.tensor", "TENSOR", "0..1", percent, "tensor cores in use"),
        _gpu("activity.fp64", "FP64", "0..1", percent, "double-precision pipes in use"),
        _gpu("activity.fp32", "FP32", "0..1", percent, "single-precision pipes in use"),
        _gpu("activity.fp16", "FP16", "0..1", percent, "half-precision pipes in use"),
        _gpu("activity.dram", "DRAM", "0..1", percent, "bandwidth of the memory in use"),
    ),
    "Clocks": (
        _gpu("sm_clock", "CLOCK", "Hz", _megahertz, "of the multiprocessors, shown in MHz"),
        _gpu("sm_clock_max", "CLOCK-MAX", "Hz", _megahertz, "the highest SM clock of this card"),
        _gpu("memory_clock", "MCLOCK", "Hz", _megahertz, "of the memory, shown in MHz"),
        _gpu("clocks.memory_max", "MCLOCK-MAX", "Hz", _megahertz, "the highest memory clock"),
        _gpu("clocks.graphics", "GCLOCK", "Hz", _megahertz, "of graphics, shown in MHz"),
        _gpu("clocks.graphics_max", "GCLOCK-MAX", "Hz", _megahertz, "the highest of graphics"),
        _gpu("clocks.video", "VCLOCK", "Hz", _megahertz, "of video engines, shown in MHz"),
        _gpu("clocks.video_max", "VCLOCK-MAX", "Hz", _megahertz, "the highest of video engines"),
        _gpu("pstate", "PERF", "", _pstate, "performance state, P0 is the highest"),
        _gpu("throttle.reasons", "THROTTLED", "", _names, "what holds the clocks back now"),
        _gpu("throttle.shares", "HELD-BACK", "0..1", _shares, "share of time since the first look"),
    ),
    "Power": (
        _gpu("power", "POWER", "W", _whole, "drawn by the board"),
        _gpu("power_more.average", "POWER-AVG", "W", _whole, "drawn, averaged over a second"),
        _gpu("power_more.instant", "POWER-NOW", "W", _whole, "drawn at this instant"),
        _gpu("power_limit", "CAP", "W", _whole, "the power limit that is enforced"),
        _gpu("power_more.limit_default", "CAP-DEFAULT", "W", _whole, "the limit after a reboot"),
        _gpu("power_more.limit_min", "CAP-MIN", "W", _whole, "the lowest that can be set"),
        _gpu("power_more.limit_max", "CAP-MAX", "W", _whole, "the highest that can be set"),
        _gpu("power_more.energy", "ENERGY", "J", _energy, "used since gputop's first look"),
    ),
    "Temperature": (
        _gpu("temperature", "TEMP", "Celsius", _whole, "of the GPU's core"),
        _gpu("thermal.memory", "TEMP-MEM", "Celsius", _whole, "of the memory"),
        _gpu("thermal.margin", "LEFT", "Celsius", _whole, "left before the GPU slows down"),
        _gpu("thermal.slowdown", "SLOWDOWN", "Celsius", _whole, "where the GPU slows down"),
        _gpu("thermal.shutdown", "SHUTDOWN", "Celsius", _whole, "where the GPU shuts down"),
        _gpu("fan", "FAN", "0..1", percent, "intended speed; may pass 1"),
    ),
    "PCIe": (
        _gpu("pcie.generation", "GEN", "", str, "of the link now; idle cards go low"),
        _gpu("pcie.generation_max", "GEN-MAX", "", str, "that card and slot can do"),
        _gpu("pcie.width", "LANES", "", str, "of the link now"),
        _gpu("pcie.width_max", "LANES-MAX", "", str, "that card and slot can do"),
        _gpu("pcie.tx", "PCIE-TX", "B/s", _rate, "sent by the GPU"),
        _gpu("pcie.rx", "PCIE-RX", "B/s", _rate, "received by the GPU"),
        _gpu("pcie.replays", "REPLAYS", "", str, "packets that had to be sent again"),
    ),
    "NVLink": (
        _gpu("nvlink.up", "LINKS", "", str, "NVLinks that are up"),
        _gpu("nvlink.down", "DOWN", "", str, "NVLinks that should be up and are not"),
        _gpu("nvlink.tx", "NVL-TX", "B/s", _rate, "sent over all NVLinks"),
        _gpu("nvlink.rx", "NVL-RX", "B/s", _rate, "received over all NVLinks"),
        _gpu("nvlink.errors", "NVL-ERR", "", str, "replays, recoveries and CRC errors"),
    ),
    "Health": (
        _gpu("ecc.enabled", "ECC-MODE", "", _yes, "memory errors are found and corrected"),
        _gpu("ecc.pending", "ECC-NEXT", "", _yes, "the same after the next reboot"),
        _gpu(
            "ecc_uncorrected", "ECC", "", str, "uncorrected memory errors since the driver loaded"
        ),
        _gpu("ecc.corrected", "ECC-COR", "", str, "corrected ones since the driver loaded"),
        _gpu("ecc.uncorrected_dram", "ECC-DRAM", "", str, "uncorrected ones in the device memory"),
        _gpu("ecc.uncorrected_sram", "ECC-SRAM", "", str, "uncorrected ones in the chip itself"),
        _gpu("ecc.corrected_dram", "COR-DRAM", "", str, "corrected ones in the device memory"),
        _gpu("ecc.corrected_sram", "COR-SRAM", "", str, "corrected ones in the chip itself"),
        _gpu("ecc.aggregate_uncorrected", "ECC-LIFE", "", str, "uncorrected in the card's life"),
        _gpu("ecc.aggregate_corrected", "COR-LIFE", "", str, "corrected in the card's life"),
        _gpu("ecc.sram_threshold_exceeded", "SRAM", "", _yes, "too many uncorrected SRAM errors"),
        _gpu("ecc.retired_single", "PAGES-1", "", str, "pages retired after corrected errors"),
        _gpu("ecc.retired_double", "PAGES-2", "", str, "pages retired after uncorrected errors"),
        _gpu("ecc.retired_pending", "PAGES-NEXT", "", _yes, "pages wait for a reboot"),
        _gpu("ecc.remapped_correctable", "ROWS-1", "", str, "rows remapped, corrected errors"),
        _gpu("ecc.remapped_uncorrectable", "ROWS-2", "", str, "rows remapped, uncorrected errors"),
        _gpu("ecc.remap_pending", "ROWS-NEXT", "", _yes, "rows wait for a reset"),
        _gpu("ecc.remap_failure", "ROWS-FAIL", "", _yes, "a row could not be remapped"),
        _gpu("health.xids", "XID", "", _xids, "errors that the driver reported"),
        _gpu("health.recovery_action", "RECOVERY", "", str, "what the driver says is needed"),
        _gpu("health.fabric_state", "FABRIC", "", str, "state of the NVSwitch fabric"),
        _gpu("health.repair_pending", "REPAIR", "", _yes, "a repair waits for a reset"),
        _gpu("health.unrepairable_memory", "UNREPAIRABLE", "", _yes, "memory beyond repair"),
    ),
    "State": (
        _gpu("persistence_mode", "PERS", "", _yes, "the driver stays loaded without clients"),
        _gpu("accounting_mode", "ACCT", "", _yes, "figures of ended processes are kept"),
        _gpu("display_active", "DISP", "", _yes, "a display is driven"),
        _gpu("compute_mode", "COMPUTE", "", str, "who may open a context"),
        _gpu("mig_mode", "MIG", "", _yes, "the card is partitioned"),
        _gpu("mig", "MIG-DEVICES", "", _profiles, "its MIG devices"),
        _gpu("processes_known", "LISTED", "", _yes, "the driver lists the compute processes"),
        _gpu("asleep", "ASLEEP", "", _yes, "switched off until it is used, and so not asked"),
        _gpu("stale_for", "AGE", "s", duration, "age of the values while the GPU does not answer"),
        _gpu("error", "ERROR", "", str, "what the driver says instead of values"),
    ),
}
"""By the headings of the detail page, in its order."""

GPU: dict[str, Metric[Gpu]] = {
    metric.id: metric for metrics in SECTIONS.values() for metric in metrics
}
"""Every metric by its id."""
