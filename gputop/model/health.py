"""What of a GPU needs a person, in plain words, with what to do; nothing where all is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from gputop.model.frame import Frame
from gputop.model.gpu import UNREADABLE, Gpu
from gputop.model.sections import Health, Xid
from gputop.model.text import duration, percent
from gputop.model.xids import REBOOT, REPLACE, RESET, meaning

_RECENT = 600.0
"""Seconds for which an XID is told that needs no person; the others are told until gputop ends."""
_LOADED = 0.5
"""Utilization from which a PCIe link is to be as fast as it can: idle cards slow it down."""

_RECOVERY = {
    "gpu_reset": RESET,
    "node_reboot": REBOOT,
    "system_reboot": REBOOT,
    "drain_p2p": "stop the programs that use it together with other GPUs",
    "drain_and_reset": f"give it no new work; {RESET}",
    "recover_imex_domain": "restart nvidia-imex on the machines of its NVLink domain",
    "bus_reset": "reset its bus, or reboot the machine",
}
_FABRIC = {
    "not_started": "has not been started",
    "in_progress": "is not ready",
    "failed": "could not be set up",
}
_FABRIC_MANAGER = (
    "CUDA does not start without it: systemctl status nvidia-fabricmanager; its version has to be "
    "the driver's"
)
_OUR_FAULT = "the fault is gputop's: please report it (gputop doctor --report FILE)"
_COOLING = "check fans, filters, inlet air and the load of its neighbours"
_THROTTLED = {
    "hw_thermal_slowdown": ("HOT", "the GPU is too hot and runs at half its clock or less"),
    "hw_power_brake_slowdown": ("POWER BRAKE", "the power supply makes the GPU slow down"),
    "sw_thermal_slowdown": ("HOT", "the GPU is at its highest temperature and slows down"),
    "hw_slowdown": ("SLOWDOWN", "the hardware makes the GPU slow down"),
}
"""By what holds the clocks back; the power cap is no trouble: it is reached by whoever works."""
_BY_TEMPERATURE = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown"})
_MODES = {
    "prohibited": "no program may use the GPU (compute mode prohibited)",
    "exclusive_process": "one process at a time may use the GPU (compute mode exclusive)",
    "exclusive_thread": "one thread at a time may use the GPU (compute mode exclusive)",
}


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    level: Literal["alarm", "notice"]
    """An alarm needs a person: the card fails, or does not do what it could."""
    code: str
    """A word or two, for the GPU's row."""
    text: str
    advice: str


def findings(frame: Frame, gpu: Gpu) -> tuple[Finding, ...]:
    """All of one GPU of the frame, worst first."""
    found = [finding for look in _LOOKS for finding in look(frame, gpu)]
    return tuple(sorted(found, key=lambda one: one.level != "alarm"))


def in_alarm(frame: Frame) -> list[Gpu]:
    """The GPUs that need a person."""
    return [gpu for gpu in frame.gpus if any(one.level == "alarm" for one in findings(frame, gpu))]


