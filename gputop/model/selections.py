"""What a program selects among the GPUs that CUDA leaves it, as a person writes it down, and what
comes of it on a machine. The rules are in layers.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gputop.errors import UsageError
from gputop.model.advice import of_tensorflow, request_advice, requested
from gputop.model.enumeration import Device
from gputop.model.inventory import Inventory
from gputop.model.layers import (
    JAX_FRACTION,
    LogicalDevice,
    Selection,
    jax_visible_devices,
    local_rank,
    tf_logical_devices,
    tf_set_visible_devices,
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
    """TensorFlow's visible_device_list; in brackets, the GPUs given to set_visible_devices."""
    tf_logical: Mapping[int, Sequence[int]] = {}
    """Memory limits in bytes, by CUDA ordinal."""
    fraction: float | None = None
    """The share (0..1) of every GPU's memory that it takes."""
    preallocates: bool = False
    """That is what JAX takes unless told otherwise."""
    jax_visible: str | None = None
    local_rank: int | None = None
    device: str | None = None
    """The name that the program asks for, as cuda:2."""


class Layer(msgspec.Struct, frozen=True):
    """What comes of one selection, and the program's names for the GPUs."""

    id: str
    """tensorflow, jax, local_rank or device."""
    selection: Selection
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
    takes = fraction is None and (jax or jax_visible is not None)
    share = JAX_FRACTION if takes else fraction
    return Layers(tf_visible, logical, share, takes, jax_visible, local_rank, device)


def selected(answer: Answer, layers: Layers) -> Iterator[Layer]:
    """Give what comes of every selection that was made."""
    count = None if answer.visible is None else len(answer.visible)
    seen = answer  # by TensorFlow, once it has selected
    if layers.tf_visible is not None or layers.tf_logical:
        found = _UNKNOWN if count is None else _tensorflow(layers, count)
        devices = tf_logical_devices(found.ordinals or (), layers.tf_logical)
        yield Layer("tensorflow", found, devices)
        if answer.visible and found.ordinals and of_tensorflow(layers.device or ""):
            gpus = tuple(answer.visible[one.ordinal] for one in devices)
            seen = msgspec.structs.replace(answer, visible=gpus, count=len(gpus))
    if layers.jax_visible is not None:
        found = _UNKNOWN if count is None else jax_visible_devices(layers.jax_visible, count)
        names = (LogicalDevice(f"jax.devices()[{k}]", o) for k, o in enumerate(_of(found)))
        yield Layer("jax", found, tuple(names))
    if layers.local_rank is not None:
        found = _UNKNOWN if count is None else local_rank(layers.local_rank, count)
        yield Layer("local_rank", found, tuple(LogicalDevice(f"cuda:{o}", o) for o in _of(found)))
    if layers.device is not None:
        found = _requested(layers.device, seen, answer)
        yield Layer("device", found, tuple(LogicalDevice(layers.device, o) for o in _of(found)))


def _of(found: Selection) -> tuple[int, ...]:
    return found.ordinals or ()


def _tensorflow(layers: Layers, count: int) -> Selection:
    text = (layers.tf_visible or "").strip()
    if text.startswith("[") and text.endswith("]"):
        found = tf_set_visible_devices(text[1:-1], count)
    else:
        found = tf_visible_device_list(layers.tf_visible or "", count)
    absent = [k for k in layers.tf_logical if k not in _of(found)]
    if found.ordinals is None or not absent:
        return found
    message = f"logical devices are configured on GPU {absent[0]}, which TensorFlow does not see"
    return Selection(None, "tf_error_range", message)


def _requested(name: str, seen: Answer, answer: Answer) -> Selection:
    wrong = request_advice(name, seen)
    if wrong is not None:
        return Selection(None, "no_such_device", wrong.message)
    if seen.visible is None or answer.visible is None:
        return _UNKNOWN
    return Selection((answer.visible.index(seen.visible[requested(name) or 0]),))


def identity(device: Device) -> Json:
    """Which device of the machine it is, as JSON has it."""
    return {"gpu": device.index, "uuid": device.uuid, "mig_uuid": device.mig_uuid}


def layers_json(answer: Answer, inventory: Inventory, layers: Layers) -> Json:
    """What comes of the selections (null where not made, or with an error), and the memory."""
    found: Json = dict.fromkeys(("tensorflow", "jax", "local_rank", "device", "error", "message"))
    gpus = tuple(answer.visible or answer.visible_set or ())
    takes: Sequence[int] = range(len(gpus))
    for layer in selected(answer, layers):
        selection = layer.selection
        if selection.error is None:
            found[layer.id] = [
                {"name": one.name, **identity(gpus[one.ordinal]), "memory_limit": one.memory_limit}
                for one in layer.devices
            ]
        elif found["error"] is None:
            found.update(error=selection.error, message=selection.message)
        if layer.id in ("tensorflow", "jax") and selection.error != "unknown":
            takes = sorted(_of(selection))
    memory = []
    for ordinal in takes if layers.fraction is not None else ():
        total = inventory.usage_of(gpus[ordinal]).memory_total
        size = None if total is None else int(total * (layers.fraction or 0))
        memory.append(_claim(gpus[ordinal], inventory, layers.fraction, size))
    for ordinal, limits in layers.tf_logical.items():
        if answer.visible is not None and ordinal in takes:
            memory.append(_claim(gpus[ordinal], inventory, None, sum(limits)))
    return {**found, "memory": memory}


def _claim(gpu: Device, inventory: Inventory, fraction: float | None, size: int | None) -> Json:
    free = inventory.usage_of(gpu).memory_free
    fits = None if free is None or size is None else size <= free
    return {**identity(gpu), "fraction": fraction, "bytes": size, "fits": fits}


def layer_lines(answer: Answer, inventory: Inventory, layers: Layers) -> Iterator[str]:
    """What comes of it, for people; nothing where nothing was selected."""
    rank = f"LOCAL_RANK={layers.local_rank} "
    who = {"tensorflow": "TensorFlow ", "jax": "JAX ", "local_rank": rank, "device": ""}
    found = layers_json(answer, inventory, layers)
    for layer in selected(answer, layers):
        name = who[layer.id]
        if layer.selection.error:
            subject = name.strip() or layers.device
            subject = f"{subject} raises an error" if layer.selection.raises else subject
            yield f"{subject}: {layer.selection.message}"
        for one in found[layer.id] or ():
            limit = one["memory_limit"]
            room = "" if limit is None else f"  {limit / GIB:.2f} GiB"
            yield f"  {name + one['name']:<25} -> {_label(one)}{room}"
    if layers.preallocates:
        yield (
            f"JAX takes {layers.fraction:g} of each GPU at its first operation"
            " (XLA_CLIENT_MEM_FRACTION sets another share; with XLA_PYTHON_CLIENT_PREALLOCATE=false"
            " it takes what it needs)"
        )
    for one in found["memory"]:
        if one["bytes"] is None:
            yield f"  {_label(one)}: its memory is not known"
        elif one["fraction"] is not None or one["fits"] is False:
            what = "the limits" if one["fraction"] is None else f"{one['fraction']:g}"
            verb = "are" if one["fraction"] is None else "is"
            size = f"{one['bytes'] / GIB:.2f} GiB{_FITS[one['fits']]}"
            yield f"  {what} of {_label(one)} {verb} {size}"


def _label(one: Json) -> str:
    return str(one["mig_uuid"] or f"GPU {one['gpu']}")
