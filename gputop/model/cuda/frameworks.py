"""What frameworks call the k-th visible device, and what a program selects among them.

Numbers here are CUDA ordinals: places in `Mapping.visible`, never NVML indices. Launchers
(torchrun, accelerate, DeepSpeed, Ray) and vLLM use PyTorch's names: local rank k. JAX's id is the
CUDA ordinal only in a program of one process; TensorFlow's names are those before any logical
devices are configured.

Sources: torch.device, tf.config and jax.devices in the projects' own references; CuPy `Device`;
Numba `cuda.gpus`; ONNX Runtime's CUDA execution provider; llama.cpp `--device`; TensorFlow
`device_id_utils.h` (visible_device_list), `context.py` (set_logical_device_configuration),
`gpu_device.cc` (names, memory fraction); JAX's reference, "GPU memory allocation", and
`jax_cuda_visible_devices`; torchrun's LOCAL_RANK.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gputop.errors import UsageError
from gputop.model.cuda.advice import of_tensorflow, request_advice, requested
from gputop.model.cuda.enumeration import CudaDevice, shown
from gputop.model.cuda.inventory import Inventory
from gputop.model.cuda.mapping import Mapping as CudaMapping
from gputop.model.machine.text import GIB, MIB, counted

JAX_FRACTION = 0.75
"""The share of every GPU's memory that JAX takes at its first operation by default."""

# C's isspace() and ASCII digits, as strtol() knows them; TensorFlow takes no more than 32 bits.
_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]{1,12})[ \t\n\v\f\r]*")
_MAX_INT32 = 2**31 - 1
_LOGICAL = re.compile(r"([0-9]{1,4}):([0-9]{1,9}(?:,[0-9]{1,9})*)", re.ASCII)
_FITS = {None: "", True: ", which is free now", False: ", which is NOT free now"}

SelectionJson = dict[str, Any]


class Framework(msgspec.Struct, frozen=True):
    """A framework and its name for a device, in which {k} stands for the ordinal."""

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
"""The ids of the frameworks that the main screen names."""

_BY_ID = {framework.id: framework for framework in FRAMEWORKS}


def device_name(framework: str, k: int) -> str:
    """Name the device with ordinal `k` in a framework; KeyError for an id not in FRAMEWORKS."""
    return _BY_ID[framework].template.format(k=k)


# --- what a program selects -----------------------------------------------------------------------


class FrameworkSelection(msgspec.Struct, frozen=True):
    """The GPUs that a framework selects; any bad entry is an error, not a stop."""

    ordinals: tuple[int, ...] | None
    """The k-th is the framework's device k; None: see `error`."""
    error: str | None = None
    """tf_error_parse, tf_error_range, tf_error_duplicate, jax_error_parse, jax_error_range or
    no_such_device, which the framework raises; or unknown."""
    message: str = ""

    @property
    def raises(self) -> bool:
        """Whether the program ends with an error."""
        return self.error not in (None, "unknown")


_UNKNOWN = FrameworkSelection(None, "unknown", "which GPU is which is not known")


class LogicalDevice(msgspec.Struct, frozen=True):
    """A framework's name for a device, and the GPU behind it."""

    name: str
    ordinal: int
    memory_limit: int | None = None
    """Bytes; None: as much as the framework takes of a GPU."""


def tf_visible_device_list(text: str, count: int) -> FrameworkSelection:
    """Read TensorFlow's GPUOptions.visible_device_list over `count` visible GPUs; "" is all."""
    if not text:
        return FrameworkSelection(tuple(range(count)))
    ordinals = []
    for entry in text.split(","):
        match = _INTEGER.fullmatch(entry)
        if match is None or abs(int(match[1])) > _MAX_INT32:
            return FrameworkSelection(None, "tf_error_parse", f"{shown(entry)} is not a number")
        ordinals.append(int(match[1]))
        if not 0 <= ordinals[-1] < count:
            return FrameworkSelection(None, "tf_error_range", _absent(ordinals[-1], count))
    if len(set(ordinals)) < len(ordinals):
        return FrameworkSelection(None, "tf_error_duplicate", f"{shown(text)} names a GPU twice")
    return FrameworkSelection(tuple(ordinals))


