"""PromQL for each exporter of GPU metrics, with its own names.

Sources: dcgm-exporter's etc/default-counters.csv (its label `Hostname` became `hostname` in #655),
nvidia_gpu_exporter's METRICS.md (its UUIDs have no GPU-), nvitop-exporter's exporter.py
(prometheus_client appends units), and gputop's own `export/prometheus/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

_MIB = 1 << 20
_NOBODY = 1 << 30
"""Bytes in use below which a GPU counts as unused, if its exporter does not report free GPUs."""
_AT_REST = 0.05
"""The greatest utilization over `_REST` below which a GPU counts as at rest."""
_REST = "5m"
NONE = "vector(0) != 0"
"""An expression without series."""
UP, PROBLEM = "gputop_up", "gputop_problem"
"""gputop's metrics of a machine whose driver cannot be read: 0, and its label `kind` says why."""


class Exporter(NamedTuple):
    """The names of one exporter. Expressions have `%s` for a selector. They give a value for each
    GPU, or several for one GPU (pods, MIG devices): the greatest counts.

    What its methods return has the labels `host` and `uuid`, whatever the exporter calls them."""

    name: str
    present: str
    """A metric with one series for each GPU."""
    hosts: tuple[tuple[str, str], ...]
    """The label of the machine and a selector of the series whose machine it names."""
    uuid: str
    number: str | None
    """The label of the index."""
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
    uuid_prefix: str = ""
    """What it leaves out at the beginning of a UUID."""
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
    watched: str | None = None
    """A series for each GPU whose findings are reported."""
    codes: str | None = None
    """A series for each finding of a GPU, with the labels `level` and `code`; without them its
    value is the number of an XID."""
    xids: str | None = None
    """When each XID came, in seconds since the epoch, with a label `xid`."""
    processes: str | None = None
    """A metric of each GPU whose processes are all known."""
    jobs: str | None = None
    """A series for each job on each GPU, with the labels `kind`, `id` and `user`."""
    reason: str | None = None
    """Why a GPU is not free, or why that is not known, in a label `reason`."""
    answer_age: str | None = None
    """Seconds since a GPU last answered."""
    host_info: str | None = None
    """A series for each machine, with the labels `driver_version` and `cuda_version`."""
    reading_age: str | None = None
    """Seconds from the reading of a GPU to its scrape."""

    @property
    def utilization(self) -> str:
        """0 to 1; impossible values, such as 218322032 %, are left out."""
        return self._ratio(f"{self.load}{{%s}}")

    def of_gpus(self, expression: str, hosts: str = "", *more: str, matching: str = "") -> str:
        """Return an expression with one value a GPU. `hosts`: a pattern of the machines, all if it
        is empty; `more`: labels that are kept; `matching`: another selector."""
        parts = []
        for label, where in self.hosts:
            chosen = ",".join(filter(None, (selector(label, hosts), where, matching)))
            labels = ", ".join((label, self.uuid, *more))
            value = f"max by ({labels}) ({expression.replace('%s', chosen)})"
            parts.append(renamed(value, "host", label))
        value = " or ".join(parts)
        if len(parts) > 1:
            value = f"max by ({', '.join(('host', self.uuid, *more))}) ({value})"
        return self._with_uuid(value)

    def gpus(self, hosts: str = "") -> str:
        """Return an expression with a value for each GPU that is known now."""
        return self.of_gpus(f"{self.present}{{%s}}", hosts)

    def facts(self, hosts: str = "", model: str = "") -> str:
        """Return an expression that is 1 for each GPU, with the labels `model` and `gpu` (its
        index). `model`: a pattern."""
        info, number = f"{self.info or self.present}{{%s}} ^ 0", self.number
        labels = (self.model,) if number is None else (self.model, number)
        of_model = selector(self.model, model)
        value = renamed(self.of_gpus(info, hosts, *labels, matching=of_model), "model", self.model)
        return value if number is None else renamed(value, "gpu", number)

    def free_gpus(self, hosts: str = "") -> str:
        """Return an expression that is 1 for each free GPU and 0 for the others."""
        if self.free is not None:
            return self.of_gpus(self.free, hosts)
        memory = self.of_gpus(f"({self.memory_used}) < bool {_NOBODY}", hosts)
        busy = self._ratio(f"max_over_time({self.load}{{%s}}[{_REST}])")
        return f"{memory} * {self.of_gpus(f'({busy}) < bool {_AT_REST}', hosts)}"

    def free_by_model(self, model: str = "") -> str:
        """Return `free_gpus` with a label `model` for each GPU, one at the most."""
        info = f"topk by (host, uuid) (1, {self.facts(model=model)})"
        return f"({self.free_gpus()}) * on (host, uuid) group_left (model) {info}"

    def _with_uuid(self, expression: str) -> str:
        if not self.uuid_prefix:
            return renamed(expression, "uuid", self.uuid)
        pattern = f'"{self.uuid}", "(?:{self.uuid_prefix})?(.+)"'
        return f'label_replace({expression}, "uuid", "{self.uuid_prefix}$1", {pattern})'

    def _ratio(self, expression: str) -> str:
        return f"({expression} >= 0 <= {self.full}) / {self.full}"


