"""The processes of the demo. Signals to them are played: nothing is sent, and what they are for
behaves as real processes do."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.machine.detail import ProcessDetail, env_variables
from gputop.model.machine.environment import NAME, ORDER, Environ
from gputop.model.machine.origin import Ancestor, Container, Origin
from gputop.model.machine.signals import Target, Verdict, ends_processes, signal_name
from gputop.model.machine.text import GIB, size
from gputop.protocol.messages import Detail, Reply, Signal


class DemoJob(NamedTuple):
    """An invented process: `load` is the SM share that it takes alone, None if it computes nothing;
    `age` is in seconds at the start of the demo."""

    pid: int
    user: str
    command: str
    gpus: tuple[int, ...]
    memory: float
    load: float | None
    cpu: float
    age: float
    variables: dict[str, str] | None = {}
    """Variables that decide which GPUs it sees; None: it wrote over them."""
    origin: Origin = Origin()
    is_stubborn: bool = False
    """Whether it ignores SIGTERM."""


JOBS = (
    # PID, user, command, GPUs, GiB, load, cores, age, variables, origin
    DemoJob(21195, "alice", "python train.py --config llama-8b.yaml --lr 3e-4",
            (0, 1), 97.4, 0.96, 1.04, 8040, {NAME: "0,1", ORDER: PCI_BUS_ID},
            Origin(cwd="/home/alice/llama", venv="/home/alice/llama/.venv",
                   ancestors=(Ancestor(20980, "bash"), Ancestor(20977, "tmux: server")),
                   session="tmux default:$0")),
    DemoJob(30411, "bob", "/home/bob/.venv/bin/python -m ipykernel_launcher -f kernel-7f.json",
            (2,), 132.9, None, 0.01, 93600, {},
            Origin(cwd="/home/bob", venv="/home/bob/.venv", unit="jupyterhub.service"), True),
    DemoJob(31002, "carol", "python3 -u finetune.py --model mistral --batch 32",
            (3,), 61.2, 0.83, 1.31, 2700, {NAME: "3"},
            Origin(cwd="/scratch/carol", slurm_job="4711", slurm_step="0")),
    DemoJob(31003, "carol", "python3 -u evaluate.py --split test",
            (3,), 12.6, 0.11, 0.72, 310, {"CUDA_VISIBLE_DIVICES": "3"}),
    DemoJob(40217, "serving", "VLLM::EngineCore --model Qwen3-32B",
            (4,), 121.8, 0.58, 0.97, 712800, None,
            Origin(cwd="/vllm-workspace",
                   container=Container("4f" * 32, "docker", "vllm", "vllm/vllm-openai"))),
    DemoJob(40990, "dave", "./nbody -benchmark -numbodies=256000 -fp64",
            (5,), 0.9, 0.99, 1.0, 95, {NAME: "4,5,6", "LOCAL_RANK": "1"}),
    DemoJob(41180, "erin", "python train.py --task segmentation --workers 8",
            (7,), 38.2, 0.71, 2.6, 12_600, {NAME: "7,6"}),
)  # fmt: skip


HERTZ = 100
"""Clock ticks in a second: the demo has booted at the epoch."""


def job_of(pid: int) -> DemoJob | None:
    return next((job for job in JOBS if job.pid == pid), None)


def demo_detail(request: Detail) -> ProcessDetail:
    job = job_of(request.process.pid)
    if job is None:
        return ProcessDetail(request.process, gone=True)
    usual = {"HOME": job.origin.cwd or "/", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "8"}
    usual |= {"NCCL_DEBUG": "WARN", "WANDB_API_KEY": "invented"}
    variables = None
    if job.variables is not None:
        variables = env_variables(usual | job.variables, hidden=request.hidden)
    return ProcessDetail(
        request.process,
        variables=variables,
        missing=environ_of(job).missing,
        files=61,
        devices=(*(f"/dev/nvidia{index}" for index in job.gpus), "/dev/nvidiactl"),
    )


def environ_of(job: DemoJob) -> Environ:
    return Environ({}, "overwritten") if job.variables is None else Environ(job.variables)


class DemoSignals:
    """The invented processes of a machine that got signals."""

    def __init__(self, jobs: Iterable[DemoJob]) -> None:
        self._jobs = {job.pid: job for job in jobs}
        self.ended: dict[int, float] = {}
        """When they ended, in seconds since the epoch, by PID."""

    def reply(self, request: Signal, now: float) -> Reply:
        """Return the verdicts of a request that comes at `now`."""
        verdicts = tuple(self._verdict(request, target, now) for target in request.targets)
        return Reply(request=request.id, verdicts=verdicts)

    def _verdict(self, request: Signal, target: Target, now: float) -> Verdict:
        job = self._jobs.get(target.process.pid)
        verdict = Verdict(
            request_id=request.id, process=target.process, signal=request.number,
            outcome="gone", words="it had ended before: nothing was sent",
        )  # fmt: skip
        if job is None or job.pid in self.ended:
            return verdict
        start = target.process.start_ticks
        verdict = replace(
            verdict, command=job.command, user=job.user, start_time=start and start / HERTZ
        )
        name = signal_name(request.number)
        if request.number == 0:
            words = f"it is {job.user}'s, in the demo no signal is really sent"
            ignored = (int(signal.SIGTERM),) if job.is_stubborn else ()
            return replace(
                verdict, outcome="alive", caution="foreign", words=words, ignored=ignored
            )
        if not ends_processes(request.number):
            return replace(verdict, outcome="alive", seconds=0.0, words=f"runs on after {name}")
        if job.is_stubborn and request.number != signal.SIGKILL:
            words = f"it ignores {name}; SIGKILL ends it"
            return replace(verdict, outcome="ignored", seconds=0.0, words=words)
        self.ended[job.pid] = now
        held = size(int(job.memory * GIB) * len(job.gpus))
        where = ",".join(map(str, job.gpus))
        words = f"ended at once after {name}; {held} came back on GPU {where}"
        return replace(verdict, outcome="exited", seconds=0.0, ended=True, words=words)
