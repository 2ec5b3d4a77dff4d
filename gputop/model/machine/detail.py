"""Details of one process, sent on request: too much, or too private, for every frame.

A secret is never shown, not even to root, who could read it: others see the screen, and frames go
into files.

Values of variables are shown unasked only if programs for GPUs read them. These are listed by exact
name, or by a prefix that belongs to such programs alone: not RAY_ and VLLM_ as such, because
people give their own variables such names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from gputop.model.machine.environment import State
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.text import printable

VariableKind = Literal["gpu", "other", "secret"]
"""gpu: of CUDA, a framework, a launcher or a job; secret: its value is never shown."""

_MOST_VARIABLES = 512
_NAME, _VALUE = 96, 1024
"""Most characters of each."""
_PREFIXES = (
    "CUDA_MPS_", "CUDA_CACHE_", "CUDA_COREDUMP_", "CUDA_ENABLE_", "CUDA_DISABLE_", "CUDA_FORCE_",
    "CUDNN_LOG", "CUBLAS_", "CUBLASLT_", "NCCL_", "NVSHMEM_", "NVIDIA_REQUIRE_", "NVIDIA_DRIVER_",
    "NVIDIA_DISABLE_", "NVIDIA_TF32_", "NVIDIA_MIG_", "SLURM_JOB_", "SLURM_STEP_", "SLURM_NODE",
    "SLURM_NTASKS", "SLURM_NNODES", "SLURM_NPROCS", "SLURM_TASK", "SLURM_CPU", "SLURM_GPU",
    "SLURM_MEM_", "SLURM_ARRAY_", "SLURM_TOPOLOGY_", "SLURM_SUBMIT_", "SLURM_CLUSTER_",
    "SLURM_LAUNCH_", "SLURM_RESTART_", "SLURM_THREADS_", "SLURMD_", "TORCH_NCCL_", "TORCH_CUDA_",
    "TORCH_DISTRIBUTED_", "TORCH_SHOW_", "TORCHELASTIC_", "TORCHINDUCTOR_", "TORCHDYNAMO_",
    "PYTORCH_CUDA_", "PYTORCH_NO_CUDA_", "PYTORCH_ALLOC_", "TF_CPP_", "TF_GPU_", "TF_XLA_",
    "TF_FORCE_GPU_", "TF_NUM_", "TF_ENABLE_", "TF_DISABLE_", "TF_CUDNN_", "TF_MIN_GPU_",
    "XLA_PYTHON_CLIENT_", "JAX_ENABLE_", "JAX_DISABLE_", "JAX_DEBUG_", "JAX_NUM_", "JAX_PROCESS_",
    "JAX_COORDINATOR_", "JAX_CUDA_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "RAY_JOB_",
    "RAY_EXPERIMENTAL_", "RAY_DISABLE_", "RAY_ENABLE_", "RAY_CGRAPH_", "RAY_DEDUP_", "VLLM_USE_",
    "VLLM_ATTENTION_", "VLLM_WORKER_", "VLLM_LOGGING_", "VLLM_DP_", "VLLM_CPU_", "VLLM_ENABLE_",
    "VLLM_DISABLE_", "VLLM_TORCH_", "VLLM_ALLOW_", "KMP_", "GOMP_",
)  # fmt: skip
_NAMES_TEXT = """
CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_HOME CUDA_PATH CUDA_ROOT CUDA_VERSION CUDA_INC_PATH
CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_DEVICE_MAX_CONNECTIONS CUDA_AUTO_BOOST
CUDA_MANAGED_FORCE_DEVICE_ALLOC CUDA_SCALE_LAUNCH_QUEUES CUDA_LOG_FILE CUDA_TOOLKIT_PATH
NVIDIA_VISIBLE_DEVICES NVIDIA_PRODUCT_NAME NV_CUDA_CUDART_VERSION NV_CUDA_LIB_VERSION
NVIDIA_CUDA_END_OF_LIFE NVIDIA_IMEX_CHANNELS CUDNN_VERSION NVARCH NO_CUDA USE_CUDA SLURM_PROCID
SLURM_LOCALID SLURM_GTIDS SLURM_JOBID SLURM_STEPID SLURM_DISTRIBUTION SLURM_CONF
SLURM_SRUN_COMM_HOST SLURM_WORKING_CLUSTER SLURM_PRIO_PROCESS SLURM_TRES_PER_TASK TORCH_HOME
TORCH_LOGS TORCH_COMPILE_DEBUG TORCH_CPP_LOG_LEVEL TF_CONFIG TF_FLAGS TF_DETERMINISTIC_OPS
TF_USE_LEGACY_KERAS XLA_FLAGS JAX_PLATFORMS JAX_PLATFORM_NAME JAX_VISIBLE_DEVICES
JAX_TRACEBACK_FILTERING JAX_COMPILATION_CACHE_DIR OMPI_MCA_btl OMPI_MCA_pml RAY_ADDRESS
RAY_NODE_IP_ADDRESS RAY_TMPDIR RAY_BACKEND_LOG_LEVEL RAY_memory_monitor_refresh_ms VLLM_HOST_IP
VLLM_PORT VLLM_CACHE_ROOT VLLM_TARGET_DEVICE VLLM_NCCL_SO_PATH VLLM_PP_LAYER_PARTITION
VLLM_CONFIGURE_LOGGING OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES MKL_NUM_THREADS
OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS RANK LOCAL_RANK NODE_RANK GROUP_RANK ROLE_RANK
WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR MASTER_PORT
MPI_LOCALRANKID MPI_LOCALNRANKS GPU_DEVICE_ORDINAL TOKENIZERS_PARALLELISM
ACCELERATE_MIXED_PRECISION ACCELERATE_USE_FSDP ACCELERATE_USE_DEEPSPEED CROSS_RANK CROSS_SIZE
HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_FUSION_THRESHOLD
"""
_NAMES = frozenset(_NAMES_TEXT.split())


class EnvVariable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A variable that a process was started with."""

    name: str
    kind: VariableKind
    value: str | None = None
    """None if it is not shown."""


