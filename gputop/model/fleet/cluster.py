"""Thousands of machines in a few numbers, as a Prometheus server sums them up."""

from __future__ import annotations

from typing import Literal, NamedTuple

NodeOrder = Literal["worst", "free", "busy"]
NODE_ORDERS: dict[NodeOrder, str] = {
    "worst": "what needs attention first",
    "free": "most free GPUs first",
    "busy": "busiest first",
}
"""In which order nodes stand."""
FIRST_COUNT, MOST_COUNT = 100, 1000
"""Nodes that are asked for at once, at first and at most."""
HOUR = 3600.0
"""Seconds of the past that are kept."""
Quantiles = tuple[float, float, float]
"""Utilization of the GPUs, 0 to 1: of 10, 50 and 90 per cent of them it is below."""


class ModelCount(NamedTuple):
    """The GPUs of one model."""

    model: str
    gpus: int
    free: int | None
    """None where that is not known."""


class ClusterNode(NamedTuple):
    """A machine of the cluster."""

    host: str
    """As its series name it: the target of the scrape, or a host name."""
    up: bool
    """False: its exporter does not answer, and nothing is known of its GPUs."""
    gpus: int | None = None
    free: int | None = None
    utilization: float | None = None
    """The mean of its GPUs, 0 to 1."""
    memory_used: float | None = None
    """Bytes, of all its GPUs, as the next."""
    memory_total: float | None = None
    users: tuple[str, ...] = ()
    """Who computes there, by name; also empty where the exporter tells of none."""
    level: Literal["alarm", "notice"] | None = None
    """Of the worst finding."""
    age: float | None = None
    """Seconds since its GPUs were read."""


class Cluster(NamedTuple):
    """All machines that a Prometheus server knows, at one instant."""

    exporter: str
    """Whose series these are."""
    time: float
    """Seconds since the epoch, by the server's clock."""
    gpus: int
    hosts: int
    """Those whose exporter answers."""
    down: int | None
    """Those whose exporter does not; None where the server does not scrape them itself."""
    free: int | None
    users: int | None
    """None where the exporter does not tell, as for the next."""
    alarms: int | None
    """Hosts with an alarm."""
    quantiles: Quantiles | None
    models: tuple[ModelCount, ...]
    """Those with most GPUs first."""
    nodes: tuple[ClusterNode, ...]
    """The first ones in the order that was asked for."""


class NodePage(NamedTuple):
    """Which nodes are wanted."""

    order: NodeOrder = "worst"
    most: int = FIRST_COUNT
    matching: str = ""
    """A part of their names."""


class ClusterState(NamedTuple):
    """What is known at this moment."""

    cluster: Cluster | None = None
    """The last that came."""
    page: NodePage | None = None
    """Which nodes it has; None before there are any."""
    error: str = ""
    """Why nothing newer came, harmless to print."""
    past: tuple[tuple[float, Quantiles], ...] = ()
    """Utilization in the last hour, by the server's clock."""
    age: float | None = None
    """Seconds since the sums came."""
