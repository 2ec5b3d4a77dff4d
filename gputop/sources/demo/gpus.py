"""The demo's GPUs: what an H200 on a board with NVSwitches always is, and what moves in waves.

Like all of the demo they are functions of the time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from msgspec.structs import replace

from gputop.model.health.activity import FEWEST, activity_words
from gputop.model.machine.gpu import Gpu
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

_MHZ = 1_000_000
_TOTAL, _RESERVED, _UNACCOUNTED = 143771 * MIB, 614 * MIB, 22 * MIB
_BUSES = (0x19, 0x2D, 0x3F, 0x66, 0x9B, 0xAE, 0xBF, 0xE4)
_NVLINKS = 18

_IDENTITY = Identity(vbios="96.00.A5.00.0E", architecture="Hopper", compute_capability="9.0")
_CLOCKS = Clocks(
    graphics=345 * _MHZ, graphics_max=1980 * _MHZ, video=765 * _MHZ, video_max=1590 * _MHZ,
    memory_max=3201 * _MHZ,
)  # fmt: skip
_POWER = Power(limit_default=700.0, limit_min=200.0, limit_max=700.0)
_ECC = Ecc(
    enabled=True, pending=True, corrected=0, corrected_dram=0, corrected_sram=0, uncorrected_dram=0,
    uncorrected_sram=0, aggregate_corrected=0, aggregate_uncorrected=0,
    sram_threshold_exceeded=False, remapped_correctable=0, remapped_uncorrectable=0,
    remap_pending=False, remap_failure=False,
)  # fmt: skip
_HEALTH = Health(
    xids=(), recovery_action="none", fabric_state="completed", repair_pending=False,
    unrepairable_memory=False,
)  # fmt: skip
_H200 = Gpu(
    index=0, name="NVIDIA H200", memory_total=_TOTAL, memory_reserved=_RESERVED,
    memory_unaccounted=_UNACCOUNTED, power_limit=700.0, sm_clock_max=1980 * _MHZ,
    memory_clock=3201 * _MHZ, pstate=0, persistence_mode=True, accounting_mode=False,
    display_active=False, compute_mode="default", ecc_uncorrected=0, mig_mode=False, cores=16896,
    sm=132, listed="all", engines=Engines(decoder=0.0, jpeg=0.0, ofa=0.0),  # no encoder
)  # fmt: skip


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


def wave(now: float, period: float, phase: float) -> float:
    """Return -1..1, a sum of two sines of unrelated periods."""
    angle = 2 * math.pi * now / period + phase
    return 0.7 * math.sin(angle) + 0.3 * math.sin(2.7 * angle)


def demo_gpu(index: int, uuid: str, memory: int, load: float, now: float, running: float) -> Gpu:
    """Return a GPU on which processes hold `memory` bytes and take `load` of it."""
    busy, used = load > 0, memory + _UNACCOUNTED
    temperature = float(round(33 + index % 3 + load * 31 + wave(now, 23, index)))
    power = 75 + 2 * wave(now, 17, index) + load * (565 + 30 * wave(now, 7, index))
    swing = wave(now, 11, index)
    clock, video = (1980, 1545) if busy else (345, 765)
    return replace(
        _moving_data(_H200, _WORK[index], load, load * (1 + 0.12 * swing)),
        index=index,
        uuid=uuid,
        pci_bus_id=f"00000000:{_BUSES[index]:02X}:00.0",
        minor=index,
        memory_used=used,
        memory_free=_TOTAL - _RESERVED - used,
        utilization=round(load, 2),
        memory_utilization=round(load * 0.6, 2),
        temperature=temperature,
        power=round(power, 2),
        sm_clock=clock * _MHZ,
        idle_for=0.0 if busy else round(2460 + running, 1),
        identity=replace(_IDENTITY, serial=f"16502240{17 + index:05d}"),
        bar1=Bar1Memory(total=256 * GIB, used=(3 if busy else 1) * MIB),
        clocks=replace(_CLOCKS, graphics=clock * _MHZ, video=video * _MHZ),
        power_more=replace(
            _POWER,
            average=round(power, 2),
            instant=round(power * (1 + 0.04 * swing), 2),
            energy=round(power * running, 1),
        ),
        thermal=Thermal(memory=temperature + 4 + 5 * load, margin=87 - temperature),
        throttle=Throttle(
            reasons=("sw_power_cap",) if power > 640 else (),
            shares={"sw_power_cap": 0.03 * load, "sw_thermal_slowdown": 0.0},
        ),
        ecc=replace(_ECC, aggregate_corrected=2 if index == 4 else 0),
        health=_HEALTH,
    )


def _moving_data(gpu: Gpu, work: _Work, load: float, moving: float) -> Gpu:
    """Return the GPU with the traffic on its links, and the activity of its chip."""
    pcie, nvlink = work.pcie * moving, work.nvlink * moving
    pcie_tx, pcie_rx = round(pcie * 0.3), round(pcie)
    nvlink_tx, nvlink_rx = round(nvlink), round(nvlink * 0.98)
    shares = {
        name: round(min(1.0, getattr(work, name) * moving), 3)
        for name in ("sm", "occupancy", "tensor", "fp64", "fp32", "fp16", "dram")
    }
    activity = Activity(
        graphics=round(load, 2), **shares, pcie_tx=pcie_tx, pcie_rx=pcie_rx, nvlink_tx=nvlink_tx,
        nvlink_rx=nvlink_rx,
    )  # fmt: skip
    return replace(
        gpu,
        pcie=Pcie(generation=5 if load else 1, generation_max=5, width=16, width_max=16,
                  tx=pcie_tx, rx=pcie_rx, replays=0),
        nvlink=Nvlink(up=_NVLINKS, down=0, tx=nvlink_tx, rx=nvlink_rx, errors=0),
        activity=replace(activity, doing=activity_words([activity] * FEWEST)),
    )  # fmt: skip


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
