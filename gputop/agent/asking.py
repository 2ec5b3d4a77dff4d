"""Other programs that are asked, and that may not answer."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress


def answer_of(command: Sequence[str], seconds: float) -> str | None:
    """What it writes in time; None if it fails. What it started ends with it."""
    try:
        asked = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    with asked:
        try:
            output, _ = asked.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(asked.pid, signal.SIGKILL)
            return None
    return output.decode("utf-8", "replace") if asked.returncode == 0 else None
