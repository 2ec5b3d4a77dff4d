"""Frames for tests of what reads them: say only what matters."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from gputop.model.machine.frame import Frame, Host, Process
from gputop.model.machine.gpu import Gpu, GpuState, overdue_state
from gputop.model.machine.process_id import ProcessId
from gputop.model.metrics.process import ProcessRow
from gputop.model.processes.filter import parse

GIB = 2**30


def gpu(index: int = 0, **fields: Any) -> Gpu:
    """A healthy, idle GPU."""
    plain: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H200",
        "memory_total": 140 * GIB,
        "memory_used": 0,
        "utilization": 0.0,
        "listed": "all",
    }
    return Gpu(index=index, **{**plain, **with_state(fields)})


def with_state(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a GPU, and the state that they mean if they say none."""
    state: GpuState = "answers"
    if fields.get("error") is not None:
        state = "lost"
    elif fields.get("stale_for") is not None:
        state = overdue_state(fields["stale_for"])
    return {"state": state, **fields}


def typed(words: Iterable[str], gpus: Iterable[str] = (), user: str | None = None) -> Namespace:
    """What the command line has of which processes are meant."""
    return Namespace(words=[*words], gpu=[*gpus], user=user, hosts=())


def id_of(pid: int, start_time: float | None = 1000.0) -> ProcessId:
    """Which process that is, on a machine that booted at the epoch."""
    return ProcessId(pid, None if start_time is None else round(start_time * 100))


def with_start(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a process, and the start in ticks that they mean if they say none."""
    ticks = id_of(fields["pid"], fields["start_time"]).start_ticks
    return {"start_ticks": ticks, **fields}


def process(pid: int, on: int | None = 0, **fields: Any) -> Process:
    """A compute process of alice on a GPU."""
    plain: dict[str, Any] = {
        "pid": pid,
        "gpu_uuid": None if on is None else f"GPU-{on}",
        "start_time": 1000.0,
        "user": "alice",
        "command": "python train.py",
    }
    return Process(**with_start({**plain, **fields}))


def frame(
    gpus: Iterable[Gpu] = (), processes: Iterable[Process] = (), time: float = 2000.0
) -> Frame:
    """A frame of one machine; one GPU if none is given."""
    return Frame(
        host=Host(name="node", boot_id="boot"),
        time=time,
        gpus=tuple(gpus) or (gpu(),),
        processes=tuple(processes),
    )


def matching(rows: Iterable[ProcessRow], text: str) -> list[ProcessRow]:
    """The rows that fit a filter."""
    fits = parse(text)
    return [row for row in rows if fits(row)]
