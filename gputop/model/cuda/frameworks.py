"""What frameworks call the k-th visible device.

Launchers (torchrun, accelerate, DeepSpeed, Ray) and vLLM use PyTorch's names: local rank k.
JAX's id is the CUDA ordinal only in a program of one process; TensorFlow's names are those before
any logical devices are configured.

Sources: torch.device, tf.config and jax.devices in the projects' own references; tensorflow
`gpu_device.cc`; CuPy `Device`; Numba `cuda.gpus`; ONNX Runtime's CUDA execution provider;
llama.cpp `--device`.
"""

import msgspec


class Framework(msgspec.Struct, frozen=True):
    """A framework and its name for a device, where {k} stands for the logical index."""

    id: str
    label: str
    template: str


FRAMEWORKS = (
    Framework("pytorch", "PyTorch", "cuda:{k}"),
    Framework("tensorflow", "TensorFlow", "/device:GPU:{k}"),
    Framework("tensorflow1", "TensorFlow before 1.4", "/gpu:{k}"),
    Framework("jax", "JAX", "CudaDevice(id={k})"),
    Framework("cupy", "CuPy", "cupy.cuda.Device({k})"),
    Framework("numba", "Numba", "cuda.gpus[{k}]"),
    Framework("onnxruntime", "ONNX Runtime", "device_id={k}"),
    Framework("llama_cpp", "llama.cpp", "CUDA{k}"),
    Framework("vllm", "vLLM", "cuda:{k}"),
)

MAIN = ("pytorch", "tensorflow")
"""The ids of those that the main screen names."""

_BY_ID = {framework.id: framework for framework in FRAMEWORKS}


def device_name(framework: str, k: int) -> str:
    """Name logical device `k` (from 0) in a framework; KeyError for an id not in FRAMEWORKS."""
    return _BY_ID[framework].template.format(k=k)