class Site(NamedTuple):
    """The exporters of a site, the one that reports most first: a machine is taken from the first
    that has one of its GPUs."""

    exporters: tuple[Exporter, ...]

    @property
    def name(self) -> str:
        return ", ".join(exporter.name for exporter in self.exporters)

    def of(self, value: Callable[[Exporter], str | None]) -> str:
        """Return the expression of a value that is made for each exporter; empty if all are."""
        values = ((number, value(exporter)) for number, exporter in enumerate(self.exporters))
        return " or ".join(f"(({text}){self._but(number)})" for number, text in values if text)

    def each(self, value: Callable[[Exporter], str | None], hosts: str = "", *more: str) -> str:
        """Return the expression of a value of each GPU of these machines, with `more` labels; one
        without series if no exporter has it."""

        def of_gpus(exporter: Exporter) -> str | None:
            text = value(exporter)
            return text and exporter.of_gpus(text, hosts, *more)

        return self.of(of_gpus) or NONE

    def of_gpus(self, but: Exporter | None = None) -> str:
        """Return an expression with a value for each GPU that is known now, also if several
        exporters report it, but to `but`."""
        return " or ".join(exporter.gpus() for exporter in self.exporters if exporter is not but)

    def age(self, hosts: str) -> str:
        """Return the expression of the seconds since the values of each machine were read; since
        they were scraped if its exporter does not report that."""
        scraped = self.of(lambda of: of.of_gpus(f"time() - timestamp({of.present}{{%s}})", hosts))
        read = self.of(lambda of: of.reading_age and of.of_gpus(of.reading_age, hosts)) or NONE
        since = f"max by (host) ({scraped})"
        return f"({since} + max by (host) ({read}) or {since})"

    def _but(self, number: int) -> str:
        """Return what leaves out the machines that earlier exporters report. They may have another
        name there, but have the same GPUs."""
        if not number:
            return ""
        gpus, earlier = _identified(self.exporters[number]), self.exporters[:number]
        reported = " or ".join(map(_identified, earlier))
        return f" unless on (host) ({gpus} and on (uuid) ({reported}))"


def _identified(exporter: Exporter) -> str:
    """Return an expression of the GPUs whose UUIDs are known."""
    return exporter.of_gpus(f"{exporter.present}{{%s}}", matching=f'{exporter.uuid}!=""')


def selector(label: str, pattern: str) -> str:
    """Return a selector of series by a pattern (RE2) of a whole label; empty if that is."""
    return f"{label}=~{json.dumps(pattern, ensure_ascii=False)}" if pattern else ""


def renamed(expression: str, name: str, label: str) -> str:
    """Return an expression whose series have the text of one label under another name as well."""
    if name == label:
        return expression
    return f'label_replace({expression}, "{name}", "$1", "{label}", "(?s)(.+)")'


GPUTOP = Exporter(
    name="gputop",
    present="gputop_gpu_info",
    hosts=(("instance", ""),),
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
    watched="gputop_gpu_info{%s}",
    codes="gputop_gpu_findings{%s} > 0",
    xids="gputop_gpu_xid_timestamp_seconds{%s}",
    processes="gputop_gpu_processes{%s}",
    jobs="gputop_job_processes{%s}",
    reason="gputop_gpu_not_free{%s}",
    answer_age="gputop_gpu_reading_age_seconds{%s}",
    host_info="gputop_host_info{%s}",
    reading_age="gputop_reading_age_seconds{%s}",
)
DCGM = Exporter(
    name="dcgm-exporter",
    present="DCGM_FI_DEV_GPU_UTIL",
    hosts=(
        ("hostname", 'hostname!=""'),
        ("Hostname", 'Hostname!="",hostname=""'),
        ("instance", 'Hostname="",hostname=""'),
    ),
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
    watched="DCGM_FI_DEV_XID_ERRORS{%s}",
    codes="DCGM_FI_DEV_XID_ERRORS{%s} > 0",
)
NVIDIA_GPU_EXPORTER = Exporter(
    name="nvidia_gpu_exporter",
    present="nvidia_smi_utilization_gpu_ratio",
    hosts=(("instance", ""),),
    uuid="uuid",
    uuid_prefix="GPU-",
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
    hosts=(("hostname", ""),),
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
