"""Asks a server repeatedly, in a thread of its own that drawing never waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from gputop.errors import SourceError
from gputop.model.fleet.cluster import ClusterState, NodePage
from gputop.model.machine.text import printable
from gputop.sources.prometheus.client import PrometheusClient
from gputop.sources.prometheus.host import FallbackSource, PrometheusSource
from gputop.sources.prometheus.queries import ClusterQueries, find_site

INTERVAL = 10.0
"""Seconds between refreshes, unless another interval is wanted."""
LEAST_INTERVAL = 1.0


class ClusterWatch:
    """Keeps the newest state of a cluster; for any thread."""

    def __init__(
        self, url: str, headers: Mapping[str, str], interval: float = INTERVAL, ssh: bool = True
    ) -> None:
        """`ssh`: whether hosts may be opened over it. UsageError if `url` is none of a server."""
        self._ssh = ssh
        self.client = PrometheusClient(url, headers)
        self.interval = max(LEAST_INTERVAL, interval)
        self._page = NodePage()
        self._queries: ClusterQueries | None = None
        self._state = ClusterState()
        self._came: float | None = None
        self._due = 0.0
        self._woken, self._is_closed = threading.Event(), False

    @property
    def state(self) -> ClusterState:
        age = None if self._came is None else time.monotonic() - self._came
        return self._state._replace(age=age)

    def start(self) -> None:
        """Begin to ask, in a thread that nothing waits for at the end."""
        threading.Thread(target=self._run, name="prometheus", daemon=True).start()

    def show(self, page: NodePage) -> None:
        """Ask for other nodes now; the sums are asked for when it is time."""
        self._page = page
        self._woken.set()

    def refresh(self) -> None:
        """Ask for everything now."""
        self._due = 0.0
        self._woken.set()

    def set_interval(self, seconds: float) -> None:
        if self.interval == max(LEAST_INTERVAL, seconds):
            return
        self.interval = max(LEAST_INTERVAL, seconds)
        self._due = min(self._due, time.monotonic() + self.interval)
        self._woken.set()

    def close(self) -> None:
        """End, without waiting."""
        self._is_closed = True
        self._woken.set()

    def source_of(self, host: str, interval: float) -> FallbackSource:
        """Return the source of a machine: over ssh if that is allowed and succeeds, otherwise as
        the server knows it."""
        queries = self._queries
        assert queries is not None, "there are nodes"
        return FallbackSource(PrometheusSource(queries, host), interval, self._ssh)

    def _run(self) -> None:
        while not self._is_closed:
            self._woken.clear()
            self._ask()
            self._woken.wait(max(0.0, self._due - time.monotonic()))

    def _ask(self) -> None:
        """Update the state. No caller waits for this thread, so every error goes into the state."""
        try:
            self._update()
        except Exception as error:  # noqa: BLE001 - it is shown, and tried again
            is_told = isinstance(error, SourceError)
            why = str(error) if is_told else printable(f"{type(error).__name__}: {error}", 200)
            self._due = max(self._due, time.monotonic() + self.interval)
            self._state = self._state._replace(error=why)

    def _update(self) -> None:
        queries, page, cluster = self._queries, self._page, self._state.cluster
        if cluster is None or queries is None or time.monotonic() >= self._due:
            before = () if cluster is None else cluster.nodes
            self._due = time.monotonic() + self.interval
            queries = self._queries = find_site(self.client)  # an upgrade may change its exporters
            cluster = queries.sums()._replace(nodes=before)
            self._came = time.monotonic()
            self._state = self._state._replace(cluster=cluster, error="")
        nodes = queries.nodes(*page)
        self._state = self._state._replace(cluster=cluster._replace(nodes=nodes), page=page)