def tf_set_visible_devices(text: str, count: int) -> FrameworkSelection:
    """Read the numbers of the GPUs given to tf.config.set_visible_devices; their order does not
    matter, and "" is none."""
    if not text.strip():
        return FrameworkSelection(())
    selection = tf_visible_device_list(text, count)
    if selection.ordinals is None:
        return selection
    return FrameworkSelection(tuple(sorted(selection.ordinals)))


def jax_visible_devices(text: str, count: int) -> FrameworkSelection:
    """Read JAX's flag jax_cuda_visible_devices: "all" or integers; their order does not matter."""
    if text == "all":
        return FrameworkSelection(tuple(range(count)))
    matches = [_INTEGER.fullmatch(entry) for entry in text.split(",")]
    chosen = sorted({int(match[1]) for match in matches if match is not None})
    if None in matches:
        message = f"{shown(text)} is not a list of numbers"
        return FrameworkSelection(None, "jax_error_parse", message)
    absent = [number for number in chosen if not 0 <= number < count]
    if absent:
        return FrameworkSelection(None, "jax_error_range", _absent(absent[0], count))
    return FrameworkSelection(tuple(chosen))


def tf_logical_devices(
    ordinals: Sequence[int], limits: Mapping[int, Sequence[int]]
) -> tuple[LogicalDevice, ...]:
    """Name TensorFlow's logical devices: a GPU becomes one for each of its limits (bytes).

    `ordinals` are the GPUs that TensorFlow sees, `limits` belong to some of them.
    """
    parts = [(o, limit) for o in ordinals for limit in limits.get(o) or (None,)]
    return tuple(LogicalDevice(f"/device:GPU:{k}", *part) for k, part in enumerate(parts))


def local_rank(rank: int, count: int) -> FrameworkSelection:
    """Return the GPU of torchrun's worker with LOCAL_RANK=`rank` (from 0)."""
    if rank < count:
        return FrameworkSelection((rank,))
    message = f"{_absent(rank, count)}: 'CUDA error: invalid device ordinal'"
    message += f". Start at most {counted(count, 'worker')}" if count else ""
    return FrameworkSelection(None, "no_such_device", message)


def _absent(ordinal: int, count: int) -> str:
    return f"there is no GPU {ordinal} among the {count} that CUDA_VISIBLE_DEVICES leaves"


class Layers(msgspec.Struct, frozen=True):
    """What a program selects after CUDA; nothing by default."""

    tf_visible: str | None = None
    """TensorFlow's visible_device_list; in brackets, the GPUs given to set_visible_devices."""
    tf_logical: Mapping[int, Sequence[int]] = {}
    """Memory limits in bytes, by CUDA ordinal."""
    fraction: float | None = None
    """The share (0..1) of every GPU's memory that it takes."""
    preallocates: bool = False
    """`fraction` is what JAX takes by default."""
    jax_visible: str | None = None
    local_rank: int | None = None
    device: str | None = None
    """The name that the program asks for, such as cuda:2."""


class Layer(msgspec.Struct, frozen=True):
    """The outcome of one selection, and the program's names for the GPUs."""

    id: str
    """tensorflow, jax, local_rank or device."""
    selection: FrameworkSelection
    devices: tuple[LogicalDevice, ...] = ()


