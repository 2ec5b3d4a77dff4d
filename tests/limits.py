"""A call in a process of its own that may use only so much memory and CPU time."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from tests.conftest import in_child

MIB = 1 << 20


def trouble_within(run: Callable[[], object], memory: int = 256 * MIB, seconds: int = 20) -> str:
    """What a call raises that may take `memory` bytes and `seconds` of CPU time more than is used
    now; empty if nothing. A process that takes longer is ended, which raises, too."""

    def limited() -> None:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + memory,) * 2)
        cpu = resource.getrusage(resource.RUSAGE_SELF)
        whole = int(cpu.ru_utime + cpu.ru_stime) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole))
        run()
        raise UserWarning  # a process that is ended says nothing

    words = in_child(limited, os.getuid())
    if words == "UserWarning: ":
        return ""
    return words or f"took more than {seconds} s of CPU time"
