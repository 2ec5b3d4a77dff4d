"""The registry of what is shown of a GPU, made from the annotations of `Gpu` and its sections.

See `model.metrics.metric`; to add a metric, annotate its field (`model.machine.sections`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Struct

from gputop.model.health.throttle import word
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import percent
from gputop.model.metrics.metric import Metric, prometheus_name

_HEADINGS = {
    "Utilization": "utilization memory_utilization engines idle_for",
    "Memory": "memory_total memory_used memory_free memory_reserved memory_unaccounted bar1",
    "Activity": "activity.doing activity",
    "Clocks": "sm_clock sm_clock_max memory_clock clocks.memory_max clocks pstate throttle",
    "Power": "power power_more.average power_more.instant power_limit power_more",
    "Temperature": "temperature thermal fan",
    "PCIe": "pcie",
    "NVLink": "nvlink",
    "Errors": "ecc.enabled ecc.pending ecc_uncorrected ecc.corrected ecc.uncorrected_dram"
    " ecc.uncorrected_sram ecc.corrected_dram ecc.corrected_sram ecc.aggregate_uncorrected ecc"
    " health",
    "State": "persistence_mode accounting_mode display_active compute_mode mig_mode mig"
    " listed state stale_for error",
    "Identity": "index name uuid pci_bus_id minor identity cores sm",
}
"""The headings of the detail page, and the metrics under each; a section's name stands for its
metrics that were not named before."""
_SHOWN: dict[str, Callable[[Any], str]] = {
    "throttle.reasons": lambda names: ", ".join(map(word, names)) or "none",
    "throttle.shares": lambda shares: (
        ", ".join(f"{word(name)} {percent(share)}%" for name, share in shares.items() if share)
        or "none"
    ),
}
"""How to show values for which the driver and gputop have different words."""


def _metrics(kind: type, section: str = "") -> Iterator[Metric[Gpu]]:
    """Return the metrics that a Struct declares, each with its id; then those of its sections."""
    for name, declared in get_type_hints(kind, include_extras=True).items():
        if get_origin(declared) is Annotated:
            _, unit, label, help_, *_ = get_args(declared)
            id_ = f"{section}.{name}" if section else name
            read, name_ = _reader(section, name), prometheus_name("gpu", id_, unit)
            show = _SHOWN.get(id_, unit.show)
            yield Metric(id_, label, unit.name, help_, read, show, prometheus=name_)
        elif not section and get_args(declared) and issubclass(get_args(declared)[0], Struct):
            yield from _metrics(get_args(declared)[0], name)


def _reader(section: str, name: str) -> Callable[[Gpu], Any]:
    if not section:
        return attrgetter(name)
    if name == "shares":  # empty until the counters have been read twice, or if there are none
        return lambda gpu: getattr(getattr(gpu, section), name, None) or None
    return lambda gpu: getattr(getattr(gpu, section), name, None)


def _under(names: str, left: dict[str, Metric[Gpu]]) -> tuple[Metric[Gpu], ...]:
    """Take the metrics of a heading out of those that are left."""
    ids = [id_ for name in names.split() for id_ in left if name in (id_, id_.partition(".")[0])]
    return tuple(left.pop(id_) for id_ in dict.fromkeys(ids))


_declared = {metric.id: metric for metric in _metrics(Gpu)}

SECTIONS: dict[str, tuple[Metric[Gpu], ...]] = {
    heading: _under(names, _declared) for heading, names in _HEADINGS.items()
}
"""By the headings of the detail page, in its order."""

GPU: dict[str, Metric[Gpu]] = {
    metric.id: metric for metrics in SECTIONS.values() for metric in metrics
}
"""Every metric by its id."""
