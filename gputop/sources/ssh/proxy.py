"""What ssh's configuration puts in front of a host."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from gputop.sources.ssh.client import ssh_environment, ssh_words
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.pacing import limiter_of
from gputop.sources.ssh.process import SshProcess

_SECONDS = 10.0
"""For ssh to read its configuration, which may run programs of the user's."""


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
            while line := process.line(_SECONDS).decode("utf-8", "replace"):
                name, _, value = line.strip().partition(" ")
                if name in ("proxyjump", "proxycommand") and value != "none":
                    return value if name == "proxyjump" else name
        finally:
            process.end()
            process.close()
    return ""
