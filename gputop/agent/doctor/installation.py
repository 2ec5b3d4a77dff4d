"""What a machine has installed for its GPUs, found without the help of the driver.

Paths are below `root`, which tests replace.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gputop.agent.host import is_wsl, kernel_module_version, nvidia_cards
from gputop.agent.program import run_program
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import counted
from gputop.trust import probe_environment

_ROOT = Path("/")
_LIMIT = 5.0
"""Seconds that loading the libraries may take."""
_LIBRARIES = "libnvidia-ml.so.1", "libcuda.so.1"
_NODE = re.compile(r"nvidia(?:[0-9]+|ctl|-uvm)\Z", re.ASCII)
_RELOAD = (
    "the driver was updated while it was loaded: reboot; or, when no process uses a GPU,"
    " sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia"
)
_FAILED = {"error": "loading it crashes or hangs"}
_TOOLKIT = "start it with the NVIDIA container toolkit (docker run --gpus all)"
_CONTAINERS = {".dockerenv": "docker", "run/.containerenv": "podman"}
_VARIABLES = {
    "APPTAINER_NAME": "apptainer",
    "SINGULARITY_NAME": "singularity",
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "container": "container",
}

_SYMBOLS = {
    "nvmlDeviceGetFieldValues": "NVLink, throttling",
    "nvmlDeviceGetMemoryInfo_v2": "MEM-RSVD",
    "nvmlDeviceGetProcessUtilization": "SM% of processes",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": "processes of MPS",
    "nvmlDeviceGetNumGpuCores": "CORES",
    "nvmlDeviceGetMarginTemperature": "T.LIMIT",
    "nvmlDeviceGetRemappedRows": "remapped rows",
    "nvmlDeviceGetJpgUtilization": "JPEG",
    "nvmlDeviceGetOfaUtilization": "OFA",
    "nvmlDeviceGetGpuFabricInfoV": "FABRIC",
    "nvmlGpmSampleGet": "Activity (GPM)",
}
"""Calls that not every driver has, and what is not available without them."""

_CHILD = """
import ctypes, json, sys

