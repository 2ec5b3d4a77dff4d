"""Where a process belongs: who started it, from where, in which container or job.

Everything is None (or empty) if it cannot be known: only root can read another user's working
directory and variables.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Runtime = Literal["docker", "podman", "containerd", "cri-o"]


class Ancestor(msgspec.Struct, frozen=True, array_like=True):
    """A process that started another one, directly or not; in JSON `[pid, name]`."""

    pid: int
    name: str
    """The kernel's short name of it, 15 bytes at most."""


class Container(msgspec.Struct, frozen=True, omit_defaults=True):
    """The container around a process."""

    id: str
    """64 hexadecimal digits, as the runtime has it."""
    runtime: Runtime | None = None
    """`docker`, `podman`, `containerd` or `cri-o`."""
    name: str | None = None
    """None unless a runtime reported it; `image` likewise."""
    image: str | None = None
    """What it was started from."""
    pod: str | None = None
    """The name of its Kubernetes pod; `namespace` likewise, and both only from a runtime."""
    namespace: str | None = None
    """The Kubernetes namespace of the pod."""

    @property
    def label(self) -> str:
        """Its name, `POD/NAME` in Kubernetes, or the short form of its id."""
        if self.name is None:
            return self.id[:12]
        return f"{self.pod}/{self.name}" if self.pod else self.name


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a process belongs, from /proc."""

    cwd: str | None = None
    """Its working directory, as it sees it itself."""
    venv: str | None = None
    """The directory of its virtual or conda environment."""
    ancestors: tuple[Ancestor, ...] = ()
    """Its parent first; up to tmux, screen or sshd, or to the last one below process 1."""
    session: str | None = None
    """Its session of tmux or screen, from its variables: `tmux default:$0` (`tmux attach -t '$0'`
    takes the number) or `screen 4242.work`."""
    ssh_from: str | None = None
    """Address of the client, if it was started through ssh."""
    container: Container | None = None
    """The container around it."""
    pod: str | None = None
    """Uid of the Kubernetes pod."""
    slurm_job: str | None = None
    """Number of the Slurm job, from its control group: variables may name anybody's."""
    slurm_step: str | None = None
    """A number, `batch`, `interactive` or `extern`."""
    unit: str | None = None
    """Its unit of systemd: `jupyterhub.service`, `session-3.scope`."""

    @property
    def job(self) -> str | None:
        """Slurm's job and step, as sacct writes them: `4711.0`."""
        if self.slurm_job is None or self.slurm_step is None:
            return self.slurm_job
        return f"{self.slurm_job}.{self.slurm_step}"
