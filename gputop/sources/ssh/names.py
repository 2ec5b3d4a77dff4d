"""The names of other machines, as they are given."""

from __future__ import annotations

from typing import NamedTuple


class HostName(NamedTuple):
    """A machine to reach by ssh."""

    asked: str
    """As it was given: `bob@node3:2222`."""
    target: str
    """What ssh gets: `bob@node3`."""
    port: int | None
    """None: what ssh's configuration says."""
