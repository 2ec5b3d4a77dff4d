"""The values of GPUs and MIG devices, under gputop's own names."""

from __future__ import annotations

from collections import Counter

from gputop.export.prometheus.family import Families
from gputop.model.health.findings import findings
from gputop.model.health.free import not_free
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.summary import count_without_user, users
from gputop.model.metrics.gpu import GPU, SECTIONS

_LABELS = {"index": "gpu", "name": "model"}
"""Label names that differ from the id in the registry."""
_OF_MIG = [GPU["memory_total"], GPU["memory_used"],
           *(metric for metric in GPU.values() if metric.id.startswith("activity."))]  # fmt: skip
"""Metrics that are also known for a MIG device: its fields have the same names."""


def labels_of(gpu: Gpu) -> dict[str, str]:
    """Return the labels on every value of a GPU; `gputop_gpu_info` has all others."""
    return {"uuid": gpu.uuid or "", "gpu": str(gpu.index)}


def is_read(gpu: Gpu) -> bool:
    """Return whether the values of a GPU are current, or not asked for as it is asleep."""
    return gpu.state in ("answers", "asleep")


def add_up(out: Families, gpu: Gpu) -> None:
    """Add whether a GPU answers, which each GPU of a frame has."""
    help_ = "Whether the GPU answered: 0 is hung or lost"
    out.add("gputop_gpu_up", help_, is_read(gpu), **labels_of(gpu))


def add_gpus(out: Families, frame: Frame, late: float) -> None:
    """Add all of a frame's GPUs; `late`: seconds since the frame was made."""
    for gpu in frame.gpus:
        labels = labels_of(gpu)
        _add_state(out, gpu, late, labels)
        _add_free(out, frame, gpu, labels)
        _add_findings(out, frame, gpu, labels)
        if is_read(gpu):
            _add_values(out, frame, gpu, labels)
            for device in gpu.mig or ():
                _add_mig_device(out, frame, gpu, device)


def _add_state(out: Families, gpu: Gpu, late: float, labels: dict[str, str]) -> None:
    facts = {_LABELS.get(metric.id, metric.id.rpartition(".")[2]): metric.read(gpu)
             for metric in SECTIONS["Identity"] if metric.prometheus is None}  # fmt: skip
    out.add("gputop_gpu_info", "What a GPU is (always 1)", 1, **facts)
    add_up(out, gpu)
    since = gpu.stale_for if gpu.is_overdue else 0.0 if is_read(gpu) else None
    age = None if since is None else since + late
    help_ = "Since the GPU last answered; its values are absent while it does not"
    out.add("gputop_gpu_reading_age_seconds", help_, age, **labels)


def _add_values(out: Families, frame: Frame, gpu: Gpu, labels: dict[str, str]) -> None:
    for metric in GPU.values():
        if metric.prometheus is not None:
            out.add_metric(metric, gpu, **labels)
    if gpu.throttle is not None:
        for name in THROTTLE_REASONS:
            held = name in gpu.throttle.reasons
            help_ = "Whether that holds the clocks back"
            out.add("gputop_gpu_throttled", help_, held, reason=name, **labels)
    help_ = "Whether it is powered down until it is used; a query would wake it"
    out.add("gputop_gpu_asleep", help_, gpu.state == "asleep", **labels)
    is_known = None if gpu.listed == "unknown" else gpu.listed == "all"
    help_ = "Whether all compute processes on the GPU are listed"
    out.add("gputop_gpu_processes_known", help_, is_known, **labels)
    if gpu.listed == "all":
        processes = frame.compute_processes.get(gpu.uuid, ())
        count = len({process.pid for process in processes})
        out.add("gputop_gpu_processes", "Compute processes on the GPU", count, **labels)
        if not count_without_user(frame, gpu):
            who = len(users(frame, gpu))
            out.add("gputop_gpu_users", "Users whose processes compute on the GPU", who, **labels)


def _add_free(out: Families, frame: Frame, gpu: Gpu, labels: dict[str, str]) -> None:
    """Add whether a GPU is free, and why not. If that cannot be known, `gputop_gpu_free` is absent
    and the reason says why."""
    objection = not_free(frame, gpu)
    is_known = objection is None or objection.is_sure
    out.add(
        "gputop_gpu_free",
        "Whether a new job could have the GPU; absent where that cannot be known",
        objection is None if is_known else None, **labels,
    )  # fmt: skip
    if objection is not None:
        help_ = "Why the GPU is not free, or why that cannot be known (always 1)"
        out.add("gputop_gpu_not_free", help_, 1, reason=objection.code, **labels)


def _add_findings(out: Families, frame: Frame, gpu: Gpu, labels: dict[str, str]) -> None:
    """Add findings, and each XID with its time, since its finding stays until gputop ends."""
    counts = Counter((finding.level, finding.code) for finding in findings(frame, gpu))
    for (level, code), count in counts.items():
        help_ = "What of the GPU needs attention (error), or may not be as meant (warning)"
        out.add("gputop_gpu_findings", help_, count, level=level, code=code, **labels)
    for xid in reversed((gpu.health and gpu.health.xids) or ()):
        help_ = "When the driver last reported that XID, since gputop listens"
        out.add("gputop_gpu_xid_timestamp_seconds", help_, xid.time, xid=xid.number, **labels)


def _add_mig_device(out: Families, frame: Frame, gpu: Gpu, device: MigDevice) -> None:
    labels = {**labels_of(gpu), "gi": str(device.gi), "ci": str(device.ci)}
    facts = {"mig_uuid": device.uuid, "profile": device.profile}
    out.add("gputop_mig_info", "What a MIG device is (always 1)", 1, **facts, **labels)
    for metric in _OF_MIG:
        if metric.prometheus is not None:
            name = metric.prometheus.replace("gputop_gpu_", "gputop_mig_", 1)
            out.add_metric(metric, device, name, **labels)
    objection = not_free(frame, gpu, device)
    if objection is None or objection.is_sure:
        help_ = "Whether a new job could have the MIG device"
        out.add("gputop_mig_free", help_, objection is None, **labels)
