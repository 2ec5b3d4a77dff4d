"""An invented fleet: a machine's name alone decides what it is like.

The number at the end of a name picks one of DEMO_MACHINES. A machine with `down`, `login` or `hang`
in its name cannot be reached, wants a login, or never answers.
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

from gputop.errors import LoginError, SourceError
from gputop.sources.demo.jobs import JOBS, DemoJob


class DemoMachine(NamedTuple):
    """How an invented machine differs from the others."""

    gpus: int = 8
    users: frozenset[str] | None = None
    """The users with jobs there; None: all users."""
    hung: int | None = None
    """The GPU that does not answer."""
    sick: int | None = None
    """The GPU that needs a reset."""

    @property
    def jobs(self) -> tuple[DemoJob, ...]:
        return tuple(
            job
            for job in JOBS
            if (self.users is None or job.user in self.users) and max(job.gpus) < self.gpus
        )


DEMO_MACHINES = (
    DemoMachine(),
    DemoMachine(users=frozenset({"alice", "carol"})),
    DemoMachine(gpus=4, users=frozenset({"alice", "bob", "carol"})),
    DemoMachine(users=frozenset({"serving", "dave"}), hung=6),
    DemoMachine(users=frozenset({"bob", "erin"}), sick=0),
    DemoMachine(users=frozenset()),
)


def demo_machine(host: str | None) -> DemoMachine:
    """Return the machine of that name; None: the one outside of a fleet."""
    if host is None:
        return DEMO_MACHINES[0]
    digits = re.search(r"[0-9]{1,9}\Z", host)
    number = int(digits[0]) if digits else zlib.crc32(host.encode())
    return DEMO_MACHINES[number % len(DEMO_MACHINES)]


def check_reach(host: str) -> None:
    """Raise what ssh says of a machine that is down or wants a login. SourceError, LoginError."""
    if "login" in host:
        raise LoginError(f"{host}: Permission denied (publickey,password)")
    if "down" in host:
        raise SourceError(f"ssh: connect to host {host} port 22: Connection refused")


def is_silent(host: str) -> bool:
    """Return whether a machine takes a connection but never answers."""
    return "hang" in host
