"""Keeps the reservations of `gputop reserve`: what that turns into, in the same process.

    python -I -S holder.py SECONDS LEADER DESCRIPTOR...

It ends when the time is over, when process LEADER has (0: none), or when each of the files behind
the descriptors, which it has inherited with their locks, has been removed. It imports nothing of
gputop, for it may be there for days.
"""

import os
import select
import sys
import time

_EVERY = 2.0
"""Seconds between two looks at the files."""


def main(seconds: float, leader: int, descriptors: "list[int]") -> None:
    """Wait for whichever comes first."""
    end = _now() + seconds
    ready = select.poll()
    if leader:
        try:
            ready.register(os.pidfd_open(leader), select.POLLIN)
        except ProcessLookupError:
            return
        except OSError:
            pass  # a kernel before 5.3 does not tell: the time is left
    while (left := end - _now()) > 0 and any(os.fstat(fd).st_nlink for fd in descriptors):
        if ready.poll(min(left, _EVERY) * 1000):
            return


def _now() -> float:
    """Seconds, those of a machine that sleeps as well."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), [int(word) for word in sys.argv[3:]])
