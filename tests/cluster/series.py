"""Series of GPU machines as four exporters name them, and a server that has them.

    with serving(tmp_path, dcgm("node1", load=(97, 3)), up("node1:9400", 1)) as prometheus:

They are loaded as blocks: values of the last minutes up to now, which the server looks up as if it
had scraped them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.prometheus import Prometheus, promtool

GIB = 1 << 30
_MIB = 1 << 20
_EVERY, _SPAN = 30, 900
"""Seconds."""

Line = tuple[str, dict[str, str], float]
"""A metric, its labels and its value, which it has had all the time."""


def up(instance: str, value: float, job: str = "gpu") -> list[Line]:
    """Whether a target could be scraped."""
    return [("up", {"job": job, "instance": instance}, value)]


def unread(host: str, kind: str | None) -> list[Line]:
    """What `gputop export` tells where the driver cannot be read."""
    target = {"job": "gpu", "instance": f"{host}:9835"}
    problem = [] if kind is None else [("gputop_problem", {**target, "kind": kind}, 1.0)]
    return [("gputop_up", target, 0), *problem, *up(f"{host}:9835", 1)]


def gpu_uuid(host: str, index: int) -> str:
    """A GPU's identity."""
    return f"GPU-{host}-{index}"


def dcgm(
    host: str,
    load: Sequence[float] = (0, 0),
    used: Sequence[float] = (),
    model: str = "NVIDIA H100 80GB HBM3",
    label: str = "hostname",
    pods: Sequence[str] = ("",),
    xid: float = 0,
) -> list[Line]:
    """What dcgm-exporter tells: loads in per cent, `used` in MiB (of busy GPUs 40 GiB)."""
    lines: list[Line] = []
    for index, percent in enumerate(load):
        mib = used[index] if used else (40960 if percent else 4)
        for pod in pods:
            labels = {
                "job": "gpu", "instance": f"{host}:9400", label: host, "gpu": str(index),
                "UUID": gpu_uuid(host, index), "modelName": model, "pod": pod,
            }  # fmt: skip
            lines += [
                ("DCGM_FI_DEV_GPU_UTIL", labels, percent),
                ("DCGM_FI_DEV_FB_USED", labels, mib),
                ("DCGM_FI_DEV_FB_FREE", labels, 81920 - mib),
                ("DCGM_FI_DEV_GPU_TEMP", labels, 41),
                ("DCGM_FI_DEV_POWER_USAGE", labels, 312.5),
                ("DCGM_FI_DEV_XID_ERRORS", labels, xid if index == 0 else 0),
            ]
    return lines


def gputop(
    host: str,
    load: Sequence[float | None] = (0, 0),
    model: str = "NVIDIA H200",
    users: Iterable[str] = (),
    finding: str | None = None,
    free: Sequence[float | None] | None = None,
    job: str | None = None,
    xid_time: float | None = None,
    code: str = "XID 79",
) -> list[Line]:
    """What `gputop export` tells: loads from 0 to 1; a GPU without one does not answer. `finding`:
    the level of one of the first GPU; `job`: a Slurm job of the first user on each busy GPU."""
    users = list(users)
    lines: list[Line] = []
    target = {"job": "gpu", "instance": f"{host}:9835"}
    for index, ratio in enumerate(load):
        labels = {**target, "gpu": str(index), "uuid": gpu_uuid(host, index)}
        lines.append(("gputop_gpu_info", {**labels, "model": model}, 1))
        is_free = (None if ratio is None else float(not ratio)) if free is None else free[index]
        if is_free is not None:
            lines.append(("gputop_gpu_free", labels, is_free))
        age = 0.0 if ratio is not None else 600
        lines.append(("gputop_gpu_reading_age_seconds", labels, age))
        if ratio is None:
            continue
        if is_free == 0:
            lines.append(("gputop_gpu_not_free", {**labels, "reason": "users"}, 1))
        lines += [
            ("gputop_gpu_processes", labels, float(bool(ratio))),
            ("gputop_gpu_utilization_ratio", labels, ratio),
            ("gputop_gpu_memory_used_bytes", labels, 60 * GIB if ratio else 0),
            ("gputop_gpu_memory_total_bytes", labels, 141 * GIB),
            ("gputop_gpu_temperature_celsius", labels, 55),
            ("gputop_gpu_power_watts", labels, 400),
        ]
        if ratio:
            lines += [("gputop_user_processes", {**labels, "user": user}, 1) for user in users]
        if ratio and job is not None:
            of_job = {**labels, "kind": "slurm", "id": job, "user": users[0]}
            lines.append(("gputop_job_processes", of_job, 1))
    if finding is not None:
        labels = {**target, "gpu": "0", "uuid": gpu_uuid(host, 0)}
        lines.append(("gputop_gpu_findings", {**labels, "level": finding, "code": code}, 1))
        if xid_time is not None:
            xid = {**labels, "xid": "79"}
            lines.append(("gputop_gpu_xid_timestamp_seconds", xid, xid_time))
    versions = {"hostname": host, "driver_version": "580.95.05", "cuda_version": "13.0"}
    lines.append(("gputop_host_info", {**target, **versions}, 1))
    lines.append(("gputop_reading_age_seconds", target, 2))
    return lines