def look(name):
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return {"error": str(error)}
    found = {"path": name, "version": None}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            if "/" + name.partition(".so")[0] + ".so" in line:
                found["path"] = line.rstrip("\\n").split(None, 5)[5]
    if hasattr(library, "nvmlSystemGetNVMLVersion"):
        text = ctypes.create_string_buffer(80)
        if library.nvmlSystemGetNVMLVersion(text, 80) == 0:
            found["version"] = text.value.decode("ascii", "replace")
    number = ctypes.c_int()
    if hasattr(library, "cuDriverGetVersion") and not library.cuDriverGetVersion(
        ctypes.byref(number)
    ):
        found["version"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
    found["lacks"] = [symbol for symbol in sys.argv[1:] if not hasattr(library, symbol)]
    return found

print(json.dumps({name: look(name) for name in ("libnvidia-ml.so.1", "libcuda.so.1")}))
"""


def installation_checks(frame: Frame, inside: str | None, root: Path = _ROOT) -> Iterator[Finding]:
    """Check the driver's libraries, kernel module, device nodes and cards, `inside` a `container`
    or on a machine itself."""
    answers = frame.problem is None
    module = kernel_module_version(root)
    libraries = _libraries()
    yield from _nvml(libraries["libnvidia-ml.so.1"], module, inside)
    yield from _libcuda(libraries["libcuda.so.1"])
    if is_wsl(root / "dev/dxg"):
        yield Finding("ok", "machine", "WSL: the driver is that of Windows, behind /dev/dxg")
    else:
        yield _module(module, answers, inside)
        yield from _nodes(root / "dev", answers, inside)
    yield from _cards(frame, root, inside)
    yield Finding("ok", "machine", f"inside a container ({inside})" if inside else "no container")
    if frame.host.nested:
        yield Finding("warning", "PID namespace", "not the first of the machine: the driver lists"
                      f" {_listed_pids(frame)}",
                      "docker run --pid=host shows who is on the GPUs")  # fmt: skip


def _listed_pids(frame: Frame) -> str:
    """Return which processes the driver lists in a container, as far as this frame shows."""
    if any(gpu.listed == "ours" for gpu in frame.gpus):
        return "only this container's own processes, so whether a GPU is free is not known"
    return "processes of the host, which have other PIDs here"


def _module(version: str | None, answers: bool, inside: str | None) -> Finding:
    if version is not None:
        return Finding("ok", "kernel module", version)
    advice = f"sudo modprobe nvidia{', on the host' * bool(inside)}; dmesg says why it fails"
    return _missing(answers, "kernel module", "none is loaded", advice)


def container(
    frame: Frame, root: Path = _ROOT, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Return the kind of container that gputop runs in; None if in none. WSL has namespaces of its
    own, which make no container."""
    for name, kind in _CONTAINERS.items():
        if (root / name).exists():
            return kind
    unmarked = frame.host.surroundings.container and not frame.host.wsl
    kinds = (kind for name, kind in _VARIABLES.items() if environ.get(name))
    return next(kinds, "container" if unmarked else None)


def _libraries() -> dict[str, Any]:
    """Return facts about the driver's two libraries, loaded in a child: they may hang or crash."""
    try:
        command = [sys.executable, "-I", "-S", "-c", _CHILD, *_SYMBOLS]
        done = run_program(command, _LIMIT, probe_environment())
        answer: dict[str, Any] = json.loads(done.output.strip().rpartition(b"\n")[2])
    except (OSError, ValueError):
        return dict.fromkeys(_LIBRARIES, _FAILED)
    return answer


def _nvml(library: Mapping[str, Any], module: str | None, inside: str | None) -> Iterator[Finding]:
    if "error" in library:
        yield Finding("error", "NVML", library["error"],
                      _TOOLKIT if inside else "install the NVIDIA driver")  # fmt: skip
        return
    version = library["version"] or "of unknown version"
    yield Finding("ok", "NVML", f"{version} ({library['path']})")
    driver = version.partition(".")[2]
    if module is not None and driver and driver != module:
        advice = f"the container brings a library of its own: remove it, and {_TOOLKIT}"
        yield Finding("error", "NVML", f"the library is of driver {driver}, the loaded kernel"
                      f" module is {module}", advice if inside else _RELOAD)  # fmt: skip
    if lacks := library["lacks"]:
        gone = ", ".join(_SYMBOLS[name] for name in lacks)
        words = f"this driver lacks {', '.join(lacks)}, so these are N/A: {gone}"
        yield Finding("info", "NVML", words)


def _libcuda(library: Mapping[str, Any]) -> Iterator[Finding]:
    advice = "compute programs need it: it comes with the driver; in a container, " + _TOOLKIT
    if "error" in library:
        yield Finding("error", "libcuda", library["error"], advice)
    elif "/stubs/" in library["path"]:
        yield Finding("error", "libcuda", f"{library['path']} is a stub, for linking only",
                      "take that directory out of LD_LIBRARY_PATH")  # fmt: skip
    else:
        version = f"CUDA {library['version']} " if library["version"] else ""
        yield Finding("ok", "libcuda", f"{version}({library['path']})")


def _nodes(dev: Path, answers: bool, inside: str | None) -> Iterator[Finding]:
    names = sorted(path.name for path in dev.glob("nvidia*") if _NODE.match(path.name))
    make = _TOOLKIT if inside else "sudo nvidia-modprobe -c 0 -u"
    denied = [dev / name for name in names if not os.access(dev / name, os.R_OK | os.W_OK)]
    for node in denied:
        yield Finding("error", "device nodes", f"you may not use {node}", _permission(node))
    if not names:
        yield _missing(answers, "device nodes", f"no {dev}/nvidia*", make)
    elif "nvidia-uvm" not in names:
        text = f"no {dev}/nvidia-uvm, which CUDA needs (outside of containers it creates it)"
        yield _missing(not inside, "device nodes", text, make)
    if names and not denied:
        yield Finding("ok", "device nodes", " ".join(names))


def _missing(harmless: bool, code: str, text: str, advice: str) -> Finding:
    return Finding("info" if harmless else "error", code, text, "" if harmless else advice)


def _permission(node: Path) -> str:
    status, uid = node.stat(), os.getuid()
    always = f"sudo chmod a+rw {node}; permanently: NVreg_DeviceFileMode=0666 of the module nvidia"
    try:
        group, user = grp.getgrgid(status.st_gid), pwd.getpwuid(uid).pw_name
    except KeyError:
        return always
    if status.st_mode & 0o060 != 0o060 or group.gr_gid == 0:
        return always
    if user in group.gr_mem:
        return f"you joined its group {group.gr_name} after you logged in: log in again"
    return f"join its group: sudo usermod -aG {group.gr_name} {user}, then log in again"


def _cards(frame: Frame, root: Path, inside: str | None) -> Iterator[Finding]:
    cards = nvidia_cards(root / "sys")
    for card in cards:
        if card.driver == "vfio-pci":
            yield Finding("info", "PCI bus", f"{card}: it is for a virtual machine")
        elif card.driver != "nvidia" and not inside:
            yield Finding("error", "PCI bus", str(card), "sudo modprobe nvidia; where nouveau has"
                          " the card, blacklist it and reboot; dmesg has the reasons")  # fmt: skip
    driven, shown = sum(card.driver == "nvidia" for card in cards), len(frame.gpus)
    if driven > shown and frame.problem is None and not inside:
        yield Finding("warning", "PCI bus", f"the driver has {counted(driven, 'card')} and shows"
                      f" {counted(shown, 'GPU')}",
                      "a job (Slurm) hides those that are not its own; else one may have failed:"
                      " sudo dmesg | grep -i -e nvrm -e xid")  # fmt: skip
    elif cards:
        yield Finding("ok", "PCI bus", counted(len(cards), "NVIDIA card"))
