"""What a command costs: `python -m bench.oneshot COMMAND...` runs it and prints a line of JSON.

It is a separate process, which adopts whatever the command leaves running. So the rusage of its
children is that of all processes of the command.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36
_LIMIT = 60


def cost(command: list[str], env: dict[str, str]) -> dict[str, float] | None:
    """Return wall and CPU seconds and bytes of output of a command; None if it fails."""
    asked = [sys.executable, "-m", "bench.oneshot", *command]
    done = subprocess.run(asked, env=env, capture_output=True, timeout=2 * _LIMIT, check=False)
    told: dict[str, float] = json.loads(done.stdout) if done.returncode == 0 else {}
    return told if told and told["status"] == 0 else None


def main() -> None:
    """Run the command given as arguments, and print its costs."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    begun = time.monotonic()
    try:
        done = subprocess.run(sys.argv[1:], capture_output=True, timeout=_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(1)
    wall = time.monotonic() - begun
    with suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {
        "wall_s": wall,
        "cpu_s": used.ru_utime + used.ru_stime,
        "bytes": len(done.stdout),
        "status": done.returncode,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
