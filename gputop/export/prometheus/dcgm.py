"""The default metrics of NVIDIA's dcgm-exporter: its names, labels and units, for dashboards that
are made for it. How the values differ, and what is missing, is in manual/prometheus.md.

Source: dcgm-exporter's etc/default-counters.csv, METRICS.md and rendermetrics/render_metrics.go
(2026); `Hostname` became `hostname` in its #655, and both are here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gputop.export.prometheus.family import Families
from gputop.export.prometheus.gpus import is_read
from gputop.export.prometheus.people import MOST_TOLD_APART
from gputop.model.health.xids import xid_finding
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.origin import Origin
from gputop.model.machine.text import MIB
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.metric import Metric

_COUNTER = "unknown"
"""The type of counters: prometheus_client requires the name of others to end in `_total`."""
_OF_COMPUTE_INSTANCE = re.compile(r"^\d+c\.", re.ASCII)
"""How a profile begins if the compute instance is only a part of its GPU instance."""


class DcgmField(NamedTuple):
    """A metric of dcgm-exporter, and the id of gputop's metric that it shows."""

    name: str
    help: str
    id: str
    unit: str = ""
    """Its unit, where that is not gputop's own."""
    kind: str = "gauge"


_IN_UNIT: dict[str, Callable[[Any], float]] = {
    "": float,
    "MHz": lambda hertz: round(hertz / 1e6),
    "%": lambda ratio: round(ratio * 100),
    "MiB": lambda size: size // MIB,
    "mJ": lambda joules: round(joules * 1000),
}
_FIELDS = (
    DcgmField("DEV_SM_CLOCK", "SM clock in MHz", "sm_clock", "MHz"),
    DcgmField("DEV_MEM_CLOCK", "Memory clock in MHz", "memory_clock", "MHz"),
    DcgmField("DEV_MEMORY_TEMP", "Memory temperature in C", "thermal.memory"),
    DcgmField("DEV_GPU_TEMP", "GPU temperature in C", "temperature"),
    DcgmField("DEV_POWER_USAGE", "Power in W", "power"),
    DcgmField("DEV_TOTAL_ENERGY_CONSUMPTION", "Energy in mJ since gputop's start",
              "power_more.energy", "mJ", _COUNTER),
    DcgmField("DEV_PCIE_REPLAY_COUNTER", "PCIe packets sent again", "pcie.replays", kind=_COUNTER),
    DcgmField("DEV_GPU_UTIL", "GPU utilization in %", "utilization", "%"),
    DcgmField("DEV_MEM_COPY_UTIL", "Memory utilization in %", "memory_utilization", "%"),
    DcgmField("DEV_ENC_UTIL", "Encoder utilization in %", "engines.encoder", "%"),
    DcgmField("DEV_DEC_UTIL", "Decoder utilization in %", "engines.decoder", "%"),
    DcgmField("DEV_FB_FREE", "Free memory in MiB", "memory_free", "MiB"),
    DcgmField("DEV_FB_USED", "Used memory in MiB", "memory_used", "MiB"),
    DcgmField("DEV_FB_RESERVED", "Reserved memory in MiB", "memory_reserved", "MiB"),
    DcgmField("DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrectable errors",
              "ecc.remapped_uncorrectable", kind=_COUNTER),
    DcgmField("DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for correctable errors",
              "ecc.remapped_correctable", kind=_COUNTER),
    DcgmField("DEV_ROW_REMAP_FAILURE", "Whether a row could not be remapped",
              "ecc.remap_failure"),
    DcgmField("PROF_GR_ENGINE_ACTIVE", "Ratio of time in which anything ran",
              "activity.graphics"),
    DcgmField("PROF_PIPE_TENSOR_ACTIVE", "Ratio of time the tensor cores were in use",
              "activity.tensor"),
    DcgmField("PROF_DRAM_ACTIVE", "Ratio of time the memory was in use", "activity.dram"),
    DcgmField("PROF_PCIE_TX_BYTES", "Bytes per second sent over PCIe", "pcie.tx"),
    DcgmField("PROF_PCIE_RX_BYTES", "Bytes per second received over PCIe", "pcie.rx"),
)  # fmt: skip
_OF_INSTANCE = ("PROF_GR_ENGINE_ACTIVE", "PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE",
                "DEV_FB_USED", "DEV_FB_FREE")  # fmt: skip