class ChildProcess(msgspec.Struct, frozen=True):
    """A process that the process started itself."""

    process: ProcessId
    start_time: float
    """Seconds since the epoch."""
    command: str


class ProcessDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a `protocol.Detail`: None is what may not be read."""

    process: ProcessId
    """The one that was asked about."""
    gone: bool = False
    """It has ended, is a zombie, or another process has its PID."""
    variables: tuple[EnvVariable, ...] | None = None
    """Sorted by name; of very many, those about GPUs and the first of the others."""
    variables_count: int = 0
    """How many it was started with."""
    missing: State = "unset"
    """Why there are no variables."""
    files: int | None = None
    """How many it has open."""
    devices: tuple[str, ...] | None = None
    """Its open files that are devices of GPUs or DRI."""
    devices_whole: bool = True
    """False if it has more files open than could be searched."""
    children: tuple[ChildProcess, ...] = ()
    """Of very many, only the oldest."""
    children_count: int = 0


class ProcessStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a `protocol.Stack`."""

    process: ProcessId
    lines: tuple[str, ...] = ()
    """As py-spy printed them."""
    problem: str | None = None
    """Why there are none, and what to do."""


def is_of_gpus(name: str) -> bool:
    """Whether a variable is about CUDA, a framework, a launcher or a job."""
    return name in _NAMES or name.startswith(_PREFIXES)


def kind_of(name: str, value: str) -> VariableKind:
    from gputop.model.machine.secrets import is_secret  # many patterns: 3 ms, seldom needed

    if is_secret(name, value):
        return "secret"
    return "gpu" if is_of_gpus(name) else "other"


def env_variables(variables: Mapping[str, str], *, hidden: bool) -> tuple[EnvVariable, ...]:
    """Return what may be shown of variables, printable: values of those about GPUs, with `hidden`
    also of others, but only the names of secrets."""
    first = sorted(variables, key=lambda name: (not is_of_gpus(name), name))[:_MOST_VARIABLES]
    shown = []
    for name in sorted(first):
        value = variables[name]
        kind = kind_of(name, value)
        open_ = kind == "gpu" or (hidden and kind == "other")
        text = printable(value, _VALUE) if open_ else None
        shown.append(EnvVariable(printable(name, _NAME), kind, text))
    return tuple(shown)