def read_layers(
    tf_visible: str | None,
    tf_logical: Sequence[str],
    fraction: float | None,
    *,
    jax: bool = False,
    jax_visible: str | None = None,
    local_rank: int | None = None,
    device: str | None = None,
) -> Layers:
    """Read the selections that a person wrote; UsageError says what is wrong.

    `tf_logical` are texts such as 0:2048,2048: a CUDA ordinal, and memory limits in MiB.
    """
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(
            f"a memory fraction (--memory-fraction) is above 0 and at most 1, not {fraction:g}"
        )
    if local_rank is not None and local_rank < 0:
        raise UsageError(f"local ranks count from 0: there is no {local_rank} (--local-rank)")
    if device is not None and requested(device) is None:
        raise UsageError(
            f"{device!r} names no GPU of a program: write cuda:2 or /device:GPU:2 (--device)"
        )
    logical = {}
    for text in tf_logical:
        match = _LOGICAL.fullmatch(text)
        if match is None:
            raise UsageError(
                f"logical devices {text!r} are not GPU:MIB,MIB: write 0:2048,2048 (--tf-logical)"
            )
        logical[int(match[1])] = tuple(int(size) * MIB for size in match[2].split(","))
    preallocates = fraction is None and (jax or jax_visible is not None)
    share = JAX_FRACTION if preallocates else fraction
    return Layers(tf_visible, logical, share, preallocates, jax_visible, local_rank, device)


def selected(mapping: CudaMapping, layers: Layers) -> Iterator[Layer]:
    """Yield the outcome of every selection that was made."""
    count = None if mapping.visible is None else len(mapping.visible)
    narrowed = mapping  # by TensorFlow, once it has selected
    if layers.tf_visible is not None or layers.tf_logical:
        selection = _UNKNOWN if count is None else _tensorflow(layers, count)
        devices = tf_logical_devices(selection.ordinals or (), layers.tf_logical)
        yield Layer("tensorflow", selection, devices)
        if mapping.visible and devices and of_tensorflow(layers.device or ""):
            gpus = tuple(mapping.visible[device.ordinal] for device in devices)
            narrowed = msgspec.structs.replace(mapping, visible=gpus, count=len(gpus))
    if layers.jax_visible is not None:
        selection = _UNKNOWN if count is None else jax_visible_devices(layers.jax_visible, count)
        yield _layer("jax", selection, lambda k, _: f"jax.devices()[{k}]")
    if layers.local_rank is not None:
        selection = _UNKNOWN if count is None else local_rank(layers.local_rank, count)
        yield _layer("local_rank", selection, lambda _, ordinal: f"cuda:{ordinal}")
    if layers.device is not None:
        name = layers.device
        yield _layer("device", _requested(name, narrowed, mapping), lambda *_: name)


def _layer(id_: str, selection: FrameworkSelection, name: Callable[[int, int], str]) -> Layer:
    ordinals = selection.ordinals or ()
    devices = tuple(LogicalDevice(name(k, ordinal), ordinal) for k, ordinal in enumerate(ordinals))
    return Layer(id_, selection, devices)


def _tensorflow(layers: Layers, count: int) -> FrameworkSelection:
    text = (layers.tf_visible or "").strip()
    if text.startswith("[") and text.endswith("]"):
        selection = tf_set_visible_devices(text[1:-1], count)
    else:
        selection = tf_visible_device_list(layers.tf_visible or "", count)
    absent = [k for k in layers.tf_logical if k not in (selection.ordinals or ())]
    if selection.ordinals is None or not absent:
        return selection
    message = f"logical devices are configured on GPU {absent[0]}, which TensorFlow does not see"
    return FrameworkSelection(None, "tf_error_range", message)


def _requested(name: str, narrowed: CudaMapping, mapping: CudaMapping) -> FrameworkSelection:
    wrong = request_advice(name, narrowed)
    if wrong is not None:
        return FrameworkSelection(None, "no_such_device", wrong.text)
    if narrowed.visible is None or mapping.visible is None:
        return _UNKNOWN
    return FrameworkSelection((mapping.visible.index(narrowed.visible[requested(name) or 0]),))


class MemoryClaim(msgspec.Struct, frozen=True):
    """The part of a GPU's memory that a program takes."""

    device: CudaDevice
    fraction: float | None
    """The share of all its memory; None: `bytes` adds up TensorFlow's logical devices."""
    bytes: int | None
    free: int | None

    @property
    def fits(self) -> bool | None:
        """Whether that much memory is free now; None if it is not known."""
        return None if self.free is None or self.bytes is None else self.bytes <= self.free


