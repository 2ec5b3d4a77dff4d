"""Where nvidia-smi says what gputop says: each field of a GPU in `--json`, beside the tag of
`nvidia-smi -q -x` and the field of `--query-gpu`, and how far they may be apart.

The tags are those of nvsmi_device_v11.dtd to v13.dtd; several paths are the same in different
drivers, and the first that is there counts. A path with `+` is a sum, with `|` true if one is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

_WORDS_FOR_NOTHING = ("", "n/a", "[n/a]", "none", "not supported", "unknown error")
_TRUE, _FALSE = ("enabled", "yes", "active", "pending"), ("disabled", "no", "not active")


class Value(NamedTuple):
    """A value that both say."""

    path: str
    """In a GPU of `--json`, with dots."""
    paths: tuple[str, ...] = ()
    """In its element of `-q -x`."""
    field: str = ""
    """Of --query-gpu."""
    unit: float = 1
    """What nvidia-smi's number is multiplied with; 0: it is a word or a flag."""
    slack: float = 0
    """How far the numbers may be apart, in gputop's unit."""


MIB, MHZ, PERCENT, WORD = 1 << 20, 1e6, 0.01, 0
_FB, _BAR1, _PCIE = "fb_memory_usage/", "bar1_memory_usage/", "pci/pci_gpu_link_info/"
_POWER, _ECC, _TEMPERATURE = "gpu_power_readings/", "ecc_errors/", "temperature/"
_OLD_POWER, _ROWS, _PAGES = "power_readings/", "remapped_rows/remapped_row_", "retired_pages/"
_UNCORRECTABLE = "sram_uncorrectable+{0}sram_uncorrectable_parity+{0}sram_uncorrectable_secded"


def _uncorrectable(since: str) -> str:
    return _ECC + since + _UNCORRECTABLE.format(_ECC + since)


