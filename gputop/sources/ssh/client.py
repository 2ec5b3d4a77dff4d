"""The system's ssh: where it is, and how it is called.

What it does is the user's own configuration's business: keys, agent, known_hosts, ProxyJump,
ControlMaster. Behind a screen it asks nothing, forwards nothing and makes no master connection.
"""

from __future__ import annotations

import os

from gputop.errors import SourceError
from gputop.sources.ssh.names import HostName
from gputop.trust import find_program, is_elevated, is_roots, may_connect, program_environment

CONFIG = "GPUTOP_SSH_CONFIG"
"""A variable that names a configuration for ssh to read in place of ~/.ssh/config."""
CONNECT_TIMEOUT = 10
"""Seconds for the connection and its first handshake."""
_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_TIMEOUT),
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "RemoteCommand": "none",
    "ControlMaster": "no",  # one that is there is used
}
_AGENT = "SSH_AUTH_SOCK"


def stream_command(host: HostName, remote: str) -> list[str]:
    """Return the command that runs a line of /bin/sh there, without a terminal. SourceError."""
    options = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
    return [_program(), "-T", *options, *_to(host), remote]


def ssh_environment() -> dict[str, str]:
    """Return the variables for ssh: the user's own; for root only what is root's."""
    environ = program_environment()
    agent = os.environ.get(_AGENT, "")
    if is_elevated() and may_connect(agent):
        environ[_AGENT] = agent
    return environ


def _to(host: HostName) -> list[str]:
    config = os.environ.get(CONFIG)
    if config and is_elevated() and not is_roots(config):
        raise SourceError(f"{CONFIG} names a file that others than root can change: {config}")
    port = () if host.port is None else ("-p", str(host.port))
    return [*(("-F", config) if config else ()), *port, "--", host.target]


def _program() -> str:
    path, refused = find_program("ssh")
    if path is None:
        raise SourceError(refused or "there is no ssh in PATH: install the OpenSSH client")
    return path
