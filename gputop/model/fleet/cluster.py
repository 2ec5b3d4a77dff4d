"""Thousands of machines in a few numbers, as a Prometheus server sums them up."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gputop.model.machine.finding import Level

NodeOrder = Literal["worst", "free", "busy"]
NODE_ORDERS: dict[NodeOrder, str] = {
    "worst": "sorted by attention",
    "free": "sorted by free GPUs",
    "busy": "sorted by load",
}
"""The orders of nodes, in words."""
FIRST_COUNT, MOST_COUNT = 100, 1000
"""How many nodes are asked for at once: at first, and at most."""
Quantiles = tuple[float, float, float]
"""The 10th, 50th and 90th percentiles of the GPUs' utilization, 0 to 1."""


class ModelCount(NamedTuple):
    """The GPUs of one model."""

    model: str
    gpus: int
    free: int | None
    """None if it is not known."""


class ClusterNode(NamedTuple):
    """A machine of the cluster."""

    host: str
    """Its name in the series: the target of the scrape, or a host name."""
    up: bool
    """False: its exporter does not answer, and nothing is known of its GPUs."""
    gpus: int | None = None
    free: int | None = None
    utilization: float | None = None
    """The mean of its GPUs, 0 to 1."""
    memory_used: float | None = None
    """Bytes on all its GPUs; `memory_total` likewise."""
    memory_total: float | None = None
    users: tuple[str, ...] = ()
    """Who computes there, on most GPUs first; also empty if the exporter reports no users."""
    level: Level | None = None
    """The level of the worst finding."""
    age: float | None = None
    """Seconds since its GPUs were read."""


class Cluster(NamedTuple):
    """All machines that a Prometheus server knows, at one instant."""

    exporter: str
    """The exporter that the series come from."""
    gpus: int
    hosts: int
    """Hosts whose exporter answers."""
    down: int | None
    """Hosts whose exporter does not; None if the server does not scrape them itself."""
    free: int | None
    users: int | None
    """None if the exporter does not report it; `alarms` likewise."""
    alarms: int | None
    """Hosts with a finding of the level `error`."""
    quantiles: Quantiles | None
    models: tuple[ModelCount, ...]
    """The models with most GPUs first."""
    nodes: tuple[ClusterNode, ...]
    """The first ones in the order that was asked for."""


class NodePage(NamedTuple):
    """Which nodes are wanted."""

    order: NodeOrder = "worst"
    most: int = FIRST_COUNT
    matching: str = ""
    """A part that their names must have."""


class ClusterState(NamedTuple):
    """What is known at this moment."""

    cluster: Cluster | None = None
    """The newest that arrived."""
    page: NodePage | None = None
    """Which nodes it has; None before there are any."""
    error: str = ""
    """Why nothing newer came, harmless to print."""
    age: float | None = None
    """Seconds since `cluster` arrived."""
