"""The system's ssh: where it is, how it is called, and what its configuration puts before a host.

The user's own configuration decides about keys, agent, known_hosts, ProxyJump and ControlMaster.
Behind a screen ssh asks nothing, forwards nothing and makes no master connection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

from gputop.errors import SourceError
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.pacing import limiter_of
from gputop.sources.ssh.process import SshProcess
from gputop.trust import find_program, is_elevated, is_roots, may_connect, program_environment

CONFIG = "GPUTOP_SSH_CONFIG"
"""A variable that names a configuration for ssh to read instead of ~/.ssh/config."""
CONNECT_TIMEOUT = 10
"""Seconds for the connection and its first handshake."""
ALWAYS = {
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "Tunnel": "no",
    "RemoteCommand": "none",
}
"""Options of every call, whatever the configuration says: a machine gets nothing of this one."""
_OPTIONS = {
    **ALWAYS,
    "BatchMode": "yes",
    "LogLevel": "ERROR",  # whatever the configuration says: errors are shown, banners are not
    "ConnectTimeout": str(CONNECT_TIMEOUT),
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ControlMaster": "no",  # an existing one is used
}
_AGENT = "SSH_AUTH_SOCK"
_FILES = 1 << 16
_CONFIG_SECONDS = 10.0
"""For ssh to read its configuration, which may run programs of the user's."""


def stream_command(host: HostName, remote: str, options: Mapping[str, str]) -> list[str]:
    """Return the command that runs a line of /bin/sh there, without a terminal; `options` override
    the usual ones. SourceError."""
    return [*ssh_words(host, {**_OPTIONS, **options}, "-T"), remote]


def ssh_words(host: HostName, options: Mapping[str, str], *switches: str) -> list[str]:
    """Return a call of ssh, up to the host. SourceError."""
    config = os.environ.get(CONFIG)
    if config and is_elevated() and not is_roots(config):
        raise SourceError(f"{CONFIG} names a file that users other than root can change: {config}")
    words = [_program(), *(("-F", config) if config else ()), *switches]
    words += [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    port = () if host.port is None else ("-p", str(host.port))
    return [*words, *port, "--", host.target]


def ssh_environment() -> dict[str, str]:
    """Return the variables for ssh: the user's own; for root only what is root's."""
    environ = program_environment()
    agent = os.environ.get(_AGENT, "")
    if is_elevated() and may_connect(agent):
        environ[_AGENT] = agent
    # The ssh of a ProxyJump does not know of BatchMode, and would ask in a window.
    environ.pop("SSH_ASKPASS", None)
    environ["SSH_ASKPASS_REQUIRE"] = "never"
    return environ


def proxy_of(host: HostName) -> str:
    """Return the jump hosts of a host, or a word for a ProxyCommand, as each host may have its own
    to the same end; empty without either, or if ssh does not say in time. SourceError."""
    with suppress(TimeoutError):
        return _proxy_of(host)
    return ""


@lru_cache(1024)
def _proxy_of(host: HostName) -> str:
    with limiter_of("ssh -G").place(bool):
        process = SshProcess(ssh_words(host, {}, "-G"), ssh_environment())
        try:
            while line := process.line(_CONFIG_SECONDS).decode("utf-8", "replace"):
                name, _, value = line.strip().partition(" ")
                if name in ("proxyjump", "proxycommand") and value != "none":
                    return value if name == "proxyjump" else name
        finally:
            process.end()
            process.close()
    return ""


@cache
def allow_many_files() -> None:
    """Let this process open as many files as it may: a connection takes four, and many shells set a
    limit of 1,024."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    wanted = _FILES if hard == RLIM_INFINITY else min(_FILES, hard)
    if soft != RLIM_INFINITY and soft < wanted:
        setrlimit(RLIMIT_NOFILE, (wanted, hard))


def _program() -> str:
    path, refused = find_program("ssh")
    if path is None:
        raise SourceError(refused or "there is no ssh in PATH: install the OpenSSH client")
    return path