def _claims(mapping: CudaMapping, inventory: Inventory, layers: Layers) -> Iterator[MemoryClaim]:
    gpus = tuple(mapping.visible or mapping.visible_set or ())
    takes: Sequence[int] = range(len(gpus))
    for layer in selected(mapping, layers):
        if layer.id in ("tensorflow", "jax") and layer.selection.error != "unknown":
            takes = sorted(layer.selection.ordinals or ())
    usages = [inventory.usage_of(gpu) for gpu in gpus]
    for k in takes if layers.fraction is not None else ():
        total = usages[k].memory_total
        size = None if total is None else int(total * (layers.fraction or 0))
        yield MemoryClaim(gpus[k], layers.fraction, size, usages[k].memory_free)
    for k, limits in layers.tf_logical.items():
        if mapping.visible is not None and k in takes:
            yield MemoryClaim(gpus[k], None, sum(limits), usages[k].memory_free)


def identity(device: CudaDevice) -> SelectionJson:
    """Return what identifies a device on its machine, for JSON."""
    return {"gpu": device.index, "uuid": device.uuid, "mig_uuid": device.mig_uuid}


def layers_json(mapping: CudaMapping, inventory: Inventory, layers: Layers) -> SelectionJson:
    """Return the selections (null if not made, or with an error) and the memory that they take."""
    keys = ("tensorflow", "jax", "local_rank", "device", "error", "message")
    result: SelectionJson = dict.fromkeys(keys)
    gpus = mapping.visible or ()
    for layer in selected(mapping, layers):
        if layer.selection.error is None:
            result[layer.id] = [
                {"name": d.name, **identity(gpus[d.ordinal]), "memory_limit": d.memory_limit}
                for d in layer.devices
            ]
        elif result["error"] is None:
            result.update(error=layer.selection.error, message=layer.selection.message)
    result["memory"] = [
        {**identity(c.device), "fraction": c.fraction, "bytes": c.bytes, "fits": c.fits}
        for c in _claims(mapping, inventory, layers)
    ]
    return result


def layer_lines(mapping: CudaMapping, inventory: Inventory, layers: Layers) -> Iterator[str]:
    """Yield lines for people on the selections and their memory; none if nothing was selected."""
    rank = f"LOCAL_RANK={layers.local_rank}"
    subjects = {"tensorflow": "TensorFlow", "jax": "JAX", "local_rank": rank, "device": ""}
    for layer in selected(mapping, layers):
        subject, selection = subjects[layer.id], layer.selection
        if selection.error:
            raises = " raises an error" * selection.raises
            yield f"{subject or layers.device}{raises}: {selection.message}"
            continue
        for device in layer.devices:
            limit = device.memory_limit
            room = "" if limit is None else f"  {limit / GIB:.2f} GiB"
            name = f"{subject} {device.name}".lstrip()
            yield f"  {name:<25} -> {_label((mapping.visible or ())[device.ordinal])}{room}"
    if layers.preallocates:
        yield (
            f"JAX takes {layers.fraction:g} of each GPU at its first operation"
            " (XLA_CLIENT_MEM_FRACTION sets another share; with XLA_PYTHON_CLIENT_PREALLOCATE=false"
            " it takes what it needs)"
        )
    for claim in _claims(mapping, inventory, layers):
        label, size = _label(claim.device), claim.bytes
        if size is None:
            yield f"  {label}: its memory is not known"
        elif claim.fraction is not None:
            yield f"  {claim.fraction:g} of {label} is {size / GIB:.2f} GiB{_FITS[claim.fits]}"
        elif claim.fits is False:
            yield f"  the limits of {label} are {size / GIB:.2f} GiB{_FITS[claim.fits]}"


def _label(device: CudaDevice) -> str:
    return device.mig_uuid or f"GPU {device.index}"
