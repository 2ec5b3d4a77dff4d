"""What is shown of a GPU or a process, declared once.

A column, a line of a detail page and a graph read the two registries: `model.metrics.gpu` and
`model.metrics.process`. `read` gives the value in the model's units or None; `show` makes text of
a value that is not None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from gputop.model.machine.sections import Unit
from gputop.model.machine.text import MISSING

S = TypeVar("S")


class Metric(msgspec.Struct, Generic[S], frozen=True):
    """One value of a Gpu or a ProcessRow (S), as a column and a line of a page show it."""

    id: str
    """The name of its JSON field if it has one, as jq writes it: `pcie.tx`."""
    label: str
    """The heading of its column."""
    unit: str
    help: str
    read: Callable[[S], Any]
    show: Callable[[Any], str] = str
    width: int = 6
    """Cells of its column in the table of processes."""
    left: bool = False
    """Text begins at the left, numbers end at the right."""
    prometheus: str | None = None
    """Its name for Prometheus; None if it is no number."""

    def text(self, subject: S) -> str:
        """Return the text to show; `-` for an unknown value."""
        value = self.read(subject)
        return MISSING if value is None else self.show(value)


def prometheus_name(subject: str, id_: str, unit: Unit) -> str | None:
    """Return the name of a metric for Prometheus: `gputop_gpu_pcie_tx_bytes_per_second`; None if it
    is no number. It is made from the id, so that there is only one name to learn."""
    if unit.suffix is None:
        return None
    name = id_.replace("_more.", ".").replace(".", "_")  # power_more is what power has no room for
    return f"gputop_{subject}_{name}{unit.suffix}"
