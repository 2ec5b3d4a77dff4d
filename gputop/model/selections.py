"""What a program selects among the GPUs that CUDA leaves it, as a person writes it down, and what
comes of it on a machine. The rules are in layers.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gputop.errors import UsageError
from gputop.model.advice import of_tensorflow, request_advice, requested
from gputop.model.enumeration import Device
from gputop.model.inventory import Inventory
from gputop.model.layers import (
    JAX_FRACTION,
    LogicalDevice,
    Selection,
    claim,
    jax_visible_devices,
    local_rank,
    tf_logical_devices,
    tf_visible_device_list,
)
from gputop.model.mapping import Mapping as Answer
from gputop.model.text import GIB, MIB

Json = dict[str, Any]

_LOGICAL = re.compile(r"([0-9]{1,4}):([0-9]{1,9}(?:,[0-9]{1,9})*)", re.ASCII)
_UNKNOWN = Selection(None, "unknown", "which GPU is which cannot be told")
_FITS = {None: "", True: ", which is free now", False: ", which is NOT free now"}


class Layers(msgspec.Struct, frozen=True):
    """What a program selects after CUDA; nothing by default."""

    tf_visible: str | None = None
    tf_logical: Mapping[int, Sequence[int]] = {}
    """Memory limits in bytes, by CUDA ordinal."""
    fraction: float | None = None
    jax: bool = False
    """The program uses JAX, which takes memory in advance."""
    jax_visible: str | None = None
    local_rank: int | None = None
    device: str | None = None
    """The name that the program asks for, as cuda:2."""

    def tensorflow(self, count: int) -> Selection:
        """TensorFlow's GPUs among `count` visible ones."""
        found = tf_visible_device_list(self.tf_visible or "", count)
        absent = [k for k in self.tf_logical if k not in (found.ordinals or ())]
        if found.ordinals is None or not absent:
            return found
        message = (
            f"logical devices are configured on GPU {absent[0]}, which TensorFlow does not see"
        )
        return Selection(None, "tf_error_range", message)

    @property
    def share(self) -> float | None:
        """The share (0..1) of every GPU's memory that the program takes."""
        jax = self.jax or self.jax_visible is not None
        return JAX_FRACTION if jax and self.fraction is None else self.fraction


