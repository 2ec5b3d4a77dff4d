"""What holds the clocks of a GPU back: every reason that NVML names, once.

Being idle and clocks set by a user hold nothing back, and are left out. Sources: nvml.h,
nvmlClocksEventReason* and NVML_FI_DEV_CLOCKS_EVENT_REASON_* (`board_limit` and `reliability` have a
bit from R615 on); NVIDIA's manual of nvidia-smi, clocks event reasons.
"""

from __future__ import annotations

from typing import NamedTuple

COOLING = "check fans, filters, the inlet air and the load of the GPUs next to it"
SUPPLY = "check its power cables and the power supply"


class ThrottleReason(NamedTuple):
    """One reason. The limits of power, board and reliability make no finding: a GPU at work may
    well reach them."""

    word: str
    """What the main screen calls it, as nvidia-smi does."""
    meaning: str
    bit: int
    """Its bit in nvmlDeviceGetCurrentClocksEventReasons."""
    counter: int | None
    """The NVML_FI id of the time that it lasted, in nanoseconds; nvidia-smi shows microseconds."""
    code: str = ""
    """The code of its finding (`model.health.findings`); empty if it makes none."""
    finding: str = ""
    advice: str = ""


THROTTLE_REASONS = {
    "hw_thermal_slowdown": ThrottleReason(
        "HW thermal", "too hot: the hardware halves the clocks or more", 0x40, 270,
        "HOT", "the GPU is too hot, so the hardware slows it down", COOLING,
    ),
    "hw_power_brake_slowdown": ThrottleReason(
        "power brake", "power brake: the machine's supply asks for less", 0x80, 271,
        "POWER BRAKE", "the power supply is overloaded, so the GPU slows down", SUPPLY,
    ),
    "hw_slowdown": ThrottleReason(
        "HW slowdown", "the hardware halves the clocks or more: heat, or the supply", 0x08, None,
        "SLOWDOWN", "the hardware slows the GPU down", SUPPLY,
    ),
    "sw_thermal_slowdown": ThrottleReason(
        "SW thermal", "the chip or its memory is warm: the driver lowers the clocks", 0x20, 269,
        "HOT", "the GPU or its memory is at its temperature limit, so it slows down",
        COOLING,
    ),
    "board_limit": ThrottleReason("board limit", "a limit of the board is reached", 0x200, 77),
    "reliability": ThrottleReason(
        "reliability", "the driver keeps the chip from wearing out", 0x400, 79
    ),
    "sw_power_cap": ThrottleReason("power cap", "the power limit is reached", 0x04, 74),
    "sync_boost": ThrottleReason(
        "sync boost", "waits for the slowest GPU of its sync boost group", 0x10, 76
    ),
}  # fmt: skip
"""By nvidia-smi's name; what costs most comes first."""


def word(name: str) -> str:
    """Return what a reason is called; a reason that is not known keeps the driver's name."""
    reason = THROTTLE_REASONS.get(name)
    return name if reason is None else reason.word
