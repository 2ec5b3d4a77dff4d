"""Where a process belongs: who started it, from where, in which container or job.

Everything is None (or empty) where it cannot be known: another user's working directory and
variables are readable to root alone.
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
    """None unless a runtime told it, as `image`."""
    image: str | None = None
    """What it was started from."""

    @property
    def label(self) -> str:
        """Its name, or the short form of its id."""
        return self.name or self.id[:12]


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """What /proc tells of where a process belongs."""

    cwd: str | None = None
    """Its working directory, as it sees it itself."""
    venv: str | None = None
    """Of its virtual or conda environment, the directory."""
    ancestors: tuple[Ancestor, ...] = ()
    """Its parent first; up to tmux, screen or sshd, or to the last one below process 1."""
    session: str | None = None
    """Of tmux or screen, as its variables tell: `tmux default:$0` (`tmux attach -t '$0'` takes the
    number) or `screen 4242.work`."""
    ssh_from: str | None = None
    """Address of the client, where it was started through ssh."""
    container: Container | None = None
    """The container around it."""
    pod: str | None = None
    """Uid of the Kubernetes pod."""
    slurm_job: str | None = None
    """Number of the Slurm job."""
    slurm_step: str | None = None
    """A number, `batch`, `interactive` or `extern`."""
    unit: str | None = None
    """Of systemd: `jupyterhub.service`, `session-3.scope`."""

    @property
    def job(self) -> str | None:
        """Slurm's job and step, as sacct writes them: `4711.0`."""
        if self.slurm_job is None or self.slurm_step is None:
            return self.slurm_job
        return f"{self.slurm_job}.{self.slurm_step}"
