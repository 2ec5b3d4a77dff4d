"""Where gputop itself is: in a container, in a batch job, with which device nodes."""

from __future__ import annotations

import os

from gputop.agent.process.mount_cache import MountCache
from gputop.agent.process.namespaces import in_first_namespace
from gputop.agent.process.nodes import in_container, own_minors
from gputop.agent.stall import CallGuard
from gputop.model.machine.cgroup import parse_cgroup
from gputop.model.machine.environment import Standpoint, job_gpus, job_of
from gputop.model.machine.text import printable

_MARKS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
"""What docker, podman and Apptainer put into every container."""
_INIT = 1


def standpoint() -> Standpoint:
    """Look at ourselves."""
    minors = own_minors()
    job, gpus = job_of(os.environ) or _adopted(), job_gpus(os.environ)
    return Standpoint(
        minors=tuple(sorted(minors)) if minors else None,
        container=_contained(),
        job=job and printable(job, 64),
        job_gpus=gpus and printable(gpus, 256),
    )


def _contained() -> bool:
    marked = "KUBERNETES_SERVICE_HOST" in os.environ or any(map(os.path.exists, _MARKS))
    return (
        marked or not in_first_namespace() or bool(MountCache(CallGuard()).ask(in_container, _INIT))
    )


def _adopted() -> str | None:
    """The Slurm job of our control group: who comes by ssh has no variables of it
    (pam_slurm_adopt)."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            job = parse_cgroup(file.read()).slurm_job
    except OSError:
        return None
    return None if job is None else f"Slurm {job}"
