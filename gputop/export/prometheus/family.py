"""Metric families that are being filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from gputop.model.machine.text import printable
from gputop.model.metrics.metric import Metric

_MAX_LABEL_CHARS = 128
"""Characters of a label's value."""


class Families(Collector):
    """Families in the order in which they began, for prometheus_client to write."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._labels: set[tuple[str, frozenset[tuple[str, str]]]] = set()

    def add(
        self, name: str, help_: str, value: float | None, kind: str = "", /, **labels: object
    ) -> None:
        """Add a sample unless its value is None. A label that is None or empty is left out.

        kind: a type of prometheus_client; by default names that end in `_total` are counters, all
        others gauges. Of two samples with the same labels only the first is kept, because
        Prometheus refuses a page with both.
        """
        if value is None:
            return
        words = {key: printable(str(text), _MAX_LABEL_CHARS)
                 for key, text in labels.items() if text not in (None, "")}  # fmt: skip
        identity = (name, frozenset(words.items()))
        if identity in self._labels:
            return
        self._labels.add(identity)
        if name not in self._families:
            kind = kind or ("counter" if name.endswith("_total") else "gauge")
            # prometheus_client appends `_total` to the name of a counter by itself.
            self._families[name] = Family(name.removesuffix("_total"), help_, kind)
        self._families[name].add_sample(name, words, float(value))

    def add_metric(
        self, metric: Metric[Any], subject: object, name: str = "", /, **labels: object
    ) -> None:
        """Add the value of a metric of the registry, under `name` or the metric's own name."""
        help_ = f"{metric.label} on the screen: {metric.help}"
        self.add(name or metric.prometheus or "", help_, metric.read(subject), **labels)

    def collect(self) -> Iterator[Family]:
        """See prometheus_client's Collector."""
        return iter(self._families.values())