VALUES = (
    Value("uuid", ("uuid",), "uuid", WORD),
    Value("name", ("product_name",), "name", WORD),
    Value("index", (), "index"),
    Value("minor", ("minor_number",)),
    Value("pci_bus_id", ("pci/pci_bus_id",), "pci.bus_id", WORD),
    Value("memory_total", (_FB + "total",), "memory.total", MIB, MIB),
    Value("memory_used", (_FB + "used",), "memory.used", MIB, MIB),
    Value("memory_free", (_FB + "free",), "memory.free", MIB, MIB),
    Value("memory_reserved", (_FB + "reserved",), "memory.reserved", MIB, MIB),
    Value("utilization", ("utilization/gpu_util",), "utilization.gpu", PERCENT, 0.01),
    Value("memory_utilization", ("utilization/memory_util",), "utilization.memory", PERCENT, 0.01),
    Value("temperature", (_TEMPERATURE + "gpu_temp",), "temperature.gpu", 1, 1),
    Value("power", (), "power.draw", 1, 3),
    Value("power_limit", (_POWER + "current_power_limit", _OLD_POWER + "enforced_power_limit"),
          "enforced.power.limit", 1, 0.01),
    Value("sm_clock", ("clocks/sm_clock",), "clocks.sm", MHZ, 15 * MHZ),
    Value("sm_clock_max", ("max_clocks/sm_clock",), "clocks.max.sm", MHZ),
    Value("memory_clock", ("clocks/mem_clock",), "clocks.mem", MHZ),
    Value("fan", ("fan_speed",), "fan.speed", PERCENT, 0.01),
    Value("pstate", ("performance_state",), "pstate"),
    Value("persistence_mode", ("persistence_mode",), "persistence_mode", WORD),
    Value("accounting_mode", ("accounting_mode",), "accounting.mode", WORD),
    Value("display_active", ("display_active",), "display_active", WORD),
    Value("compute_mode", ("compute_mode",), "compute_mode", WORD),
    Value("ecc_uncorrected", (), "ecc.errors.uncorrected.volatile.total"),
    Value("mig_mode", ("mig_mode/current_mig",), "mig.mode.current", WORD),
    Value("identity.serial", ("serial",), "serial", WORD),
    Value("identity.vbios", ("vbios_version",), "vbios_version", WORD),
    Value("identity.architecture", ("product_architecture",), "", WORD),
    Value("identity.compute_capability", (), "compute_cap", WORD),
    Value("identity.virtualization", ("gpu_virtualization_mode/virtualization_mode",), "", WORD),
    Value("bar1.total", (_BAR1 + "total",), "", MIB, MIB),
    Value("bar1.used", (_BAR1 + "used",), "", MIB, MIB),
    Value("engines.encoder", ("utilization/encoder_util",), "", PERCENT, 0.01),
    Value("engines.decoder", ("utilization/decoder_util",), "", PERCENT, 0.01),
    Value("engines.jpeg", ("utilization/jpeg_util",), "", PERCENT, 0.01),
    Value("engines.ofa", ("utilization/ofa_util",), "", PERCENT, 0.01),
    Value("clocks.graphics", ("clocks/graphics_clock",), "clocks.gr", MHZ, 15 * MHZ),
    Value("clocks.graphics_max", ("max_clocks/graphics_clock",), "clocks.max.gr", MHZ),
    Value("clocks.video", ("clocks/video_clock",), "clocks.video", MHZ, 15 * MHZ),
    Value("clocks.video_max", ("max_clocks/video_clock",), "", MHZ),
    Value("clocks.memory_max", ("max_clocks/mem_clock",), "clocks.max.mem", MHZ),
    Value("power_more.average", (_POWER + "average_power_draw",), "power.draw.average", 1, 3),
    Value("power_more.instant", (_POWER + "instant_power_draw",), "power.draw.instant", 1, 10),
    Value("power_more.limit_default",
          (_POWER + "default_power_limit", _OLD_POWER + "default_power_limit"),
          "power.default_limit", 1, 0.01),
    Value("power_more.limit_min", (_POWER + "min_power_limit",), "power.min_limit", 1, 0.01),
    Value("power_more.limit_max", (_POWER + "max_power_limit",), "power.max_limit", 1, 0.01),
    Value("thermal.memory", (_TEMPERATURE + "memory_temp",), "temperature.memory", 1, 1),
    Value("thermal.margin", (_TEMPERATURE + "gpu_temp_tlimit",), "", 1, 1),
    Value("thermal.slowdown", (_TEMPERATURE + "gpu_temp_slow_threshold",)),
    Value("thermal.shutdown", (_TEMPERATURE + "gpu_temp_max_threshold",)),
    Value("pcie.generation", (_PCIE + "pcie_gen/current_link_gen",), "pcie.link.gen.current"),
    Value("pcie.generation_max", (_PCIE + "pcie_gen/max_link_gen",), "pcie.link.gen.max"),
    Value("pcie.width", (_PCIE + "link_widths/current_link_width",), "pcie.link.width.current"),
    Value("pcie.width_max", (_PCIE + "link_widths/max_link_width",), "pcie.link.width.max"),
    Value("pcie.replays", ("pci/replay_counter",)),
    Value("ecc.enabled", ("ecc_mode/current_ecc",), "ecc.mode.current", WORD),
    Value("ecc.pending", ("ecc_mode/pending_ecc",), "ecc.mode.pending", WORD),
    Value("ecc.corrected", (), "ecc.errors.corrected.volatile.total"),
    Value("ecc.corrected_dram", (_ECC + "volatile/dram_correctable",)),
    Value("ecc.corrected_sram", (_ECC + "volatile/sram_correctable",)),
    Value("ecc.uncorrected_dram", (_ECC + "volatile/dram_uncorrectable",)),
    Value("ecc.uncorrected_sram", (_uncorrectable("volatile/"),)),
    Value("ecc.aggregate_corrected", (), "ecc.errors.corrected.aggregate.total"),
    Value("ecc.aggregate_uncorrected", (), "ecc.errors.uncorrected.aggregate.total"),
    Value("ecc.sram_threshold_exceeded", (_ECC + "aggregate/sram_threshold_exceeded",), "", WORD),
    Value("ecc.retired_single", (_PAGES + "multiple_single_bit_retirement/retired_count",)),
    Value("ecc.retired_double", (_PAGES + "double_bit_retirement/retired_count",)),
    Value("ecc.retired_pending", (_PAGES + "pending_retirement",), "", WORD),
    Value("ecc.remapped_correctable", (_ROWS + "corr",)),
    Value("ecc.remapped_uncorrectable", (_ROWS + "unc",)),
    Value("ecc.remap_pending", (_ROWS + "pending",), "", WORD),
    Value("ecc.remap_failure", (_ROWS + "failure",), "", WORD),
    Value("health.recovery_action", ("gpu_recovery_action",), "", WORD),
    Value("health.fabric_state", ("fabric/state",), "", WORD),
    Value("health.repair_pending",
          (f"{_ECC}channel_repair_pending|{_ECC}tpc_repair_pending",), "", WORD),
    Value("health.unrepairable_memory", (_ECC + "unrepairable_memory",), "", WORD),
)  # fmt: skip
FIELDS = tuple(value.field for value in VALUES if value.field)
OURS = {
    "memory_unaccounted": "gputop works it out", "free": "", "not_free": "", "idle_for": "",
    "holders": "", "holders_known": "", "reservation": "", "slurm_job": "",
    "listed": "", "state": "",
    "stale_for": "", "error": "", "numa_node": "nvidia-smi topo has it", "cores": "nobody else",
    "sm": "", "mig": "test_values.py compares it", "throttle.reasons": "",
    "throttle.lasting": "over several samples", "throttle.shares": "",
    "power_more.energy": "since gputop's first look", "pcie.tx": "over another time",
    "pcie.rx": "", "nvlink.*": "nvidia-smi nvlink has it", "health.xids": "the kernel's log has it",
    "health.fabric_health": "in other words", "health.fabric_cluster": "", "activity.*": "GPM",
}  # fmt: skip
"""What nvidia-smi does not say, or not so; why, or as for the one before."""