class Layer(msgspec.Struct, frozen=True):
    """What comes of one selection: `devices`, or None and the error."""

    id: Literal["tensorflow", "jax", "local_rank", "device"]
    selection: Selection
    devices: tuple[LogicalDevice, ...] | None

    @property
    def raises(self) -> bool:
        """Whether the program ends with an error."""
        return self.selection.error not in (None, "unknown")


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
    """Read what a person wrote; UsageError with what is wrong.

    `tf_logical` are texts such as 0:2048,2048: a CUDA ordinal, and memory limits in MiB.
    """
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(
            f"a memory fraction of {fraction:g} is not above 0 and at most 1 (--memory-fraction)"
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
    return Layers(tf_visible, logical, fraction, jax, jax_visible, local_rank, device)


def selected(answer: Answer, layers: Layers) -> Iterator[Layer]:
    """Give what comes of every selection that was made."""
    count = None if answer.visible is None else len(answer.visible)
    seen = answer  # by TensorFlow, once it has selected
    if layers.tf_visible is not None or layers.tf_logical:
        found = _UNKNOWN if count is None else layers.tensorflow(count)
        limits = layers.tf_logical
        devices = None if found.ordinals is None else tf_logical_devices(found.ordinals, limits)
        yield Layer("tensorflow", found, devices)
        if answer.visible and devices is not None and of_tensorflow(layers.device or ""):
            gpus = tuple(answer.visible[one.ordinal] for one in devices)
            seen = msgspec.structs.replace(answer, visible=gpus, count=len(gpus))
    if layers.jax_visible is not None:
        found = _UNKNOWN if count is None else jax_visible_devices(layers.jax_visible, count)
        yield _layer("jax", found, "jax.devices()[{k}]")
    if layers.local_rank is not None:
        found = _UNKNOWN if count is None else local_rank(layers.local_rank, count)
        yield _layer("local_rank", found, "cuda:{ordinal}")
    if layers.device is not None:
        yield _requested(layers.device, seen, answer)


def _layer(id_: Literal["jax", "local_rank"], found: Selection, name: str) -> Layer:
    if found.ordinals is None:
        return Layer(id_, found, None)
    named = (LogicalDevice(name.format(k=k, ordinal=o), o) for k, o in enumerate(found.ordinals))
    return Layer(id_, found, tuple(named))


def _requested(name: str, seen: Answer, answer: Answer) -> Layer:
    wrong = request_advice(name, seen)
    if wrong is not None:
        return Layer("device", Selection(None, "no_such_device", wrong.message), None)
    if seen.visible is None or answer.visible is None:
        return Layer("device", _UNKNOWN, None)
    ordinal = answer.visible.index(seen.visible[requested(name) or 0])
    return Layer("device", Selection((ordinal,)), (LogicalDevice(name, ordinal),))


def identity(device: Device) -> Json:
    """Which device of the machine it is, as JSON has it."""
    return {"gpu": device.index, "uuid": device.uuid, "mig_uuid": device.mig_uuid}


def layers_json(answer: Answer, inventory: Inventory, layers: Layers) -> Json:
    """What comes of the selections (null where not made, or with an error), and the memory."""
    found: Json = dict.fromkeys(("tensorflow", "jax", "local_rank", "device", "error", "message"))
    gpus = tuple(answer.visible or answer.visible_set or ())
    chosen = gpus
    for layer in selected(answer, layers):
        if layer.devices is None:
            found["error"] = found["error"] or layer.selection.error
            found["message"] = found["message"] or layer.selection.message
            chosen = () if layer.raises else chosen
            continue
        found[layer.id] = [
            {"name": one.name, **identity(gpus[one.ordinal]), "memory_limit": one.memory_limit}
            for one in layer.devices
        ]
        if layer.id in ("tensorflow", "jax"):
            chosen = tuple(gpus[ordinal] for ordinal in sorted(layer.selection.ordinals or ()))
    found["memory"] = [*_shares(chosen, inventory, layers), *_limits(gpus, inventory, layers)]
    return found


def _shares(gpus: Sequence[Device], inventory: Inventory, layers: Layers) -> Iterator[Json]:
    for device in gpus if layers.share is not None else ():
        usage = inventory.usage_of(device)
        part = claim(layers.share or 0, usage.memory_total, usage.memory_free)
        size = {"bytes": part and part.size, "fits": part and part.fits}
        yield {**identity(device), "fraction": layers.share, **size}


def _limits(gpus: Sequence[Device], inventory: Inventory, layers: Layers) -> Iterator[Json]:
    """What TensorFlow's logical devices of a GPU may take together."""
    for ordinal, limits in layers.tf_logical.items():
        if ordinal < len(gpus):
            free = inventory.usage_of(gpus[ordinal]).memory_free
            fits = None if free is None else sum(limits) <= free
            size = {"bytes": sum(limits), "fits": fits}
            yield {**identity(gpus[ordinal]), "fraction": None, **size}


def layer_lines(answer: Answer, inventory: Inventory, layers: Layers) -> Iterator[str]:
    """What comes of it, for people; nothing where nothing was selected."""
    who = {"tensorflow": "TensorFlow ", "jax": "JAX ", "device": ""}
    who["local_rank"] = f"LOCAL_RANK={layers.local_rank} "
    found = layers_json(answer, inventory, layers)
    for layer in selected(answer, layers):
        name = who[layer.id]
        if layer.devices is None:
            subject = f"{name}raises an error" if name and layer.raises else name or "error"
            yield f"{subject}: {layer.selection.message}"
        for one in found[layer.id] or ():
            limit = one["memory_limit"]
            room = "" if limit is None else f"  {limit / GIB:.2f} GiB"
            yield f"  {name + one['name']:<25} -> {_label(one)}{room}"
    if layers.share != layers.fraction:
        yield (
            f"JAX takes {layers.share:g} of each GPU at its first operation"
            " (XLA_CLIENT_MEM_FRACTION sets another share; with XLA_PYTHON_CLIENT_PREALLOCATE=false"
            " it takes what it needs)"
        )
    for one in found["memory"]:
        if one["bytes"] is None:
            yield f"  {_label(one)}: its memory is not known"
        elif one["fraction"] is not None or one["fits"] is False:
            share = "the limits" if one["fraction"] is None else f"{one['fraction']:g}"
            verb = "are" if one["fraction"] is None else "is"
            size = f"{one['bytes'] / GIB:.2f} GiB{_FITS[one['fits']]}"
            yield f"  {share} of {_label(one)} {verb} {size}"


def _label(one: Json) -> str:
    return str(one["mig_uuid"] or f"GPU {one['gpu']}")
