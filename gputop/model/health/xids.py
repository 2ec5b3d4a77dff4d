"""The XIDs: what each says, how grave it is, and what to do about it.

Sources, by the word in the table; the words here are our own:

catalog     NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (`CATALOG`), for Ampere and later:
            its "immediate action" decides the level, its "investigatory action" what follows.
            Checked against its copy in leptonai/gpud, components/accelerator/nvidia/xid/
            catalog_generated.go, of 2025-10-29; both end at 172
trigger     the same page, column "Trigger Conditions", if it gives no action
dcgm        NVIDIA/DCGM, TestHealthMonitor.cpp: which XIDs fail a GPU
smi         NVIDIA's manual of nvidia-smi, "GPU Recovery Action"
nverror     NVIDIA/open-gpu-kernel-modules, src/common/sdk/nvidia/inc/nverror.h: names of those that
            the catalogue calls unused
unverified  found in no document of NVIDIA's that could be read
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from gputop.model.machine.finding import Finding, Level

CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

RESET = "stop all programs on it and reset it: nvidia-smi --gpu-reset -i {index}"
REBOOT = "reboot the machine"
REPLACE = "if it happens again, have the card replaced"
SUPPORT = "if it happens again, contact the vendor's support"

_ADVICE = {
    "app": "most likely a bug in the program: debug it with compute-sanitizer and restart it; the "
    "card is probably fine",
    "restart": f"restart the program; {SUPPORT}",
    "nothing": f"no action needed; {SUPPORT}",
    "reset": f"{RESET}; {SUPPORT}",
    "firmware": f"{RESET}; if that does not help, {REBOOT} and update the driver",
    "support": f"contact the vendor's support; details: {CATALOG}",
    "seat": f"{REBOOT}; if it happens again, check power cables, slot and temperature",
    "nvlink5": "decode the details in the kernel log (sudo dmesg | grep Xid); RECOVERY on the "
    f"GPU's page says whether a reset is needed: {CATALOG}",
}

_LEGACY = "not used on Ampere and later; on older cards: "
_SMOOTHING = "power smoothing (which evens out the power draw)"

_ON_OLDER_CARDS = (
    ("1-7 26", "a DMA engine failed"),
    ("9 10 12 24", "the graphics engine failed"),
    ("15-17 56 112-118", "the display engine failed"),
    ("18", "the bus interface failed"),
    ("19", "an error that a program reported"),
    ("20-22 27-29 34-36 42 47 65 73", "a video engine failed"),
    ("30", "an illegal access"),
    ("33", "the security engine failed"),
    ("49-53 55", "the clocks were lowered, for heat or power"),
    ("57 58 90", "the interface to the memory failed"),
    ("59", "its microcontroller failed"),
    ("81", "the VGA part failed"),
    ("122-125", "its configuration memory (InfoROM) failed"),
)
"""XIDs that the catalogue calls unused: it says to contact support if they occur anyway."""

_XidRow = tuple[str, str, str, Level, str]
_ROWS: tuple[_XidRow, ...] = (
    # numbers; what it is; what to do, by _ADVICE or in words; level; source
    ("8", "a program's work timed out", "restart", "warning", "catalog"),
    ("11 25", "a program sent invalid commands to the GPU", "app", "warning", "catalog"),
    ("13", "a program made an illegal access or instruction", "app", "warning", "catalog"),
    ("14", "an error injected by the driver as a test", "nothing", "warning", "catalog"),
    ("31", "a program accessed an invalid address", "app", "warning", "catalog"),
    ("32", "a program's commands arrived corrupted",
     f"restart the program; {SUPPORT}", "warning", "catalog"),
    ("37", "the card's firmware got an unknown request", "nothing", "warning", "catalog"),
    ("38", "a watchdog of the card's firmware timed out", "nothing", "warning", "catalog"),
    ("39-41 70-72 75-77 85 126-135", "a copy engine failed while a program was using it",
     "restart", "warning", "catalog"),
    ("43", "a program's work was stopped after an error in the program", "app", "warning",
     "catalog"),
    ("44", "a fault while the GPU switched between programs", "nothing", "warning", "catalog"),
    ("45", "queued work was discarded, as after an error or a kill",
     "another XID of this GPU says why; after a kill no action is needed", "warning", "catalog"),
    ("46", "the GPU stopped working", "reset", "error", "catalog"),
    ("48", "an uncorrected memory error", f"{RESET}; {REPLACE}", "error", "catalog"),
    ("54", "the card's own power cable is not connected",
     "power off the machine and check the card's power cables and seat", "error", "catalog"),
    ("60 68 82-84 86 88 89 96-105 139", "a video engine failed while a program was using it",
     "restart", "warning", "catalog"),
    ("61", f"{_LEGACY}its microcontroller stopped at a breakpoint", "support", "error",
     "nverror"),
    ("62", "the card's microcontroller stopped", "reset", "error", "catalog"),
    ("63", "a faulty row of memory will be replaced",
     "no action needed now: it takes effect at the next reset", "warning", "catalog"),
    ("64", "a faulty row of memory could not be recorded for replacement", f"{RESET}; {REPLACE}",
     "error", "catalog"),
    ("66 67", "the card's firmware refused an access by the driver", "nothing", "warning",
     "catalog"),
    ("69", "a program sent an invalid command to the GPU", "app", "warning", "catalog"),
    ("74", "an NVLink failed",
     f"{RESET}; if it happens again on the same link, check switch, bridge and seat", "error",
     "catalog"),
    ("78", "a virtual GPU could not be started", "update the vGPU software of host and guest to"
     " versions that match", "error", "catalog"),
    ("79", "the GPU has fallen off the bus", "seat", "error", "catalog"),
    ("80", "a program's commands arrived corrupted", "app", "warning", "catalog"),
    ("92", "many corrected memory errors", "keep an eye on ECC-COR on the GPU's page", "warning",
     "catalog"),
    ("93", "the card's configuration memory (InfoROM) is written to too often", "nothing",
     "warning", "catalog"),
    ("94", "an uncorrected memory error, which ended one program only",
     "restart that program elsewhere; start nothing new here, and reset the GPU once the others"
     " have finished: nvidia-smi --gpu-reset -i {index}", "error", "catalog dcgm smi"),
    ("95", "an uncorrected memory error that affects every program on the GPU", "reset",
     "error", "catalog dcgm"),
    ("106 107", "a test message for the machine's management controller", "nothing", "warning",
     "catalog"),
    ("108 137", "a program made an invalid access to another GPU's memory", "app", "warning",
     "catalog dcgm"),
    ("109", "switching between programs timed out", "reset", "error", "catalog"),
    ("110", "a security fault", "firmware", "error", "catalog"),
    ("119", "the card's processor (GSP) does not answer the driver", "firmware", "error",
     "catalog dcgm"),
    ("120", "the card's processor (GSP) failed", "firmware", "error", "catalog dcgm"),
    ("121", "the link to the CPU (C2C) had errors, which were corrected",
     "no action needed: work goes on; the link is trained again at the next planned restart of the"
     " GPU", "warning", "catalog dcgm"),
    ("136", "an NVLink could not be started",
     f"{RESET}; if it happens again, check cables, switch and seat", "error", "catalog"),
    ("140", "an uncorrected memory error that the driver could not contain",
     f"{RESET}; {REPLACE}", "error", "catalog dcgm"),
    ("141", "CUDA's fast path for starting work failed", "nothing", "warning", "catalog"),
    ("142", "a video encoder failed", "support", "error", "catalog"),
    ("143", "the GPU could not be started", f"{RESET}; if that does not help, {REBOOT}; {REPLACE}",
     "error", "catalog"),
    ("144-150", "an NVLink (of the fifth generation) failed", "nvlink5", "error", "catalog"),
    ("151", "confidential computing could not rotate its keys",
     f"restart the virtual machine; {SUPPORT}", "error", "catalog"),
    ("152 153", "the deep learning accelerator (DLA) failed while a program was using it",
     "nothing", "warning", "catalog"),
    ("154", "the recovery action that the GPU needs has changed", "see RECOVERY on the GPU's page",
     "warning", "catalog"),
    ("155", "an NVLink was taken down by software", f"{RESET}; if that was on purpose, no action is"
     " needed", "error", "catalog"),
    ("156", "a faulty part of the chip is to be disabled at the next reset", "reset", "error",
     "catalog"),
    ("157", "a faulty part of the chip cannot be disabled: no spare is left",
     f"work can go on, but may hit the same error; {SUPPORT}", "warning", "catalog"),
    ("158", "the GPU timed out and did not recover", "reset", "error", "catalog"),
    ("159", "an error on the link between GPU and CPU",
     "another XID of this GPU says what to do; if there is none, stop all programs on it and"
     " contact the vendor's support", "error", "catalog"),
    ("160", "a memory channel was disabled", "nothing", "warning", "catalog"),
    ("161", "a memory channel could not be disabled", "nothing", "warning", "catalog"),
    ("162", f"{_SMOOTHING} works again", "no action needed", "warning", "trigger"),
    ("163", f"{_SMOOTHING} was turned off", "no reset is needed; if you rely on it, check"
     " the temperature", "warning", "trigger"),
    ("164", f"{_SMOOTHING} is nearly worn out", "if you rely on it, plan to replace the card",
     "warning", "trigger"),
    ("165", f"{_SMOOTHING} is worn out", "if you rely on it, replace the card", "warning",
     "trigger"),
    ("166 170", "NVLink traffic that confidential computing does not allow", "support",
     "error", "trigger"),
    ("167", "the PCIe link timed out and did not recover", "seat", "error", "trigger"),
    ("168", "errors in the memory reserved by the driver: less is left for programs",
     f"turn ECC on (nvidia-smi -e 1 -i {{index}}) and {REBOOT}", "error", "trigger"),
    ("169", "the card's security processor stopped", "reset", "error", "trigger"),
    ("171", "an uncorrected error in the card's memory", f"{RESET}; {REPLACE}", "error",
     "trigger"),
    ("172", "an uncorrected error in the chip's own memory",
     f"{RESET}; if SRAM on the GPU's page is on, have the card replaced",
     "error", "trigger"),
    ("173", "the link to the CPU (C2C) failed", f"{REBOOT}; {SUPPORT}", "error", "unverified"),
    ("175 176", "an error that NVIDIA's catalogue does not explain yet", "support", "error",
     "unverified"),
    ("23 87 91 111 138", "not used on Ampere and later", "support", "error", "catalog"),
    *((numbers, _LEGACY + text, "support", "error", "catalog nverror")
      for numbers, text in _ON_OLDER_CARDS),
)  # fmt: skip

_UNKNOWN = (
    f"look it up in NVIDIA's catalogue, {CATALOG}; the kernel log has more (sudo dmesg | grep Xid)"
)


def _numbers(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


XIDS: dict[int, tuple[Finding, str]] = {
    number: (Finding(level, f"XID {number}", text, _ADVICE.get(advice, advice)), source)
    for numbers, text, advice, level, source in _ROWS
    for part in numbers.split()
    for number in _numbers(part)
}
"""What each XID means, and one or more of the words in the module's docstring. An `error` makes the
GPU unavailable until somebody acts. `{index}` in the advice stands for the GPU's index."""

