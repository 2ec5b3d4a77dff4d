"""Logging in by hand, once: a master connection that streams then go through.

Its socket lies in a folder that is ours alone; it ends with gputop, and by itself when nothing has
gone through it for a while.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from gputop.errors import SourceError
from gputop.sources.child import PipedProcess
from gputop.sources.ssh.client import ssh_environment, ssh_words
from gputop.sources.ssh.names import HostName

_PERSISTS = "60"
"""Seconds without use after which a master ends, where gputop could not end it."""
_ENDS = 0.5


def login_command(host: HostName) -> list[str]:
    """Return the command with which a person logs in at a terminal; it ends, with status 0, as
    soon as that is done. SourceError."""
    socket = _socket(host)
    socket.unlink(missing_ok=True)  # of a master that is dead: it would keep the next from working
    options = {"ControlMaster": "yes", "ControlPersist": _PERSISTS, "RemoteCommand": "none"}
    return [*ssh_words(host, {**options, "ControlPath": str(socket)}, "-T"), "true"]


def login_options(host: HostName) -> dict[str, str]:
    """Return the options by which a stream goes through such a login; none without one."""
    if not _folder.cache_info().currsize or not _socket(host).exists():
        return {}
    return {"ControlPath": str(_socket(host))}


def _socket(host: HostName) -> Path:
    name = hashlib.sha256(f"{host.target}:{host.port}".encode()).hexdigest()
    return _folder() / name[:16]


@cache
def _folder() -> Path:
    """Make it: for its user alone, and gone when gputop ends."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="gputop-", dir="/tmp"))  # a socket's path is short
    except OSError as error:
        raise SourceError(f"no folder for a login can be made: {error.strerror}") from None
    atexit.register(_tidy_up, folder)
    return folder


def _tidy_up(folder: Path) -> None:
    """End the masters, and forget the folder."""
    silent = os.open(os.devnull, os.O_RDWR)
    ending = []
    for path in folder.iterdir():
        command = ssh_words(None, {"ControlPath": str(path)}, "-O", "exit")
        ending.append(PipedProcess(command, ssh_environment(), silent, silent))
    for process in ending:
        process.end(_ENDS)
    shutil.rmtree(folder, ignore_errors=True)
