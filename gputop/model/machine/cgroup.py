"""What the control groups of a process say about its container, its job and its systemd unit.

The text is that of /proc/PID/cgroup, cgroups(7): lines of `hierarchy:controllers:path`, one for
each hierarchy of version 1, `0::path` for version 2. Only a newline ends a line: users choose the
names of groups that they may make. Paths are written by docker, podman, containerd and cri-o
(drivers systemd and cgroupfs), the kubelet, Slurm (task/cgroup, cgroup/v2) and systemd.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from gputop.model.machine.origin import Container, Origin, Runtime
from gputop.model.machine.text import printable

_RUNTIMES: dict[str, Runtime] = {
    "docker": "docker",
    "libpod": "podman",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
}
_CONTAINER = re.compile(
    r"(?:(docker|libpod|cri-containerd|nerdctl|crio)[-:])?([0-9a-f]{64})(?:\.scope)?\Z"
)
_POD = re.compile(r"(?:.*-)?pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?\Z")
_JOB = re.compile(r"job_([0-9]+)\Z", re.ASCII)
_STEP = re.compile(r"step_(\w+)\Z", re.ASCII)


@lru_cache(maxsize=128)
def parse_cgroup(text: str) -> Origin:
    """Return the container, pod, Slurm job and unit of a process; None for what is missing.

    Cached, since processes of one job have the same text.

    In a cgroup namespace, paths begin at its own root, and do not show what is above it.
    """
    paths = _paths(text)
    slurm = [path for path in paths if any("slurm" in part for part in path)]
    pod = _last(paths, _POD)
    return Origin(
        container=next(filter(None, map(_container, paths)), None),
        pod=pod and pod.replace("_", "-"),  # in a slice's name a dash separates levels
        slurm_job=_last(slurm, _JOB),
        slurm_step=_last(slurm, _STEP),
        unit=next(filter(None, map(_unit, paths)), None),
    )


def _paths(text: str) -> list[list[str]]:
    """Return the parts of each path, first those of systemd's own hierarchies: they have units."""
    lines = [line.split(":", 2) for line in text.split("\n") if line.count(":") >= 2]
    lines.sort(key=lambda line: line[1] not in ("", "name=systemd"))
    # `b.slice:cri-containerd:id` is written for the systemd driver if there is no systemd.
    paths = (path.replace(".slice:", ".slice/") for _, _, path in lines)
    return [path.split("/") for path in dict.fromkeys(paths)]


def _container(path: list[str]) -> Container | None:
    """Return the innermost container: one may run others."""
    for depth in range(len(path) - 1, -1, -1):
        if match := _CONTAINER.match(path[depth]):
            above = path[depth - 1] if depth else ""
            runtime = _RUNTIMES.get(match[1] or above)
            return Container(match[2], runtime)
    return None


def _unit(path: list[str]) -> str | None:
    """Return the innermost service or scope that is not the container itself."""
    for part in reversed(path):
        if part.endswith((".service", ".scope")) and not _CONTAINER.match(part):
            return printable(part, 128)
    return None


def _last(paths: Iterable[list[str]], pattern: re.Pattern[str]) -> str | None:
    matches = (match[1] for path in paths for part in path if (match := pattern.match(part)))
    return next(matches, None)