def _xids(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    """Each number once, the newest first."""
    told = (gpu.health or Health()).xids or ()
    last = {xid.number: xid for xid in told}
    for xid in sorted(last.values(), key=lambda one: -one.time):
        known, ago = meaning(xid.number), max(0.0, frame.time - xid.time)
        if known.needs_a_person or ago < _RECENT:
            yield Finding(
                "alarm" if known.needs_a_person else "notice",
                f"XID {xid.number}",
                f"XID {xid.number}{_times(told, xid)}, {duration(ago)} ago: {known.text}",
                known.advice.format(index=gpu.index),
            )


def _times(told: tuple[Xid, ...], xid: Xid) -> str:
    count = sum(one.number == xid.number for one in told)
    return f" ({count} times)" if count > 1 else ""


def _lost(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    if gpu.error is not None:
        code, advice = "LOST", f"{REBOOT}; {REPLACE}"
        if gpu.error.startswith(UNREADABLE):
            code, advice = "UNREAD", _OUR_FAULT
        elif "reset" in gpu.error.lower():
            advice = _reset(gpu)
        yield Finding("alarm", code, gpu.complaint or "", advice)


def _recovery(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    action = gpu.health and gpu.health.recovery_action
    if action in _RECOVERY:
        text = f"the driver asks for this: {action.replace('_', ' ')}"
        advice = _RECOVERY[action].format(index=gpu.index)
        yield Finding("alarm", "RECOVERY", text, advice)


def _memory(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    if gpu.ecc_uncorrected:
        plural = "s" * (gpu.ecc_uncorrected != 1)
        yield Finding(
            "alarm",
            "ECC",
            f"{gpu.ecc_uncorrected} uncorrected memory error{plural} since the driver loaded",
            f"results of that time may be wrong; {_reset(gpu)}; {REPLACE}",
        )
    ecc, health = gpu.ecc, gpu.health
    if ecc is not None and ecc.remap_failure:
        yield Finding("alarm", "REMAP", "a row of memory could not be replaced", "have the card "
                      "replaced")  # fmt: skip
    if ecc is not None and ecc.sram_threshold_exceeded:
        yield Finding("alarm", "SRAM", "too many uncorrected errors in the chip's own memory",
                      "have the card replaced")  # fmt: skip
    if health is not None and health.unrepairable_memory:
        yield Finding("alarm", "MEMORY", "memory beyond repair", "have the card replaced")
    if ecc is not None and ecc.remap_pending:
        yield Finding("alarm", "REMAP", "rows of memory wait to be replaced", _idle_reset(gpu))
    if health is not None and health.repair_pending:
        yield Finding("alarm", "REPAIR", "a repair waits for a reset", _idle_reset(gpu))
    if ecc is not None and ecc.retired_pending:
        yield Finding("alarm", "PAGES", "pages of memory wait to be retired", _idle_reset(gpu))


def _links(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    """In MIG mode NVLinks are not in use."""
    if gpu.mig_mode:
        return
    state = gpu.health and gpu.health.fabric_state
    if state in _FABRIC:
        yield Finding("alarm", "FABRIC", f"the NVSwitch fabric {_FABRIC[state]}", _FABRIC_MANAGER)
    if gpu.nvlink is None or not gpu.nvlink.down:
        return
    up, down = gpu.nvlink.up or 0, gpu.nvlink.down
    missed = state not in (None, "not_supported") or _most_links(frame, gpu) > up
    if missed or up:
        text = f"{down} of {up + down} NVLinks {'is' if down == 1 else 'are'} down"
        advice = "check switch, bridge and seat: nvidia-smi nvlink --status"
        # Without a fabric, and with no better card beside it, that may be as it was built.
        yield Finding("alarm" if missed else "notice", "NVLINK", text, advice)


def _most_links(frame: Frame, gpu: Gpu) -> int:
    alike = (one.nvlink for one in frame.gpus if one.name == gpu.name and not one.mig_mode)
    return max((one.up or 0 for one in alike if one is not None), default=0)


def _pcie(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    pcie = gpu.pcie
    if pcie is None or gpu.utilization is None or gpu.utilization < _LOADED:
        return
    advice = "check its seat, riser and slot; the kernel's log may have PCIe errors (dmesg)"
    under = f"at {percent(gpu.utilization)} % utilization"
    if pcie.width and pcie.width_max and pcie.width < pcie.width_max:
        text = f"PCIe has {pcie.width} of {pcie.width_max} lanes {under}"
        yield Finding("alarm", f"PCIE x{pcie.width}", text, advice)
    if pcie.generation and pcie.generation_max and pcie.generation < pcie.generation_max:
        text = f"PCIe runs as generation {pcie.generation} of {pcie.generation_max} {under}"
        yield Finding("notice", f"PCIE gen{pcie.generation}", text, advice)


def _throttle(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    reasons = gpu.throttle.reasons if gpu.throttle is not None else ()
    hardware = [one for one in reasons if one.startswith("hw_")]
    for reason in reasons:
        if reason not in _THROTTLED or (reason == "hw_slowdown" and len(hardware) > 1):
            continue  # that is said of every one of the hardware's
        code, text = _THROTTLED[reason]
        advice = _COOLING if reason in _BY_TEMPERATURE else "check its power cables and supply"
        yield Finding("alarm" if reason.startswith("hw_") else "notice", code, text, advice)


def _settings(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    if gpu.persistence_mode is False and not any(one.display_active for one in frame.gpus):
        yield Finding(
            "notice",
            "PERS",
            "persistence is off: the driver lets go of an unused card, and starts slowly",
            f"systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1 -i {gpu.index}",
        )
    if gpu.compute_mode in _MODES:
        advice = f"if nobody wants that: nvidia-smi -c DEFAULT -i {gpu.index}"
        yield Finding("notice", "MODE", _MODES[gpu.compute_mode], advice)


def _reset(gpu: Gpu) -> str:
    return RESET.format(index=gpu.index)


def _idle_reset(gpu: Gpu) -> str:
    return f"when nobody uses it, reset it: nvidia-smi --gpu-reset -i {gpu.index}"


_LOOKS = (_xids, _lost, _recovery, _memory, _links, _throttle, _pcie, _settings)
"""Those of which the worst is to be feared first."""
