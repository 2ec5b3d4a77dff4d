"""What cannot be known of a GPU in some places (unified memory, WSL, vGPU, containers), and why."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import size

INTEGRATED = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"})
"""Compute capabilities of Jetson (TX1, TX2, Xavier, Orin, Thor) and GB10, as NVIDIA's list of CUDA
GPUs has them."""


CONTAINER = "container: only its own processes can be seen, so whether a GPU is free is not known"
"""Said of every GPU that lists only `ours`."""


def is_unified(gpu: Gpu) -> bool:
    """Whether it has no memory of its own. NVML then reports none, or the machine's, which the
    agent leaves out (nvitop#208 and nvtop#463 saw both on GB10)."""
    identity = gpu.identity
    if gpu.state == "lost" or gpu.memory_total is not None or identity is None:
        return False
    return identity.compute_capability in INTEGRATED


def no_process_text(frame: Frame) -> str:
    """Return what to say if no process is listed; it is only sure if all GPUs list `all`."""
    listed = {gpu.listed for gpu in frame.gpus}
    if frame.reported_by is not None:
        jobs = dict.fromkeys(job for report in frame.reports.values() for job in report.jobs)
        words = f"; jobs: {', '.join(jobs)}" if jobs else ""
        return f"{frame.reported_by} does not say which processes are on the GPUs{words}"
    if "ours" in listed:
        return "no process in here is on a GPU; those outside of this container cannot be seen"
    if listed <= {"all"}:
        return "no process is on a GPU"
    if "none" not in listed:
        is_one = len(frame.gpus) == 1
        who = "the GPU has not said who is on it"
        return f"no process is seen: {who if is_one else 'not all GPUs have said who is on them'}"
    why = ": Windows runs it (WSL)" if frame.host.wsl else ""
    return f"the driver does not list the processes here{why}"


def limits(frame: Frame, gpu: Gpu) -> Iterator[str]:
    """Yield a sentence for each limit of a GPU, its subject before a colon."""
    if is_unified(gpu):
        used, total = size(frame.host.memory_used), size(frame.host.memory_total)
        yield f"unified memory: the GPU uses the machine's RAM, {used} of {total} in use"
    if gpu.numa_node is not None:
        yield (
            f"NUMA node {gpu.numa_node}: the system manages the GPU's memory, and keeps pages of "
            "processes that have ended; it is free when no process is on it"
        )
    if frame.host.wsl and gpu.listed == "none":
        yield "WSL: Windows runs the driver, which lists no processes here"
    if gpu.identity is not None and gpu.identity.virtualization == "vgpu":
        yield "vGPU: a share of a card; only its host knows power, temperature and clocks"
    if gpu.listed == "ours":
        yield CONTAINER
