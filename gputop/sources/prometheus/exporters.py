"""PromQL for each exporter of GPU metrics, with its own names.

Sources: dcgm-exporter's etc/default-counters.csv (its label `Hostname` became `hostname` in #655),
nvidia_gpu_exporter's METRICS.md, nvitop-exporter's exporter.py (prometheus_client appends units),
and gputop's own `export/prometheus/`.
"""

from __future__ import annotations

from typing import NamedTuple

_MIB = 1 << 20
_NOBODY = 1 << 30
"""Bytes in use below which a GPU counts as unused, if its exporter does not report free GPUs."""
_AT_REST = 0.05
"""The greatest utilization over `_REST` below which a GPU counts as at rest."""
_REST = "5m"


class Exporter(NamedTuple):
    """The names of one exporter. Expressions have `%s` for the selector of hosts. They give a value
    for each GPU, or several for one GPU (pods, MIG devices): the greatest counts."""

    name: str
    present: str
    """A metric with one series for each GPU."""
    host: str
    """The label of the machine; the next two are those of the GPU and its index."""
    uuid: str
    number: str | None
    model: str
    load: str
    """The metric of utilization."""
    full: int
    """Its value for a GPU that never rests: 1, or 100 for percentages."""
    memory_used: str
    """Bytes."""
    memory_total: str
    temperature: str
    power: str
    """Watts."""
    info: str | None = None
    """The metric with the label `model`, if not all metrics have it."""
    number_metric: str | None = None
    """The metric of the index, if no label has it."""
    free: str | None = None
    """1 or 0; None: a GPU counts as free with next to no memory in use and at rest."""
    findings: str | None = None
    """2 for an error, 1 for a warning, 0 or no value if all is well."""
    users: str | None = None
    """A series for each user on each GPU."""
    reading_age: str | None = None
    """Seconds from the reading of a GPU to its scrape."""

    @property
    def key(self) -> str:
        """The labels that identify a GPU."""
        return f"{self.host}, {self.uuid}"

    @property
    def utilization(self) -> str:
        """0 to 1; impossible values, such as 218322032 %, are left out."""
        return self._ratio(f"{self.load}{{%s}}")

    def of_gpus(self, expression: str, selector: str = "", *more: str) -> str:
        """Return an expression with one value a GPU; `more` labels are kept."""
        labels = ", ".join((self.key, *more))
        return f"max by ({labels}) ({expression.replace('%s', selector)})"

    def ages(self, selector: str) -> dict[str, str]:
        """Return expressions of the seconds since each series was scraped and, if the exporter
        reports it, of the seconds from its reading to that scrape."""
        ages = {"age": f"time() - timestamp({self.present}{{{selector}}})"}
        if self.reading_age is not None:
            ages["reading"] = self.reading_age.replace("%s", selector)
        return ages

    def free_gpus(self, selector: str = "") -> str:
        """Return an expression that is 1 for each free GPU and 0 for the others."""
        if self.free is not None:
            return self.of_gpus(self.free, selector)
        memory = self.of_gpus(f"({self.memory_used}) < bool {_NOBODY}", selector)
        busy = self._ratio(f"max_over_time({self.load}{{%s}}[{_REST}])")
        return f"{memory} * {self.of_gpus(f'({busy}) < bool {_AT_REST}', selector)}"

    def with_model(self, expression: str, selector: str = "") -> str:
        """Return an expression with a label for the model of each GPU, one at the most."""
        info = self.of_gpus(f"{self.info or self.present}{{%s}} ^ 0", selector, self.model)
        join = f"on ({self.key}) group_left ({self.model})"
        return f"({expression}) * {join} topk by ({self.key}) (1, {info})"

    def _ratio(self, expression: str) -> str:
        return f"({expression} >= 0 <= {self.full}) / {self.full}"


GPUTOP = Exporter(
    name="gputop",
    present="gputop_gpu_info",
    host="instance",
    uuid="uuid",
    number="gpu",
    model="model",
    load="gputop_gpu_utilization_ratio",
    full=1,
    memory_used="gputop_gpu_memory_used_bytes{%s}",
    memory_total="gputop_gpu_memory_total_bytes{%s}",
    temperature="gputop_gpu_temperature_celsius{%s}",
    power="gputop_gpu_power_watts{%s}",
    free="gputop_gpu_free{%s}",
    findings='2 * (gputop_gpu_findings{level="error",%s} > bool 0)'
    ' or (gputop_gpu_findings{level="warning",%s} > bool 0)',
    users="gputop_user_processes{%s}",
    reading_age="gputop_reading_age_seconds{%s}",
)
DCGM = Exporter(
    name="dcgm-exporter",
    present="DCGM_FI_DEV_GPU_UTIL",
    host="hostname",
    uuid="UUID",
    number="gpu",
    model="modelName",
    load="DCGM_FI_DEV_GPU_UTIL",
    full=100,
    memory_used=f"DCGM_FI_DEV_FB_USED{{%s}} * {_MIB}",
    memory_total=f"(DCGM_FI_DEV_FB_USED{{%s}} + DCGM_FI_DEV_FB_FREE{{%s}}) * {_MIB}",
    temperature="DCGM_FI_DEV_GPU_TEMP{%s}",
    power="DCGM_FI_DEV_POWER_USAGE{%s}",
    findings="2 * (DCGM_FI_DEV_XID_ERRORS{%s} > bool 0)",
)
NVIDIA_GPU_EXPORTER = Exporter(
    name="nvidia_gpu_exporter",
    present="nvidia_smi_utilization_gpu_ratio",
    host="instance",
    uuid="uuid",
    number=None,
    model="name",
    load="nvidia_smi_utilization_gpu_ratio",
    full=1,
    memory_used="nvidia_smi_memory_used_bytes{%s}",
    memory_total="nvidia_smi_memory_total_bytes{%s}",
    temperature="nvidia_smi_temperature_gpu{%s}",
    power="nvidia_smi_power_draw_watts{%s}",
    info="nvidia_smi_gpu_info",
    number_metric="nvidia_smi_index{%s}",
)
NVITOP = Exporter(
    name="nvitop-exporter",
    present="gpu_utilization_Percentage",
    host="hostname",
    uuid="uuid",
    number="index",
    model="devicename",
    load="gpu_utilization_Percentage",
    full=100,
    memory_used=f"gpu_memory_used_MiB{{%s}} * {_MIB}",
    memory_total=f"gpu_memory_total_MiB{{%s}} * {_MIB}",
    temperature="gpu_temperature_C{%s}",
    power="gpu_power_usage_W{%s}",
)
EXPORTERS = (GPUTOP, DCGM, NVIDIA_GPU_EXPORTER, NVITOP)
"""Exporters that report most come first."""
