"""--prometheus without the screen: all machines that a server knows, once or every interval."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import NamedTuple

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.output import complain
from gputop.sources.prometheus.client import PrometheusClient, headers_of
from gputop.sources.prometheus.frames import all_frames
from gputop.sources.prometheus.queries import find_site
from gputop.sources.prometheus.watch import INTERVAL, LEAST_INTERVAL


class ClusterFrames(NamedTuple):
    """What a server knows at one instant."""

    frames: list[Frame]
    """One of each machine whose GPUs are known, in the order of their names."""
    down: dict[str, str]
    """Why those of the others are not, by their names."""


def clusters(options: Namespace) -> Iterator[ClusterFrames]:
    """Yield what the server knows, with --watch every interval. After it, or when that is new, it
    is written to standard error which machines are down. With --watch so is an error of the server,
    once, and there are no frames then; otherwise it is raised. UsageError, SourceError."""
    client = PrometheusClient(options.prometheus, headers_of(os.environ))
    interval = max(LEAST_INTERVAL, options.interval or INTERVAL)
    said: dict[str, str] = {}
    while True:
        due = time.monotonic() + interval
        try:
            cluster = _cluster(client)
        except SourceError as error:
            if not options.watch:
                raise
            cluster = ClusterFrames([], {**said, "": str(error)})
        yield cluster
        for host, why in sorted(cluster.down.items() - said.items()):
            complain(f"{host}: {why}" if host else why)
        said = cluster.down
        if not options.watch:
            return
        time.sleep(max(0.0, due - time.monotonic()))


def _cluster(client: PrometheusClient) -> ClusterFrames:
    queries = find_site(client)  # each time: an upgrade may change its exporters
    return ClusterFrames(
        list(all_frames(queries)), {node.host: node.problem for node in queries.down}
    )