_BESIDE_48 = {
    64: f"the memory could not be replaced: {RESET}; {REPLACE}",
    63: "the card will replace that memory: start nothing new on it, let its programs finish, then"
    " reset it: nvidia-smi --gpu-reset -i {index}",
    172: f"it was in the chip's own memory: {RESET}; if SRAM on the GPU's page is on, have the "
    "card replaced",
    171: f"it was in the card's memory: {RESET}; {REPLACE}",
}
"""The advice for a 48, by the XID beside it (NVIDIA's WORKFLOW_XID_48); the first counts."""

_RESTART_FABRIC = (
    "after a kill no action is needed; otherwise, with no other XID on this GPU, restart the "
    "fabric manager: systemctl restart nvidia-fabricmanager"
)


def xid_finding(number: int, beside: Collection[int] = (), *, fabric: bool = False) -> Finding:
    """Return what an XID means. One that is not known is not assumed to be harmless.

    `beside`: all XIDs of the same GPU. `fabric`: it is on NVSwitches that a fabric manager runs,
    so that a 45 alone means more (NVIDIA's WORKFLOW_XID_45).
    """
    if number not in XIDS:
        return Finding("error", f"XID {number}", "an error that gputop does not know", _UNKNOWN)
    xid, _ = XIDS[number]
    if number == 48:
        advice = next((text for other, text in _BESIDE_48.items() if other in beside), xid.advice)
        return replace(xid, advice=advice)
    if number == 45 and fabric and not set(beside) - {45}:
        return replace(xid, advice=_RESTART_FABRIC)
    return xid
