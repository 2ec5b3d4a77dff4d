"""The simulated machines: GPUs like those of h200x8, with processes on them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.driver.machine import Machine

GIB = 1 << 30
STEP = 256 << 10
"""Bytes by which the memory of a process differs from that of the next one, so that the order of
the rows is known."""


class Shape(NamedTuple):
    """How many GPUs, and how many processes spread over them."""

    gpus: int
    processes: int

    def __str__(self) -> str:
        return f"{self.gpus}x{self.processes}"


SHAPES = (
    Shape(1, 0), Shape(8, 20), Shape(8, 200), Shape(8, 1000), Shape(16, 200), Shape(16, 1000)
)  # fmt: skip
SIZES = ((200, 50), (80, 24))
"""Columns and rows of the terminal."""

_SOME = ("RunningProcess", "BAR1", "MigMode", "DisplayActive", "PcieReplay", "FieldValues",
         "SampleGet", "MetricsGet")  # fmt: skip
TIMED: list[dict[str, Any]] = [
    {"function": "nvmlDeviceGetPcieThroughput", "ms": 20},
    {"function": "nvmlInit*", "ms": 10},
    {"function": "*TotalEnergyConsumption", "ms": 3.5, "busy": True},
    {"function": "*Process*Utilization*", "ms": 2, "busy": True},
    {"function": "*MarginTemperature", "ms": 1, "busy": True},
    {"function": [f"*{word}*" for word in _SOME], "ms": 0.3, "busy": True},
    {"function": "*", "ms": 0.04, "busy": True},
]
"""How long calls take; the first entry that fits counts. bench/README.md names the source."""


def scenario(shape: Shape, **more: Any) -> dict[str, Any]:
    """Return a scenario in which GPUs and processes have moving values, as on a busy machine."""
    gone = dict.fromkeys(("train", "notebook", "pretrain", "vllm", "eval", "small"))
    worker = {
        "command": ["python", "-m", "torch.distributed.run", "sweep.py", "--trial", "{n}"],
        "count": shape.processes,
        "on": {
            "gpu": "spread",
            "used": {"each": _memory_of_processes(shape)},
            "sm": {"wave": [0, 8, 13]},
            "mem": {"wave": [0, 5, 7]},
        },
    }
    return {
        "base": "h200x8",
        "gpus": shape.gpus,
        "gpu": {
            "pci": {"bus_id": "00000000:{i:02X}:00.0"},
            "memory": {"used": {"each": _memory_of_gpus(shape)}},
        },
        "processes": {**gone, **({"worker": worker} if shape.processes else {})},
        **more,
    }


def _memory_of_processes(shape: Shape) -> list[int]:
    share = min(4 * GIB, 96 * GIB * shape.gpus // max(1, shape.processes))
    return [share + STEP * (shape.processes - n) for n in range(shape.processes)]


def _memory_of_gpus(shape: Shape) -> list[dict[str, Any]]:
    """Return the memory in use on each GPU: less than a GiB more than its processes hold."""
    used = _memory_of_processes(shape)
    held = [sum(used[gpu :: shape.gpus]) for gpu in range(shape.gpus)]
    # From a GiB on, unaccounted memory would have a row of its own.
    return [{"wave": [memory + GIB // 5, memory + GIB - GIB // 5, 90]} for memory in held]


def machine(shape: Shape, *, log: bool = False, **more: Any) -> Machine:
    """Return a machine, not entered yet. `more` is added to the scenario: no "calls", no delays."""
    return Machine(scenario(shape, **more), log=log, reap=False)