def nvidia_gpu_exporter(host: str, load: Sequence[float] = (0, 0)) -> list[Line]:
    """What nvidia_gpu_exporter tells: loads from 0 to 1."""
    lines: list[Line] = []
    for index, ratio in enumerate(load):
        labels = {"job": "gpu", "instance": f"{host}:9835",
                  "uuid": gpu_uuid(host, index).removeprefix("GPU-")}  # fmt: skip
        lines += [
            ("nvidia_smi_gpu_info", {**labels, "name": "NVIDIA A100-SXM4-40GB"}, 1),
            ("nvidia_smi_index", labels, index),
            ("nvidia_smi_utilization_gpu_ratio", labels, ratio),
            ("nvidia_smi_memory_used_bytes", labels, 20 * GIB if ratio else 0),
            ("nvidia_smi_memory_total_bytes", labels, 40 * GIB),
            ("nvidia_smi_temperature_gpu", labels, 60),
            ("nvidia_smi_power_draw_watts", labels, 250),
        ]
    return lines


def nvitop(host: str, load: Sequence[float] = (0, 0)) -> list[Line]:
    """What nvitop-exporter tells: loads in per cent."""
    lines: list[Line] = []
    for index, percent in enumerate(load):
        labels = {
            "job": "gpu", "instance": f"{host}:8000", "hostname": host, "index": str(index),
            "devicename": "NVIDIA L40S", "uuid": gpu_uuid(host, index),
        }  # fmt: skip
        lines += [
            ("gpu_utilization_Percentage", labels, percent),
            ("gpu_memory_used_MiB", labels, 10240 if percent else 0),
            ("gpu_memory_total_MiB", labels, 46068),
            ("gpu_temperature_C", labels, 50),
            ("gpu_power_usage_W", labels, 200),
        ]
    return lines


def openmetrics(lines: Iterable[Line], now: float, span: float = _SPAN) -> str:
    """Return the text of all series, from `span` seconds ago to now, family by family."""
    families: dict[str, list[str]] = {}
    for name, labels, value in lines:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        for time_ in range(int(now - span), int(now) + 1, _EVERY):
            families.setdefault(name, []).append(f"{name}{{{pairs}}} {value} {time_}")
    rows = [row for name, rows in families.items() for row in (f"# TYPE {name} gauge", *rows)]
    return "\n".join([*rows, "# EOF\n"])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextmanager
def serving(
    folder: Path,
    *machines: Iterable[Line],
    span: float = _SPAN,
    options: Sequence[str] = (),
    ended: Iterable[Line] = (),
) -> Iterator[Prometheus]:
    """A server that has these series, and some that `ended` half an hour ago; `folder` is for its
    files."""
    text, data, now = folder / "series.txt", folder / "blocks", time.time()
    lines = [line for machine in machines for line in machine]
    for series, end in ((lines, now), (list(ended), now - 1800)):
        if series:
            text.write_text(openmetrics(series, end, span), encoding="utf-8")
            promtool("tsdb", "create-blocks-from", "openmetrics", text, data)
    with Prometheus(folder, "", *options, data=data) as prometheus:
        yield prometheus
