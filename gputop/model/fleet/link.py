"""How a machine is reached, at one instant."""

from __future__ import annotations

from typing import Literal, NamedTuple

LinkState = Literal["waiting", "connecting", "login", "connected", "ended"]
"""
waiting     its turn to connect has not come: a crowd would be refused
connecting  ssh is on its way, or the agent there is starting
login       it wants a password or a second factor, which only a person can give
connected   frames come, or should
ended       the connection broke, or never came about; it is tried again
"""
LinkKind = Literal["installed", "carried", "nvidia-smi", "prometheus"]
"""Where frames come from: the gputop installed there, an agent carried there, nvidia-smi and /proc
there, or a Prometheus server, in place of anything on the machine."""


class HostLink(NamedTuple):
    """The connection to a machine; any thread may read it."""

    state: LinkState = "waiting"
    kind: LinkKind | None = None
    words: str = ""
    """Why it is in this state, harmless to print."""
    round_trip: float | None = None
    """Seconds."""
    age: float | None = None
    """Seconds since the last frame arrived; before the first one, since the last line."""
