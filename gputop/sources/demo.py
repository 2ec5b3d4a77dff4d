"""An invented machine that moves, for trying gputop and for its screenshots.

Everything is a function of the time, so that a picture of it can be made again.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gputop.model.enumeration import PCI_BUS_ID
from gputop.model.environ import NAME, ORDER, Environ, Surroundings
from gputop.model.frame import Frame, Gpu, Host, Process
from gputop.model.probe import Probed
from gputop.model.protocol import Pause, Probe, Refresh, Request, SetInterval, clamp_interval
from gputop.model.text import GIB, MIB

_TOTAL = 143771 * MIB
_RESERVED = 614 * MIB
_BUSES = (0x19, 0x2D, 0x3F, 0x66, 0x9B, 0xAE, 0xBF, 0xE4)
_NAMESPACE = uuid.UUID("8a5f61b2-5f3d-4f0e-9d33-6d0c3b1f7a55")


class _Job(NamedTuple):
    """An invented process: `load` is the SM share it would like, None for one that computes
    nothing, `age` in seconds at the start of the demo."""

    pid: int
    user: str
    command: str
    gpus: tuple[int, ...]
    memory: float
    load: float | None
    cpu: float
    age: float
    variables: dict[str, str] | None = {}
    """Of those that decide which GPUs it sees; None: it wrote over them."""


_JOBS = (
    _Job(
        21195,
        "alice",
        "python train.py --config llama-8b.yaml --lr 3e-4",
        (0, 1),
        97.4,
        0.96,
        1.04,
        8040,
        {NAME: "0,1", ORDER: PCI_BUS_ID},
    ),
    _Job(
        30411,
        "bob",
        "/home/bob/.venv/bin/python -m ipykernel_launcher -f kernel-7f.json",
        (2,),
        132.9,
        None,
        0.01,
        93600,
    ),
    _Job(
        31002,
        "carol",
        "python3 -u finetune.py --model mistral --batch 32",
        (3,),
        61.2,
        0.83,
        1.31,
        2700,
        {NAME: "3"},
    ),
    _Job(
        31003,
        "carol",
        "python3 -u evaluate.py --split test",
        (3,),
        12.6,
        0.11,
        0.72,
        310,
        {"CUDA_VISIBLE_DIVICES": "3"},
    ),
    _Job(
        40217,
        "serving",
        "VLLM::EngineCore --model Qwen3-32B",
        (4,),
        121.8,
        0.58,
        0.97,
        712800,
        None,
    ),
    _Job(
        40990,
        "dave",
        "./nbody -benchmark -numbodies=256000 -fp64",
        (5,),
        0.9,
        0.99,
        1.0,
        95,
        {NAME: "4,5,6", "LOCAL_RANK": "1"},
    ),
    _Job(
        41180,
        "erin",
        "python train.py --task segmentation --workers 8",
        (7,),
        38.2,
        0.71,
        2.6,
        12_600,
        {NAME: "7,6"},
    ),
)


class DemoSource:
    """Frames of the invented machine, at the wanted interval."""

    def __init__(self, interval: float | None = 1.0) -> None:
        self._interval = interval
        self._wake = threading.Event()
        self._closed = False
        self._paused = False
        self._probed: tuple[Probed, ...] = ()

    def frames(self) -> Iterator[Frame]:
        """Frames until `close`; one only where the interval is None."""
        started = time.time()
        while not self._closed:
            now = time.time()
            frame = demo_frame(now, now - started, self._interval)
            yield msgspec.structs.replace(frame, probed=self._probed)
            if self._interval is None:
                return
            self._wake.wait(None if self._paused else self._interval)
            self._wake.clear()

    def request(self, request: Request) -> None:
        """The interval and a frame now; a driver that could be asked is not invented."""
        if isinstance(request, SetInterval):
            self._interval = clamp_interval(request.seconds)
            self._wake.set()
        elif isinstance(request, Pause):
            self._paused = request.paused
            self._wake.set()
        elif isinstance(request, Probe):
            problem = "the demo has no CUDA driver"
            self._probed = (Probed(None, problem, request.value, request.order),)
            self._wake.set()
        elif isinstance(request, Refresh):
            self._wake.set()

    def close(self) -> None:
        """End."""
        self._closed = True
        self._wake.set()


def demo_frame(now: float, running: float = 0.0, interval: float | None = None) -> Frame:
    """The machine at `now` (seconds since the epoch), the demo `running` for so many seconds."""
    processes = tuple(_process(job, index, now, running) for job in _JOBS for index in job.gpus)
    return Frame(
        host=Host(
            name="demo",
            boot_id="demo",
            cpu=0.11 + 0.03 * _wave(now, 13, 0.4),
            cpu_count=192,
            memory_total=2015 * GIB,
            memory_used=int((412 + 9 * _wave(now, 31, 0.1)) * GIB),
        ),
        time=round(now, 3),
        interval=interval,
        driver_version="580.159.03",
        cuda_version="13.0",
        gpus=tuple(_gpu(index, now, processes) for index in range(len(_BUSES))),
        processes=processes,
        demo=True,
    )


def _gpu(index: int, now: float, processes: tuple[Process, ...]) -> Gpu:
    identity = _uuid(index)
    here = [process for process in processes if process.gpu_uuid == identity]
    used = sum(process.gpu_memory or 0 for process in here) + 22 * MIB
    load = min(1.0, sum(process.sm_utilization or 0.0 for process in here))
    busy = load > 0
    power = 75 + 2 * _wave(now, 17, index) + load * (565 + 30 * _wave(now, 7, index))
    return Gpu(
        index=index,
        uuid=identity,
        name="NVIDIA H200",
        pci_bus_id=f"00000000:{_BUSES[index]:02X}:00.0",
        minor=index,
        memory_total=_TOTAL,
        memory_used=used,
        memory_free=_TOTAL - _RESERVED - used,
        memory_reserved=_RESERVED,
        utilization=round(load, 2),
        memory_utilization=round(load * 0.6, 2),
        temperature=float(round(33 + index % 3 + load * 31 + _wave(now, 23, index))),
        power=round(power, 2),
        power_limit=700.0,
        sm_clock=(1980 if busy else 345) * 1_000_000,
        sm_clock_max=1_980_000_000,
        memory_clock=3_201_000_000,
        pstate=0,
        persistence_mode=True,
        display_active=False,
        compute_mode="default",
        ecc_uncorrected=0,
        mig_mode=False,
        cores=16896,
        sm=132,
        processes_known=True,
    )


def _process(job: _Job, index: int, now: float, running: float) -> Process:
    load = None if job.load is None else job.load * (0.93 + 0.07 * _wave(now, 9, index + job.pid))
    return Process(
        pid=job.pid,
        start_time=round(now - running - job.age, 2),
        gpu_uuid=_uuid(index),
        gpu_memory=int(job.memory * GIB * (1 + 0.004 * _wave(now, 41, job.pid))),
        sm_utilization=None if load is None else round(load, 2),
        user=job.user,
        command=job.command,
        cpu=round(job.cpu * (1 + 0.05 * _wave(now, 5, job.pid)), 3),
        rss=int((2.1 + job.memory / 20) * GIB),
        state="R" if job.load else "S",
        parent=1,
        surroundings=Surroundings(_environ(job)),
    )


def _environ(job: _Job) -> Environ:
    return Environ({}, "overwritten") if job.variables is None else Environ(job.variables)


def _uuid(index: int) -> str:
    return f"GPU-{uuid.uuid5(_NAMESPACE, str(index))}"


def _wave(now: float, period: float, phase: float) -> float:
    """-1..1, as two sines that do not meet."""
    angle = 2 * math.pi * now / period + phase
    return 0.7 * math.sin(angle) + 0.3 * math.sin(2.7 * angle)
