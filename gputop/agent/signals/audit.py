"""The audit log: a line of JSON for each outcome of a signal, with sender, target and time.

Signals are noted after they were sent, in one write, within a deadline: a disk may not answer.
Several agents write to one log: no line is cut, mixed with another or lost.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

import msgspec

from gputop.deadline import Call
from gputop.files import Folder, UnsafeFileError, open_folder, reason_of, xdg_folder
from gputop.model.machine.signals import Verdict, signal_name
from gputop.model.machine.text import printable
from gputop.variables import login_uid

TIMEOUT = 1.0
"""Seconds after which a line is reported as not in the log."""
_TRIES = 100
"""Times to open the log: other writers may move it in between."""
_MOST_BYTES = 8 << 20
_NO_LOG = "not in the audit log: nothing is written on a host where gputop is not installed"


def audit_path() -> Path:
    """Return $XDG_STATE_HOME/gputop/signals.jsonl, below ~/.local/state if that is not set."""
    return Path(xdg_folder("XDG_STATE_HOME", "~/.local/state"), "gputop", "signals.jsonl")


class Audit:
    """Appends to the log unless `logs` is false. For one thread."""

    def __init__(self, logs: bool = True) -> None:
        self._logs = logs
        self._notes: deque[tuple[datetime, Verdict]] = deque()
        """What is not written yet: the call takes it away."""
        self._call: Call[str] | None = None

    def note(self, verdicts: Iterable[Verdict]) -> str:
        """Write a line for each verdict, all at once. Return why they are not in the log, after
        `TIMEOUT` at most; empty if they are.

        While a call hangs they wait for it, and the caller does not."""
        self._notes += ((datetime.now(timezone.utc), verdict) for verdict in verdicts)
        timeout = 0.0
        if self._call is None or not self._call.is_running:
            try:
                self._call, timeout = Call(self._write), TIMEOUT
            except RuntimeError as error:  # no room for a thread
                return f"not in the audit log: {error}"
        if not self._call.wait(timeout):
            return f"not in the audit log yet: no answer for {TIMEOUT:g} s"
        return self.note(()) if self._notes else self._call.result()

    # In the call

    def _write(self) -> str:
        trouble = ""
        while self._notes:
            notes = [self._notes.popleft() for _ in range(len(self._notes))]
            trouble = self._append(b"".join(self._line(*note) for note in notes)) or trouble
        return trouble

    def _append(self, lines: bytes) -> str:
        """Write lines to the log; return why that failed, or an empty text."""
        if not self._logs:
            return _NO_LOG
        path = audit_path()
        try:
            with (
                open_folder(str(path.parent.parent), make=True) as state,
                state.below(path.parent.name, make=True) as folder,
            ):
                append(folder, path.name, lines, _MOST_BYTES)
        except UnsafeFileError as error:
            return printable(f"not in the audit log: {error}", 300)
        except OSError as error:
            return printable(f"not in the audit log: {path}: {reason_of(error)}", 300)
        return ""

    def _line(self, at: datetime, verdict: Verdict) -> bytes:
        fields = {
            "time": at.isoformat(timespec="milliseconds"),
            **self._sender,
            "pid": verdict.process.pid,
            "start_ticks": verdict.process.start_ticks,
            "start_time": verdict.start_time,
            "command": verdict.command,
            "user": verdict.user,
            "signal": signal_name(verdict.signal),
            "verdict": "sent" if verdict.outcome == "waiting" else verdict.outcome,
            "seconds": verdict.seconds,
        }
        return msgspec.json.encode(fields) + b"\n"

    @cached_property
    def _sender(self) -> dict[str, object]:
        """The uid of gputop, the login behind it (through sudo too), and the ssh client."""
        client = os.environ.get("SSH_CONNECTION", "").split()[:1]
        return {
            "uid": os.getuid(),
            "login": _login(),
            "client": printable(client[0], 64) if client else None,
        }


def _login() -> str:
    login = login_uid()
    uid = os.getuid() if login is None else login
    try:
        return printable(pwd.getpwuid(uid).pw_name, 64)
    except KeyError:
        return str(uid)


def append(folder: Folder, name: str, data: bytes, most: int) -> None:
    """Add whole lines; a log that would grow beyond `most` bytes is renamed NAME.1 first.

    OSError: then nothing was added. UnsafeFileError unless the log is a regular file of ours alone.
    """
    folder.check_ours()
    if not any(_append(folder, name, data, most) for _ in range(_TRIES)):
        raise TimeoutError(errno.ETIMEDOUT, "other writers keep moving it")


def _append(folder: Folder, name: str, data: bytes, most: int) -> bool:
    """Try to add lines, once no other writer holds it; False if one moved it: then open it anew."""
    try:
        descriptor = folder.open_file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    except (FileExistsError, FileNotFoundError):  # made or moved away meanwhile
        return False
    try:
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # for as long as it takes: `note` does not wait
        about, now = os.fstat(descriptor), folder.find(name)
        if now is None or now.st_ino != about.st_ino:
            return False
        _check_alone(f"{folder.path}/{name}", about)
        if about.st_size and about.st_size + len(data) > most:
            with suppress(OSError):  # if that fails it keeps growing: no line may be lost
                folder.rename(name, f"{name}.1")
                return False
        _add(descriptor, about.st_size, data)
        return True
    finally:
        os.close(descriptor)


def _check_alone(path: str, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise UnsafeFileError(path, f"belongs to user {about.st_uid}")
    if about.st_nlink > 1:
        raise UnsafeFileError(path, "has another name: a hard link")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeFileError(path, "is writable by others: chmod go-w it")


def _add(descriptor: int, size: int, data: bytes) -> None:
    """Add all of `data` or nothing; after a line that was cut, begin a new one."""
    cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    data = b"\n" + data if cut else data
    if os.write(descriptor, data) < len(data):
        os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