_UNREAD = ("processes", "accounted_processes", "supported_clocks", "mig_devices", "timestamp")


def said(element: Element, value: Value) -> float | str | bool | None:
    """Return what a GPU's element of `-q -x` says, in gputop's unit."""
    for path in value.paths:
        texts = [element.findtext(part) for part in re.split(r"[+|]", path)]
        answers = [parsed(text, value) for text in texts if text is not None]
        known = [answer for answer in answers if answer is not None]
        if "+" in path and known:
            return sum(float(answer) for answer in known)
        if known:
            return any(known) if "|" in path else known[0]
    return None


def parsed(text: str, value: Value) -> float | str | bool | None:
    """Return what a text of nvidia-smi says, in gputop's unit; None: it has no answer."""
    word = text.strip().casefold()
    is_mode = value.path in ("identity.virtualization", "health.recovery_action")
    if word in _WORDS_FOR_NOTHING and not (is_mode and word == "none"):
        return None
    if "deprecated" in word or "insufficient permission" in word:
        return None
    if value.unit:
        number = re.search(r"-?\d+(\.\d+)?", word)
        return float(number[0]) * value.unit if number else None
    return True if word in _TRUE else False if word in _FALSE else _letters(word)


def _letters(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.casefold())


def agree(ours: object, theirs: list[float | str | bool], value: Value) -> bool:
    """Return whether gputop's answer lies between nvidia-smi's before and after it."""
    if ours is None:
        return not theirs
    numbers = [answer for answer in theirs if not isinstance(answer, str)]
    if isinstance(ours, (int, float)) and numbers:
        return min(numbers) - value.slack - 1e-6 <= ours <= max(numbers) + value.slack + 1e-6
    # gputop's `gpu_reset` is nvidia-smi's `Reset`.
    return any(_letters(str(ours)).endswith(_letters(str(answer))) for answer in theirs)


def unread(element: Element) -> Iterator[str]:
    """Yield what the driver says of a GPU in `-q -x`, and no value of gputop is compared with."""
    read = {part for value in VALUES for path in value.paths for part in re.split(r"[+|]", path)}

    def leaves(above: Element, path: str) -> Iterator[str]:
        for child in above:
            own = f"{path}{child.tag}"
            if own in _UNREAD or own.startswith(("clocks_event_reasons/", "clocks_throttle_")):
                continue
            text = (child.text or "").strip()
            if len(child):
                yield from leaves(child, own + "/")
            elif own not in read and parsed(text, Value("", unit=WORD)) is not None:
                yield f"{own}: {text}"

    return leaves(element, "")
