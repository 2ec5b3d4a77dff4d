"""Explains why the driver cannot be read, and what to do about it."""

from __future__ import annotations

import msgspec

from gputop.agent.host import kernel_module_version, nvidia_cards
from gputop.model.machine.frame import Problem

NO_GPU = -1
"""Our own code, not NVML's: the driver opened, and counts no GPU."""

NOT_ASKED = Problem(code="not_answering", text="the NVIDIA driver was not asked", advice="ask it")
_PROBLEMS: dict[int, Problem] = {
    12: Problem(
        code="library_not_found",
        text="the NVIDIA library libnvidia-ml.so.1 is not installed here",
        advice="install the NVIDIA driver; in a container, start it with the NVIDIA container "
        "toolkit (docker run --gpus all)",
    ),
    9: Problem(
        code="driver_not_loaded",
        text="the NVIDIA kernel driver is not loaded",
        advice="load it with 'sudo modprobe nvidia'; if that fails, dmesg says why "
        "(Secure Boot, a new kernel without the module, no GPU)",
    ),
    18: Problem(
        code="version_mismatch",
        text="the NVIDIA library and the loaded kernel driver have different versions",
        advice="the driver was updated while it was loaded: reboot, or unload and load the "
        "nvidia modules when no process uses them; if gputop then still says so, start it again",
    ),
    4: Problem(
        code="no_permission",
        text="no permission to use the NVIDIA driver",
        advice="check the permissions of /dev/nvidia*; in a container, give it the devices "
        "(docker run --gpus all)",
    ),
    NO_GPU: Problem(
        code="no_gpu",
        text="the NVIDIA driver is loaded and finds no GPU",
        advice="look for a card that fell off the bus ('sudo dmesg | grep -i xid'); in a "
        "container or a job, ask for GPUs",
    ),
}


def unreadable(text: str) -> Problem:
    """Return the problem for an error of gputop's own."""
    return Problem(
        code="error",
        text=f"gputop cannot read the NVIDIA driver: {text}",
        advice="please report it (gputop doctor --report FILE); gputop keeps trying",
    )


def problem_of(code: int, text: str = "") -> Problem:
    """Return the problem for a code of nvmlInit, with NVML's `text` for it, or for NO_GPU."""
    problem = _PROBLEMS.get(code) or Problem(
        code="error",
        text=f"the NVIDIA driver does not start: {text} (NVML error {code})",
        advice="'nvidia-smi' should say the same; dmesg has the kernel's side of it",
    )
    if problem.code == "version_mismatch" and (version := kernel_module_version()):
        text = f"{problem.text} (kernel driver {version})"
        problem = msgspec.structs.replace(problem, text=text)
    return msgspec.structs.replace(problem, cards=nvidia_cards())


def not_answering(seconds: float) -> Problem:
    """Return the problem of an nvmlInit that has not come back for `seconds`."""
    return Problem(
        code="not_answering",
        text=f"the NVIDIA driver has not answered for {seconds:.0f} s (nvmlInit)",
        advice="it may be loading, or a GPU is stuck: see dmesg; gputop keeps waiting",
    )
