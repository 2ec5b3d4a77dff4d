"""--prometheus without the screen: all machines that a server knows, once or every interval."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.output import complain
from gputop.sources.prometheus.client import PrometheusClient, headers_of
from gputop.sources.prometheus.frames import all_frames
from gputop.sources.prometheus.queries import find_site
from gputop.sources.prometheus.watch import INTERVAL, LEAST_INTERVAL


def clusters(options: Namespace) -> Iterator[tuple[list[Frame], dict[str, str]]]:
    """Yield a frame of each machine whose GPUs the server knows, in the order of their names, and
    why those of the others are not known, by their names; with --watch every interval. After it, or
    when that is new, it is written to standard error which machines are down. With --watch so is an
    error of the server, once, which has no name then; otherwise it is raised. UsageError,
    SourceError."""
    client = PrometheusClient(options.prometheus, headers_of(os.environ))
    interval = max(LEAST_INTERVAL, options.interval or INTERVAL)
    said: dict[str, str] = {}
    while True:
        due = time.monotonic() + interval
        try:
            queries = find_site(client)  # each time: an upgrade may change its exporters
            frames = list(all_frames(queries))
            down = {node.host: node.problem for node in queries.down}
        except SourceError as error:
            if not options.watch:
                raise
            frames, down = [], {**said, "": str(error)}
        yield frames, down
        for host, why in sorted(down.items() - said.items()):
            complain(f"{host}: {why}" if host else why)
        said = down
        if not options.watch:
            return
        time.sleep(max(0.0, due - time.monotonic()))
