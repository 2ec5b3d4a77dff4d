"""Machines for the snapshots of whole screens: the same frames on every run."""

from __future__ import annotations

from typing import Any

from gputop.model.machine.frame import Frame, Host, PciCard, Problem, Process
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.origin import Container, Origin
from gputop.model.machine.sections import Ecc, Health, Nvlink, Throttle, Xid
from gputop.sources.demo.source import demo_frame
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of, uuid_of

_LAB = Host(name="lab-3", boot_id="boot", cpu=0.41, cpu_count=64, memory_total=1008 * GIB,
            memory_used=212 * GIB)  # fmt: skip


def demo(seconds: int = 40) -> list[Frame]:
    """The demo for so long: histories have something to show."""
    return [demo_frame(NOON + second, second, 1.0) for second in range(seconds)]


def _lab(*parts: Gpu | Process, **values: Any) -> Frame:
    return frame_of(*parts, host=_LAB, interval=1.0, **values)


def _busy(index: int, memory: int, load: float, **values: Any) -> Gpu:
    usual = {"memory_used": memory * GIB, "memory_free": (140 - memory) * GIB,
             "utilization": load, "temperature": 40 + 30 * load, "power": 75 + 560 * load,
             "sm_clock": 1_980_000_000, "idle_for": 0.0}  # fmt: skip
    return gpu_of(index, **{**usual, **values})


def mig() -> list[Frame]:
    """A divided GPU, one in MIG mode without a device, and one that is whole."""
    return [
        _lab(
            gpu_of(0, mig_mode=True, utilization=None, memory_used=31 * GIB,
                   mig=(_part(1, 0, "3g.71gb", 70, 30), _part(5, 0, "2g.35gb", 35, 1),
                        _part(13, 0, "1g.18gb", 17, 0), _part(14, 0, "1g.18gb", 17, 0))),
            gpu_of(1, mig_mode=True, utilization=None, mig=()),
            _busy(2, 121, 0.97),
            process_of(7001, gpu_instance=1, compute_instance=0, gpu_memory=30 * GIB,
                       sm_utilization=None),
            process_of(7002, gpu_instance=5, compute_instance=0, gpu_memory=GIB, user="bob",
                       sm_utilization=None, command="python -m ipykernel_launcher -f k.json"),
            process_of(7003, 2, gpu_memory=120 * GIB, user="carol", sm_utilization=0.97),
        )
    ]  # fmt: skip


def _part(gi: int, ci: int, profile: str, total: int, used: int) -> MigDevice:
    return MigDevice(uuid=f"MIG-{gi:08x}-{ci}", gi=gi, ci=ci, profile=profile,
                     memory_total=total * GIB, memory_used=used * GIB)  # fmt: skip


def hung() -> list[Frame]:
    """GPU 1 last answered a minute ago, GPU 3 never; the others answer."""
    return [
        _lab(
            _busy(0, 98, 0.97),
            _busy(1, 98, 0.95, stale_for=63.0),
            gpu_of(2),
            Gpu(index=3, state="silent", stale_for=63.0),
            process_of(4101, 0, gpu_memory=97 * GIB, sm_utilization=0.97),
            process_of(4101, 1, gpu_memory=97 * GIB, sm_utilization=None, state="D"),
        )
    ]


_HOT = ("hw_thermal_slowdown",)


def sick() -> list[Frame]:
    """A GPU that fell off the bus, one with broken memory, one that is too hot, one that is well;
    and memory that nobody admits to."""
    return [
        _lab(
            gpu_of(0, error="GPU is lost", health=Health(xids=(Xid(79, NOON - 12),))),
            _busy(1, 60, 0.4, ecc=Ecc(remap_failure=True), nvlink=Nvlink(up=17, down=1)),
            _busy(2, 80, 1.0, temperature=89.0, sm_clock=345_000_000,
                  throttle=Throttle(reasons=_HOT, lasting=_HOT)),
            gpu_of(3, memory_used=38 * GIB, memory_unaccounted=37 * GIB),
            process_of(5001, 1, gpu_memory=59 * GIB),
            process_of(5002, 2, gpu_memory=79 * GIB, user="bob", sm_utilization=1.0),
        )
    ]  # fmt: skip


def sixteen() -> list[Frame]:
    """Sixteen GPUs and forty processes of five users, in containers and jobs."""
    users = ("alice", "bob", "carol", "dave", "averylongusername")
    gpus = [_busy(k, 20 + 7 * k, (k % 5) / 4) if k % 4 else gpu_of(k) for k in range(16)]
    busy = [gpu.index for gpu in gpus if gpu.idle_for is not None]
    processes = [
        process_of(6000 + k, busy[k % len(busy)], user=users[k % 5], gpu_memory=(1 + k) * GIB // 2,
                   start_time=NOON - 60 * 3**(k % 8), sm_utilization=(k % 9) / 10 or None,
                   cpu=k / 10, origin=_origin(k))
        for k in range(40)
    ]  # fmt: skip
    return [_lab(*gpus, *processes)]


def _origin(k: int) -> Origin:
    if k % 3:
        return Origin(cwd=f"/home/alice/{k}", slurm_job="4711", slurm_step=str(k))
    return Origin(container=Container(f"{k:02d}" * 32, "docker", f"run-{k}", "team/train:2"))


def fleet() -> list[Frame]:
    """Four hosts of the demo's fleet: one is full, one has a GPU that hangs, one that is sick."""
    return [demo_frame(NOON + 40, 40.0, 1.0, f"node{number:02d}") for number in (2, 3, 4, 5)]


def foreign() -> list[Frame]:
    """Other scripts, commands longer than their column, and a process of another namespace."""
    wide = process_of(8001, 0, user="ζωή", command="python 訓練.py --名前 " + "長い" * 40)
    unseen = Process(pid=8002, gpu_uuid=uuid_of(1), gpu_memory=3 * GIB, elsewhere=True)
    return [_lab(_busy(0, 11, 0.5), _busy(1, 4, 0.1), wide, unseen)]


def no_gpu() -> list[Frame]:
    """The driver is loaded, and its card is gone."""
    card = PciCard(bus_id="0000:17:00.0", device_id="2335", driver="nvidia")
    problem = Problem(
        code="no_gpu",
        text="the NVIDIA driver is loaded and finds no GPU",
        advice="look for a card that fell off the bus ('sudo dmesg | grep -i xid')",
        cards=(card,),
    )
    return [Frame(host=_LAB, time=NOON, problem=problem)]
