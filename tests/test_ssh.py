"""Machines over a real sshd."""

from __future__ import annotations

from contextlib import closing

from gputop.model.machine.frame import Frame
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.source import SshSource
from tests.conftest import MachineFactory
from tests.sshd import SYSTEM, Sshd, sshd

__all__ = ["sshd"]


def test_an_installed_agent(sshd: Sshd, kept: MachineFactory) -> None:
    sshd.host("node1", kept("h200x8").env)
    with closing(SshSource(HostName("node1", "node1", None))) as source:
        frame = next(frame for frame in source.frames() if isinstance(frame, Frame))
        assert len(frame.gpus) == 8
        assert source.link.state == "connected"
        assert source.link.how == "installed"


def test_a_carried_agent(sshd: Sshd, kept: MachineFactory) -> None:
    sshd.host("node2", kept("h200x8").env, path=SYSTEM)
    with closing(SshSource(HostName("node2", "node2", None))) as source:
        frame = next(frame for frame in source.frames() if isinstance(frame, Frame))
        assert len(frame.gpus) == 8
        assert source.link.state == "connected"
        assert source.link.how == "carried"
