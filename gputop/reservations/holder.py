"""Keeps the reservations of `gputop reserve`, which turns into this program by exec.

    python -I -S holder.py SECONDS LEADER DESCRIPTOR...

It ends after SECONDS, when process LEADER ends (0: none), or when all files behind the DESCRIPTORs
have been removed; it has inherited these with their locks. It imports nothing from gputop, because
it may run for days.
"""

import os
import select
import sys
import time

_EVERY = 2.0
"""Seconds between two checks of the files."""


def main(seconds: float, leader: int, descriptors: "list[int]") -> None:
    """Wait until the time, the leader or the last file is gone, whichever comes first."""
    end = _now() + seconds
    ready = select.poll()
    if leader:
        try:
            ready.register(os.pidfd_open(leader), select.POLLIN)
        except ProcessLookupError:
            return
        except OSError:
            pass  # before Linux 5.3: wait for the time and the files only
    while (left := end - _now()) > 0 and any(os.fstat(fd).st_nlink for fd in descriptors):
        if ready.poll(min(left, _EVERY) * 1000):
            return


def _now() -> float:
    """Return a monotonic time in seconds that includes the machine's sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), [int(word) for word in sys.argv[3:]])
