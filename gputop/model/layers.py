"""What a framework selects among the GPUs that CUDA_VISIBLE_DEVICES left it.

Numbers here are CUDA ordinals: places in `Mapping.visible`, never NVML indices.

Sources: TensorFlow `device_id_utils.h` (visible_device_list), `context.py`
(set_logical_device_configuration), `gpu_device.cc` (memory fraction); JAX's reference, "GPU memory
allocation", and `jax_cuda_visible_devices`; torchrun's LOCAL_RANK.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from gputop.model.enumeration import shown

JAX_FRACTION = 0.75
"""What JAX takes of every GPU at its first operation, unless told otherwise."""

# C's isspace() and ASCII digits, as strtol() knows them; TensorFlow takes no more than 32 bits.
_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]{1,12})[ \t\n\v\f\r]*")
_MAX_INT32 = 2**31 - 1


class Selection(msgspec.Struct, frozen=True):
    """The GPUs that a framework goes on with; any bad entry is an error, not a stop."""

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


class LogicalDevice(msgspec.Struct, frozen=True):
    """A device name of TensorFlow's and the GPU behind it."""

    name: str
    ordinal: int
    memory_limit: int | None = None
    """Bytes; None: as much as TensorFlow takes of a GPU."""


def tf_visible_device_list(text: str, count: int) -> Selection:
    """Read TensorFlow's GPUOptions.visible_device_list over `count` visible GPUs; "" is all."""
    if not text:
        return Selection(tuple(range(count)))
    ordinals = []
    for entry in text.split(","):
        match = _INTEGER.fullmatch(entry)
        if match is None or abs(int(match[1])) > _MAX_INT32:
            return Selection(None, "tf_error_parse", f"{shown(entry)} is not a number")
        ordinals.append(int(match[1]))
        if not 0 <= ordinals[-1] < count:
            return Selection(None, "tf_error_range", _absent(ordinals[-1], count))
    if len(set(ordinals)) < len(ordinals):
        return Selection(None, "tf_error_duplicate", f"{shown(text)} names a GPU twice")
    return Selection(tuple(ordinals))


def tf_set_visible_devices(text: str, count: int) -> Selection:
    """Read the numbers of the GPUs given to tf.config.set_visible_devices, whose order does not
    matter; "" is none."""
    if not text.strip():
        return Selection(())
    found = tf_visible_device_list(text, count)
    return found if found.ordinals is None else Selection(tuple(sorted(found.ordinals)))


def jax_visible_devices(text: str, count: int) -> Selection:
    """Read JAX's flag jax_cuda_visible_devices: "all" or integers; their order does not matter."""
    if text == "all":
        return Selection(tuple(range(count)))
    matches = [_INTEGER.fullmatch(entry) for entry in text.split(",")]
    chosen = sorted({int(match[1]) for match in matches if match is not None})
    if None in matches:
        return Selection(None, "jax_error_parse", f"{shown(text)} is not a list of numbers")
    bad = [number for number in chosen if not 0 <= number < count]
    if bad:
        return Selection(None, "jax_error_range", _absent(bad[0], count))
    return Selection(tuple(chosen))


def tf_logical_devices(
    ordinals: Sequence[int], limits: Mapping[int, Sequence[int]]
) -> tuple[LogicalDevice, ...]:
    """Name TensorFlow's logical devices: a GPU with limits (bytes) becomes as many as it has.

    `ordinals` are the GPUs that TensorFlow sees, `limits` belong to some of them.
    """
    found: list[LogicalDevice] = []
    for ordinal in ordinals:
        for limit in limits.get(ordinal) or (None,):
            found.append(LogicalDevice(f"/device:GPU:{len(found)}", ordinal, limit))
    return tuple(found)


def local_rank(rank: int, count: int) -> Selection:
    """Give the GPU of torchrun's worker with LOCAL_RANK=`rank`, which counts from 0."""
    if rank < count:
        return Selection((rank,))
    message = f"{_absent(rank, count)}: 'CUDA error: invalid device ordinal'"
    return Selection(None, "no_such_device", f"{message}. Start at most {count} workers")


def _absent(ordinal: int, count: int) -> str:
    return f"there is no GPU {ordinal} among the {count} that CUDA_VISIBLE_DEVICES leaves"
