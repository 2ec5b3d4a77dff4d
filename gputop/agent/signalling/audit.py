"""A line of JSON for what every signal came to: who sent what to whom, and when."""

from __future__ import annotations

import os
import pwd
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from gputop.model.signals import Verdict, signal_name
from gputop.model.text import printable

_NO_LOGIN = 2**32 - 1


def audit_path() -> Path:
    """$XDG_STATE_HOME/gputop/signals.jsonl, ~/.local/state unless that is set."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return base / "gputop" / "signals.jsonl"


class Audit:
    """Appends to the log."""

    def __init__(self) -> None:
        self._who: dict[str, object] | None = None

    def write(self, verdict: Verdict) -> str | None:
        """Note a verdict; None, or in words why that could not be done."""
        line = msgspec.json.encode(
            {
                "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                **self._sender(),
                "pid": verdict.pid,
                "start_time": verdict.start_time,
                "command": verdict.command,
                "user": verdict.user,
                "signal": signal_name(verdict.signal),
                "verdict": "sent" if verdict.outcome == "waiting" else verdict.outcome,
                "seconds": verdict.seconds,
            }
        )
        try:
            _append(audit_path(), line + b"\n")
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
            return f"not in the audit log: {getattr(error, 'strerror', None) or error}"
        return None

    def _sender(self) -> dict[str, object]:
        """Who has logged in, behind sudo as well, and from where."""
        if self._who is None:
            client = os.environ.get("SSH_CONNECTION", "").split()[:1]
            self._who = {
                "uid": os.getuid(),
                "login": _login(),
                "client": printable(client[0], 64) if client else None,
            }
        return self._who


def _login() -> str:
    try:
        uid = int(Path("/proc/self/loginuid").read_text())
    except (OSError, ValueError):
        uid = _NO_LOGIN
    uid = os.getuid() if uid == _NO_LOGIN else uid
    try:
        return printable(pwd.getpwuid(uid).pw_name, 64)
    except KeyError:
        return str(uid)


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
