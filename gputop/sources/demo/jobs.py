"""The processes of the demo."""

from __future__ import annotations

from typing import NamedTuple

from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.machine.detail import ProcessDetail, env_variables
from gputop.model.machine.environment import NAME, ORDER, Environ
from gputop.model.machine.origin import Ancestor, Container, Origin
from gputop.protocol.messages import Detail


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
