"""Sections of the demo's GPUs: each is an H200 on a board with NVSwitches.

Like all of the demo they are functions of the time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from gputop.model.health.activity import FEWEST, verdict
from gputop.model.machine.sections import (
    Activity,
    Bar1Memory,
    Clocks,
    Ecc,
    Engines,
    Health,
    Identity,
    Nvlink,
    Pcie,
    Power,
    Thermal,
    Throttle,
)
from gputop.model.machine.text import GIB, MIB
from gputop.model.machine.topology import ITSELF, Links, Topology

_NVLINKS = 18


class _Work(NamedTuple):
    """What the parts of a busy chip do, as shares of its load; links in bytes per second."""

    sm: float = 0.0
    occupancy: float = 0.0
    tensor: float = 0.0
    fp64: float = 0.0
    fp32: float = 0.0
    fp16: float = 0.0
    dram: float = 0.0
    pcie: float = 0.0
    nvlink: float = 0.0


_TRAINING = _Work(0.93, 0.31, 0.62, 0.0, 0.11, 0.07, 0.44, 1.1e9, 148e9)
_TUNING = _Work(0.84, 0.28, 0.47, 0.0, 0.14, 0.05, 0.39, 2.3e9)
_SERVING = _Work(0.71, 0.22, 0.16, 0.0, 0.09, 0.04, 0.83, 0.4e9)
_NBODY = _Work(0.98, 0.54, 0.0, 0.88, 0.03, 0.0, 0.02, 0.1e9)
_STARVED = _Work(0.36, 0.19, 0.12, 0.0, 0.06, 0.02, 0.21, 9.6e9)
_WORK = (_TRAINING, _TRAINING, _Work(), _TUNING, _SERVING, _NBODY, _Work(), _STARVED)
"""Indexed by GPU."""


def sections(
    index: int, load: float, power: float, temperature: float, running: float, wave: float
) -> dict[str, Any]:
    """Return fields of `Gpu`; `wave` is -1..1, and changes with time."""
    busy = load > 0
    clock = (1980 if busy else 345) * 1_000_000
    capped = power > 640
    return {
        "identity": Identity(
            serial=f"16502240{17 + index:05d}",
            vbios="96.00.A5.00.0E",
            architecture="Hopper",
            compute_capability="9.0",
        ),
        "bar1": Bar1Memory(total=256 * GIB, used=(3 if busy else 1) * MIB),
        "engines": Engines(encoder=None, decoder=0.0, jpeg=0.0, ofa=0.0),  # it has no encoder
        "clocks": Clocks(
            graphics=clock,
            graphics_max=1_980_000_000,
            video=(1545 if busy else 765) * 1_000_000,
            video_max=1_590_000_000,
            memory_max=3_201_000_000,
        ),
        "power_more": Power(
            average=round(power, 2),
            instant=round(power * (1 + 0.04 * wave), 2),
            limit_default=700.0,
            limit_min=200.0,
            limit_max=700.0,
            energy=round(power * running, 1),
        ),
        "thermal": Thermal(memory=temperature + 4 + 5 * load, margin=87 - temperature),
        "throttle": Throttle(
            reasons=("sw_power_cap",) if capped else (),
            shares={"sw_power_cap": 0.03 * load, "sw_thermal": 0.0, "hw_thermal": 0.0},
        ),
        **_links(index, load, wave),
        "ecc": Ecc(
            enabled=True,
            pending=True,
            corrected=0,
            corrected_dram=0,
            corrected_sram=0,
            uncorrected_dram=0,
            uncorrected_sram=0,
            aggregate_corrected=2 if index == 4 else 0,
            aggregate_uncorrected=0,
            sram_threshold_exceeded=False,
            remapped_correctable=0,
            remapped_uncorrectable=0,
            remap_pending=False,
            remap_failure=False,
        ),
        "health": Health(
            xids=(),
            recovery_action="none",
            fabric_state="completed",
            repair_pending=False,
            unrepairable_memory=False,
        ),
    }


def _links(index: int, load: float, wave: float) -> dict[str, Any]:
    """Return the traffic on the links, and the activity of the chip."""
    work, moving = _WORK[index], load * (1 + 0.12 * wave)
    pcie, nvlink = work.pcie * moving, work.nvlink * moving
    shares = {
        name: round(min(1.0, getattr(work, name) * moving), 3)
        for name in ("sm", "occupancy", "tensor", "fp64", "fp32", "fp16", "dram")
    }
    activity = Activity(
        graphics=round(load, 2),
        **shares,
        pcie_tx=round(pcie * 0.3),
        pcie_rx=round(pcie),
        nvlink_tx=round(nvlink),
        nvlink_rx=round(nvlink * 0.98),
    )
    return {
        "pcie": Pcie(
            generation=5 if load else 1,
            generation_max=5,
            width=16,
            width_max=16,
            tx=round(pcie * 0.3),
            rx=round(pcie),
            replays=0,
        ),
        "nvlink": Nvlink(up=_NVLINKS, down=0, tx=round(nvlink), rx=round(nvlink * 0.98), errors=0),
        "activity": replace(activity, verdict=verdict([activity] * FEWEST)),
    }


def topology(count: int) -> Topology:
    """Return half of the GPUs at either socket, all of them with access to each other's memory."""
    nodes = [index * 2 // count for index in range(count)]
    cpus = [f"{48 * node}-{48 * node + 47},{48 * node + 96}-{48 * node + 143}" for node in nodes]
    return Topology(
        p2p=tuple(tuple(a != b for b in range(count)) for a in range(count)),
        cpus=tuple(cpus),
        usable_cpus=tuple(cpus),
        numa=tuple(nodes),
        gpu_numa=(None,) * count,
    )


def links(count: int) -> Links:
    """Return links from all to all, through the switches."""
    return tuple(
        tuple(ITSELF if a == b else f"NV{_NVLINKS}" for b in range(count)) for a in range(count)
    )
