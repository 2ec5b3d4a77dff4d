"""What needs attention on a GPU, in plain words, with what to do; nothing if all is well.

A GPU with an error is in alarm.

`blocking` alone decides what keeps work off a GPU: the health page, doctor, the GPU's row and
`gputop free` use it, or the level that it goes by.

Sources: NVIDIA's manual of nvidia-smi (GPU Recovery Action, clocks event reasons); NVIDIA, "GPU
Memory Error Management", Error Recovery and Response Flags (a pending row remap: new workloads can
be launched); nvidia-ml-py's NVML_GPU_FABRIC_HEALTH_MASK_*; NVIDIA's Fabric Manager user guide
(single-node HGX and DGX). The table of contents of its multi-node NVLink guide says that systems of
several nodes are managed otherwise; the guide itself was not read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from gputop.model.health import unaccounted
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.health.xids import REBOOT, REPLACE, RESET, xid_finding
from gputop.model.machine.finding import Finding, Level, worst_first
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import UNREADABLE, Gpu
from gputop.model.machine.sections import LOADED
from gputop.model.machine.text import counted, duration, percent, ranges

HUNG = "HUNG"
"""The code of a GPU that does not answer."""
SAID_BY_ROW = frozenset({unaccounted.UNACCOUNTED})
"""Codes of what the row of a GPU says in words of its own, without a mark."""
_RECENT = 600.0
"""Seconds for which an XID that needs no attention is shown; others stay until gputop ends."""

_RECOVERY = {
    "gpu_reset": RESET,
    "node_reboot": REBOOT,
    "system_reboot": REBOOT,
    "drain_p2p": "start nothing new on it, let the programs that share it with other GPUs end, and "
    "turn UVM persistence off (nvidia-persistenced without --uvm-persistence-mode); the driver "
    f"then asks for something else; if it does not, {RESET}",
    "drain_and_reset": "start nothing new on it, let its programs finish, then reset it: "
    "nvidia-smi --gpu-reset -i {index}",
    "recover_imex_domain": "restart nvidia-imex on the machines of its NVLink domain",
    "bus_reset": "reset its bus, or reboot the machine",
}
_FABRIC = {
    "not_started": "has not been started",
    "in_progress": "is not ready",
    "failed": "could not be set up",
}
_FABRIC_MANAGER = (
    "CUDA does not work without it: systemctl status nvidia-fabricmanager; its version must match "
    "the driver's"
)
_MULTINODE = (
    "its NVLink switches are shared by several machines and managed elsewhere (NMX): ask their "
    "administrators; on this machine: systemctl status nvidia-imex"
)
_MULTINODE_NAME = re.compile(r"\bG[BH][1-9]00\b", re.ASCII)
"""GH200, GB200, GB300: boards of machines that share their NVLink switches."""
_FABRIC_HEALTH = {
    "degraded_bandwidth": "the GPU has less than its full bandwidth to the NVSwitch fabric",
    "route_unhealthy": "a route through the NVSwitch fabric is broken",
    "route_recovery": "a route through the NVSwitch fabric is being repaired",
    "access_timeout_recovery": "the NVSwitch fabric is recovering from an access timeout",
    "no_partition": "the GPU is in no partition of the NVSwitch fabric",
    "insufficient_nvlinks": "too few NVLinks to the NVSwitch fabric are up",
    "incompatible_firmware": "the GPU's firmware does not match the NVSwitch fabric",
    "incorrect_system_guid": "the NVSwitch fabric takes the GPU for another machine's",
    "incorrect_chassis_serial": "the NVSwitch fabric takes the GPU for another chassis'",
    "invalid_location": "the NVSwitch fabric does not know the GPU's location",
    "gpu_state_invalid": "the NVSwitch fabric cannot use the GPU in its current state",
    "incorrect_configuration": "the GPU is not configured for the NVSwitch fabric",
    "manager_disconnected": "the NVSwitch fabric has no manager at the moment",
}
"""What the names in `Health.fabric_health` mean."""
_FABRIC_PASSING = {"route_recovery", "access_timeout_recovery", "manager_disconnected"}
"""Those that are a warning, not an error."""
_LOG = "(sudo dmesg | grep Xid)"
_OUR_FAULT = "the fault is gputop's: please report it (gputop doctor --report FILE)"
_PASSING = "hw_slowdown"
"""By itself, it may only mean that the performance state or a clock is changing (nvml.h)."""
_MODES = {
    "prohibited": "no program may use the GPU (compute mode prohibited)",
    "exclusive_process": "one process at a time may use the GPU (compute mode exclusive)",
    "exclusive_thread": "one thread at a time may use the GPU (compute mode exclusive)",
}


_REPLACE = "have the card replaced"
_IDLE_RESET = "reset it when it is idle: nvidia-smi --gpu-reset -i {index}"
_MEMORY = (
    ("ecc", "remap_failure",
     Finding("error", "REMAP", "a row of memory could not be replaced", _REPLACE)),
    ("ecc", "sram_threshold_exceeded",
     Finding("error", "SRAM", "too many uncorrected errors in the chip's own memory", _REPLACE)),
    ("health", "unrepairable_memory",
     Finding("error", "MEMORY", "memory that cannot be repaired", _REPLACE)),
    ("ecc", "remap_pending",
     Finding("warning", "REMAP", "faulty rows of memory are replaced at the next reset; until then"
             " programs are kept off them", _IDLE_RESET)),
    ("health", "repair_pending",
     Finding("error", "REPAIR", "a memory repair waits for a reset", _IDLE_RESET)),
    ("ecc", "retired_pending",
     Finding("error", "PAGES", "pages of memory wait to be retired", _IDLE_RESET)),
)  # fmt: skip
"""The finding for each flag of a section that is set."""


def findings(frame: Frame, gpu: Gpu) -> tuple[Finding, ...]:
    """Return all findings of a GPU of the frame, worst first."""
    return frame.cached(_findings, gpu)


def _findings(frame: Frame, gpu: Gpu) -> tuple[Finding, ...]:
    every = [finding for rule in _RULES for finding in rule(frame, gpu)]
    return tuple(worst_first(every)) if every else ()


def blocking(frame: Frame, gpu: Gpu) -> Finding | None:
    """Return the worst finding if it keeps new work off the GPU until somebody acts, or None."""
    worst = next(iter(findings(frame, gpu)), None)
    return worst if worst is not None and worst.level == "error" else None


def in_alarm(frame: Frame) -> list[Gpu]:
    """Return the GPUs that need attention: those with an error."""
    return [gpu for gpu in frame.gpus if blocking(frame, gpu) is not None]


def worst_of(frame: Frame) -> Finding | None:
    """Return the worst finding of all GPUs of a frame, None if all is well. Its text is what it is,
    the GPUs that have it, and how many have something else: `XID 79 GPU 6 +1`."""
    by_gpu = {gpu.index: ranked[0] for gpu in frame.gpus if (ranked := findings(frame, gpu))}
    if not by_gpu:
        return None
    worst = worst_first(by_gpu.values())[0]
    same = [index for index, finding in by_gpu.items() if finding.code == worst.code]
    others = len(by_gpu) - len(same)
    text = f"{worst.code} GPU {ranges(sorted(same))}" + (f" +{others}" if others else "")
    return Finding(worst.level, worst.code, text)


def xid_coverage(frame: Frame) -> str:
    """Return a sentence on which XIDs are known: NVML reports none from before gputop listened."""
    deaf = [gpu.index for gpu in frame.gpus if gpu.health is None or gpu.health.xids is None]
    if len(deaf) == len(frame.gpus):
        return f"The driver reports no XIDs here; the kernel log has them {_LOG}."
    but = f", not of GPU {ranges(sorted(deaf))}" if deaf else ""
    return f"XIDs: only those since gputop started{but}; earlier ones are in the kernel log {_LOG}."


# The rules.


def _xids(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    """Yield each number once, the newest first."""
    xids = gpu.health.xids if gpu.health is not None else None
    if not xids:
        return
    newest = {xid.number: xid for xid in xids}
    counts = Counter(xid.number for xid in xids)
    fabric = _has_fabric(gpu) and not _is_multinode(gpu)
    for number, xid in sorted(newest.items(), key=lambda item: -item[1].time):
        finding, ago = xid_finding(number, newest.keys(), fabric=fabric), frame.time - xid.time
        times = f" ({counts[number]} times)" if counts[number] > 1 else ""
        if finding.level == "error" or ago < _RECENT:
            text = f"{finding.code}{times}, {duration(max(0.0, ago))} ago: {finding.text}"
            advice = finding.advice.format(index=gpu.index)
            yield replace(finding, text=text, advice=advice)


def _state(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    if gpu.state == "lost":
        yield _lost(gpu)
    elif gpu.state == "silent":
        yield _hung(gpu)


def _lost(gpu: Gpu) -> Finding:
    code, advice = "LOST", f"{REBOOT}; {REPLACE}"
    error = gpu.error or ""
    if error.startswith(UNREADABLE):
        code, advice = "UNREAD", _OUR_FAULT
    elif "reset" in error.lower():
        advice = _reset(gpu)
    return Finding("error", code, gpu.reported_error or "", advice)


def _hung(gpu: Gpu) -> Finding:
    text = "it does not answer"
    if gpu.stale_for is not None:
        text = f"it has not answered for {duration(gpu.stale_for)}"
    text += "; its values are older" if gpu.has_answered else ""
    return Finding("error", HUNG, text, f"look for its XID {_LOG}; a reboot may be needed")


def _recovery(frame: Frame, gpu: Gpu) -> Iterable[Finding]:
    action = gpu.health and gpu.health.recovery_action
    if action not in _RECOVERY:
        return ()
    text = f"the driver asks for: {action.replace('_', ' ')}"
    return (Finding("error", "RECOVERY", text, _RECOVERY[action].format(index=gpu.index)),)


def _memory(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    if gpu.ecc_uncorrected:
        yield Finding(
            "error",
            "ECC",
            f"{counted(gpu.ecc_uncorrected, 'uncorrected memory error')} since the driver loaded",
            f"results since then may be wrong; {_reset(gpu)}; {REPLACE}",
        )
    for section, field, finding in _MEMORY:
        if getattr(getattr(gpu, section), field, None):
            level = finding.level
            if field == "repair_pending" and gpu.health and gpu.health.recovery_action == "none":
                level = "warning"  # nvidia-smi's manual: the action says whether to do something
            advice = finding.advice.format(index=gpu.index)
            yield Finding(level, finding.code, finding.text, advice)


def _links(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    """Yield nothing in MIG mode, which does not use NVLinks."""
    if gpu.mig_mode:
        return
    state = gpu.health and gpu.health.fabric_state
    if state in _FABRIC:
        advice = _MULTINODE if _is_multinode(gpu) else _FABRIC_MANAGER
        yield Finding("error", "FABRIC", f"the NVSwitch fabric {_FABRIC[state]}", advice)
    if gpu.health is not None and gpu.health.fabric_health:
        yield from _fabric_health(gpu, gpu.health.fabric_health)
    if gpu.nvlink is None or not gpu.nvlink.down:
        return
    up, down = gpu.nvlink.up or 0, gpu.nvlink.down
    missed = _has_fabric(gpu) or _most_links(frame, gpu) > up
    if missed or up:
        text = f"{down} of {up + down} NVLinks {'is' if down == 1 else 'are'} down"
        advice = "check switch, bridge and seat: nvidia-smi nvlink --status"
        # Without a fabric, and if no card beside it has more links, it may be built that way.
        yield Finding("error" if missed else "warning", "NVLINK", text, advice)


def _fabric_health(gpu: Gpu, problems: Iterable[str]) -> Iterator[Finding]:
    who = "who runs the switches" if _is_multinode(gpu) else "the fabric manager's log"
    advice = f"nvidia-smi -q has the details under Fabric; {who} may know the reason"
    for problem in problems:
        if problem in _FABRIC_HEALTH:
            level: Level = "warning" if problem in _FABRIC_PASSING else "error"
            yield Finding(level, "FABRIC", _FABRIC_HEALTH[problem], advice)


def _has_fabric(gpu: Gpu) -> bool:
    return (gpu.health and gpu.health.fabric_state) not in (None, "not_supported")


def _is_multinode(gpu: Gpu) -> bool:
    """Whether its NVLinks also lead to other machines: no fabric manager here runs the switches."""
    cluster = gpu.health is not None and gpu.health.fabric_cluster
    return bool(cluster or _MULTINODE_NAME.search(gpu.name or ""))


def _most_links(frame: Frame, gpu: Gpu) -> int:
    alike = (other.nvlink for other in frame.gpus if other.name == gpu.name and not other.mig_mode)
    return max((nvlink.up or 0 for nvlink in alike if nvlink is not None), default=0)


def _pcie(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    pcie = gpu.pcie
    if pcie is None or gpu.utilization is None or gpu.utilization < LOADED:
        return
    advice = "check its seat, riser and slot; the kernel log may show PCIe errors (dmesg)"
    under = f"at {percent(gpu.utilization)} % utilization"
    if pcie.width and pcie.width < (pcie.width_max or 0):
        text = f"PCIe has {pcie.width} of {pcie.width_max} lanes {under}"
        yield Finding("error", f"PCIE x{pcie.width}", text, advice)
    if pcie.generation and pcie.generation < (pcie.generation_max or 0):
        text = f"PCIe runs as generation {pcie.generation} of {pcie.generation_max} {under}"
        yield Finding("warning", f"PCIE gen{pcie.generation}", text, advice)


def _throttle(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    if gpu.throttle is None:
        return
    names, lasting = gpu.throttle.reasons, gpu.throttle.lasting
    of_hardware = sum(name.startswith("hw_") for name in names)
    for name in names:
        reason = THROTTLE_REASONS.get(name)
        if reason is None or not reason.code or (name == _PASSING and of_hardware > 1):
            continue  # hw_slowdown comes with every other hw_ reason
        advice, grave = reason.advice, name.startswith("hw_")
        if name == _PASSING and name not in lasting:
            grave, advice = False, "check again: a change of clocks looks the same for a moment"
        text = f"{reason.finding}{_clock(gpu)}"
        yield Finding("error" if grave else "warning", reason.code, text, advice)


def _clock(gpu: Gpu) -> str:
    if gpu.sm_clock is None or gpu.sm_clock_max is None:
        return ""
    return f": {gpu.sm_clock / 1e6:.0f} of {gpu.sm_clock_max / 1e6:.0f} MHz"


def _settings(frame: Frame, gpu: Gpu) -> Iterator[Finding]:
    if gpu.persistence_mode is False and not any(other.display_active for other in frame.gpus):
        yield Finding(
            "warning",
            "PERS",
            "persistence mode is off: the driver unloads an idle GPU, and is slow to start",
            f"systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1 -i {gpu.index}",
        )
    if gpu.compute_mode in _MODES:
        advice = f"if that is not wanted: nvidia-smi -c DEFAULT -i {gpu.index}"
        yield Finding("warning", "MODE", _MODES[gpu.compute_mode], advice)


def _reset(gpu: Gpu) -> str:
    return RESET.format(index=gpu.index)


def _reported(frame: Frame, gpu: Gpu) -> Iterable[Finding]:
    """Return what is reported, but that it hangs, which its state says."""
    report = frame.report(gpu)
    if report is None or not report.findings:
        return ()
    return [f for f in report.findings if f.code != HUNG or gpu.state != "silent"]


_RULES = (
    _xids, _state, _recovery, _memory, _links, _throttle, _pcie, _settings, unaccounted.findings,
    _reported,
)  # fmt: skip
"""The gravest first."""
