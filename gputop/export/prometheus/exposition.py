"""The newest frame of a source, as text for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import PROCESS_COLLECTOR, generate_latest

from gputop.errors import GputopError
from gputop.export.prometheus.dcgm import add_dcgm
from gputop.export.prometheus.family import Families
from gputop.export.prometheus.gpus import add_gpus, add_up
from gputop.export.prometheus.people import add_people, add_processes
from gputop.model.machine.frame import Frame
from gputop.version import __version__

_KEPT = 1.0
"""Seconds that a text is served while no new frame comes: it contains ages."""

OWN, DCGM = "gputop", "dcgm"
"""Whose names metrics can have."""


class Scope(NamedTuple):
    """What an exposition tells."""

    names: frozenset[str] = frozenset({OWN})
    """OWN, DCGM or both."""
    processes: bool = False
    """Each process as well, under gputop's own names."""
    named: bool = True
    """Users, command lines, and names of containers and pods, which users choose."""
    itself: bool = False
    """What this program takes: `process_*`, which node_exporter has of its own."""


class Exposition:
    """Takes the messages of a source in one thread, and returns text in any other.

    However many clients read it, a frame is written once a second at most; the driver is not read.
    """

    def __init__(self, clock: Callable[[], float], scope: Scope) -> None:
        """clock: seconds since the epoch."""
        self._clock, self._scope = clock, scope
        self._lock = threading.Lock()
        self._frame: Frame | None = None
        self._error: GputopError | None = None
        self._count = 0
        self._text = b""
        self._until = 0.0

    def put(self, message: Frame | GputopError) -> None:
        """Take the next frame, or the error that explains why none comes."""
        with self._lock:
            self._until = 0.0
            if isinstance(message, Frame):
                self._frame, self._error = message, None
                self._count += 1
            else:
                self._error = message

    def text(self) -> bytes:
        """Return the newest frame in Prometheus' text format, version 0.0.4."""
        with self._lock:
            now = self._clock()
            if not self._until - _KEPT <= now < self._until:  # clocks are also set back
                self._text = self._write(now)
                self._until = now + _KEPT
            return self._text

    def _write(self, now: float) -> bytes:
        out, frame = Families(), self._frame
        is_up = frame is not None and frame.problem is None and self._error is None
        _add_reading(out, frame, is_up, now, self._count)
        if frame is not None and is_up:
            if OWN in self._scope.names:
                _add_machine(out, frame, max(0.0, now - frame.time), self._scope)
            if DCGM in self._scope.names:
                for gpu in frame.gpus:
                    add_up(out, gpu)
                add_dcgm(out, frame, self._scope.named)
        itself = generate_latest(PROCESS_COLLECTOR) if self._scope.itself else b""
        return generate_latest(out) + itself


def _add_machine(out: Families, frame: Frame, late: float, scope: Scope) -> None:
    """Add all values of a machine. `late`: seconds since the frame was made."""
    host = frame.host
    out.add(
        "gputop_host_info", "What the machine is (always 1)", 1, hostname=host.name,
        driver_version=frame.driver_version, cuda_version=frame.cuda_version,
    )  # fmt: skip
    out.add("gputop_host_cpu_ratio", "Share of all CPUs in use", host.cpu)
    out.add("gputop_host_cpus", "Logical CPUs", host.cpu_count)
    out.add("gputop_host_memory_total_bytes", "RAM", host.memory_total)
    help_ = "RAM that is not available to a new process"
    out.add("gputop_host_memory_used_bytes", help_, host.memory_used)
    add_gpus(out, frame, late)
    add_people(out, frame, scope.named)
    if scope.processes:
        add_processes(out, frame, scope.named)


def _add_reading(out: Families, frame: Frame | None, is_up: bool, now: float, count: int) -> None:
    """Add the state of gputop itself; `count`: frames so far."""
    out.add("gputop_build_info", "Which gputop this is (always 1)", 1, version=__version__)
    out.add("gputop_up", "Whether the NVIDIA driver can be read", is_up)
    out.add("gputop_readings_total", "How often the machine was read", count)
    if frame is None:
        return
    help_ = "When the machine was last read, by its own clock"
    out.add("gputop_reading_timestamp_seconds", help_, frame.time)
    help_ = "Since the machine was last read"
    out.add("gputop_reading_age_seconds", help_, max(0.0, now - frame.time))
    if frame.problem is not None:
        help_ = "Why the driver cannot be read (always 1)"
        out.add("gputop_problem", help_, 1, kind=frame.problem.code)