"""In MIG mode these are of the instance; each instance repeats the rest, of the whole GPU."""


def add_dcgm(out: Families, frame: Frame, named: bool = True) -> None:
    """Add every GPU that answers; in MIG mode, each GPU instance, and once for each job there, as
    dcgm-exporter does. Unless `named`, jobs have no name that somebody chose."""
    for gpu in filter(is_read, frame.gpus):
        labels = _labels(frame, gpu)
        for device in _instances(gpu):
            for job in _jobs(frame, gpu, device, named):
                _add_fields(out, gpu, device, {**labels, **_instance_labels(device), **job})


def _jobs(frame: Frame, gpu: Gpu, device: MigDevice | None, named: bool) -> list[dict[str, str]]:
    """Return the labels of each job on a GPU or GPU instance; no labels once if there is no job."""
    origins = [] if gpu.slurm_job is None else [Origin(slurm_job=gpu.slurm_job.number)]
    for process in frame.compute_processes.get(gpu.uuid, ()):
        if process.origin is not None and (device is None or process.gpu_instance == device.gi):
            origins.append(process.origin)
    jobs = [_job_labels(origin, named) for origin in origins]
    apart = {tuple(job.items()): job for job in jobs if job}
    return list(apart.values())[:MOST_TOLD_APART] or [{}]


def _job_labels(origin: Origin, named: bool) -> dict[str, str]:
    labels = {"hpc_job": origin.slurm_job, "pod_uid": origin.pod}
    container = origin.container
    if named and container is not None and container.pod is not None:
        pod = {"pod": container.pod, "namespace": container.namespace, "container": container.name}
        labels |= pod
    return {label: text for label, text in labels.items() if text}


def _instances(gpu: Gpu) -> Iterator[MigDevice | None]:
    """Yield a MIG device for each GPU instance (its parts share its numbers); None without MIG."""
    if not gpu.mig:
        yield None
    yield from {device.gi: device for device in reversed(gpu.mig or ())}.values()


def _instance_labels(device: MigDevice | None) -> dict[str, object]:
    if device is None:
        return {}
    profile = _OF_COMPUTE_INSTANCE.sub("", device.profile or "")
    return {"GPU_I_ID": device.gi, "GPU_I_PROFILE": profile}


def _labels(frame: Frame, gpu: Gpu) -> dict[str, object]:
    name = frame.host.name
    return {
        "gpu": gpu.index, "UUID": gpu.uuid, "pci_bus_id": gpu.pci_bus_id,
        "device": None if gpu.minor is None else f"nvidia{gpu.minor}", "modelName": gpu.name,
        "Hostname": name, "hostname": name, "DCGM_FI_DRIVER_VERSION": frame.driver_version,
    }  # fmt: skip


def _add_fields(
    out: Families, gpu: Gpu, device: MigDevice | None, labels: dict[str, object]
) -> None:
    for field in _FIELDS:
        value = _read(field, gpu, device)
        converted = None if value is None else _IN_UNIT[field.unit](value)
        out.add(f"DCGM_FI_{field.name}", field.help, converted, field.kind, **labels)
    xids = gpu.health and gpu.health.xids
    if xids is not None:
        last = xids[-1].number if xids else 0
        error = {"err_code": last, "err_msg": xid_finding(last).text} if last else {"err_code": 0}
        help_ = "The last XID, 0 for none"
        out.add("DCGM_FI_DEV_XID_ERRORS", help_, last, **labels, **error)


def _read(field: DcgmField, gpu: Gpu, device: MigDevice | None) -> Any:
    metric: Metric[Any] = GPU[field.id]
    return metric.read(gpu if device is None or field.name not in _OF_INSTANCE else device)
