"""All of a machine, under gputop's own names."""

from __future__ import annotations

from gputop import __version__
from gputop.export.prometheus.family import Families
from gputop.export.prometheus.gpus import add_gpus
from gputop.export.prometheus.people import add_people, add_processes
from gputop.model.machine.frame import Frame


def add_machine(out: Families, frame: Frame, late: float, processes: bool) -> None:
    """Add what there is of a machine; `late`: seconds since the frame was made; `processes`:
    each one as well."""
    host = frame.host
    out.add(
        "gputop_host_info", "What the machine is; 1", 1, hostname=host.name,
        driver_version=frame.driver_version, cuda_version=frame.cuda_version,
    )  # fmt: skip
    out.add("gputop_host_cpu_ratio", "Share of all CPUs in use", host.cpu)
    out.add("gputop_host_cpus", "Logical CPUs", host.cpu_count)
    out.add("gputop_host_memory_total_bytes", "RAM", host.memory_total)
    help_ = "RAM that is not available to a new process"
    out.add("gputop_host_memory_used_bytes", help_, host.memory_used)
    add_gpus(out, frame, late)
    add_people(out, frame)
    if processes:
        add_processes(out, frame)


def add_reading(out: Families, frame: Frame | None, is_up: bool, now: float, count: int) -> None:
    """Add how gputop itself is; `count`: frames so far."""
    out.add("gputop_build_info", "Which gputop this is; 1", 1, version=__version__)
    out.add("gputop_up", "Whether the NVIDIA driver can be read", is_up)
    out.add("gputop_readings_total", "How often the machine was read", count)
    if frame is None:
        return
    help_ = "When the machine was last read, by its own clock"
    out.add("gputop_reading_timestamp_seconds", help_, frame.time)
    help_ = "Since the machine was last read"
    out.add("gputop_reading_age_seconds", help_, max(0.0, now - frame.time))
    if frame.problem is not None:
        help_ = "Why the driver cannot be read; 1"
        out.add("gputop_problem", help_, 1, kind=frame.problem.kind)
