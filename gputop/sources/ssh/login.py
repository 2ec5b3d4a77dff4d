"""Logs in by hand, once, with a master connection that later streams go through.

Its socket is in a folder that is ours alone. It ends with gputop, and by itself when it has not
been used for a while.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from gputop.errors import SourceError
from gputop.sources.child import PipedProcess
from gputop.sources.ssh.client import ALWAYS, ssh_environment, ssh_words
from gputop.sources.ssh.names import HostName

_PERSISTS = "60"
"""Seconds without use after which a master ends, if gputop could not end it."""
_ENDS = 0.5


def login_command(host: HostName) -> list[str]:
    """Return the command for a login at a terminal; it ends with status 0 as soon as a person has
    logged in. SourceError."""
    socket = _socket(host)
    socket.unlink(missing_ok=True)  # a dead master's socket would keep the next from working
    options = {**ALWAYS, "ControlMaster": "yes", "ControlPersist": _PERSISTS}
    return [*ssh_words(host, {**options, "ControlPath": str(socket)}, "-T"), "true"]


def login_options(host: HostName) -> dict[str, str]:
    """Return ssh's options for a stream through such a login; none without a login."""
    if not _new_folder.cache_info().currsize or not _socket(host).exists():
        return {}
    return {"ControlPath": str(_socket(host))}


def _socket(host: HostName) -> Path:
    name = hashlib.sha256(f"{host.target}:{host.port}".encode()).hexdigest()
    return _folder() / name[:16]


def _folder() -> Path:
    """Return the folder of the sockets; a new one if it was cleaned away, as systemd-tmpfiles does
    after ten days. SourceError."""
    with suppress(OSError):
        about = os.lstat(folder := _new_folder())
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid():
            return folder
    _new_folder.cache_clear()
    return _new_folder()


@cache
def _new_folder() -> Path:
    """Make a folder for its user alone, that is removed when gputop ends. SourceError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="gputop-", dir="/tmp"))  # a socket's path is short
    except OSError as error:
        raise SourceError(f"cannot create a folder for the login: {error.strerror}") from None
    atexit.register(_tidy_up, folder)
    return folder


def _tidy_up(folder: Path) -> None:
    """End the masters, and remove the folder."""
    silent = os.open(os.devnull, os.O_RDWR)
    ending, any_host = [], HostName("", "gputop", None)  # the socket decides
    for path in folder.glob("*"):
        command = ssh_words(any_host, {"ControlPath": str(path)}, "-O", "exit")
        ending.append(PipedProcess(command, ssh_environment(), silent, silent))
    for process in ending:
        process.end(_ENDS)
    shutil.rmtree(folder, ignore_errors=True)
