"""What a program selects among the GPUs that CUDA leaves it, as a person writes it down, and what
comes of it on a machine. The rules are in layers.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gputop.errors import UsageError
from gputop.model.enumeration import Device
from gputop.model.inventory import Inventory
from gputop.model.layers import Selection, claim, tf_logical_devices, tf_visible_device_list
from gputop.model.mapping import Mapping as Answer
from gputop.model.text import GIB, MIB

Json = dict[str, Any]

_LOGICAL = re.compile(r"([0-9]{1,4}):([0-9]{1,9}(?:,[0-9]{1,9})*)", re.ASCII)


class Layers(msgspec.Struct, frozen=True):
    """What a program selects after CUDA; all None or empty: nothing."""

    tf_visible: str | None = None
    tf_logical: Mapping[int, Sequence[int]] = {}
    """Memory limits in bytes, by CUDA ordinal."""
    fraction: float | None = None

    def selection(self, count: int) -> Selection:
        """TensorFlow's GPUs among `count` visible ones."""
        found = tf_visible_device_list(self.tf_visible or "", count)
        absent = [k for k in self.tf_logical if k not in (found.ordinals or ())]
        if found.ordinals is None or not absent:
            return found
        message = (
            f"logical devices are configured on GPU {absent[0]}, which TensorFlow does not see"
        )
        return Selection(None, "tf_error_range", message)


def read_layers(
    tf_visible: str | None, tf_logical: Sequence[str], fraction: float | None
) -> Layers:
    """Read what a person wrote; UsageError with what is wrong.

    `tf_logical` are texts such as 0:2048,2048: a CUDA ordinal, and memory limits in MiB.
    """
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(f"--memory-fraction {fraction:g} is not above 0 and at most 1")
    logical = {}
    for text in tf_logical:
        match = _LOGICAL.fullmatch(text)
        if match is None:
            raise UsageError(f"--tf-logical {text!r} is not GPU:MIB,MIB: write it as 0:2048,2048")
        logical[int(match[1])] = tuple(int(size) * MIB for size in match[2].split(","))
    return Layers(tf_visible, logical, fraction)


def identity(device: Device) -> Json:
    """Which device of the machine it is, as JSON has it."""
    return {"gpu": device.index, "uuid": device.uuid, "mig_uuid": device.mig_uuid}


def layers_json(answer: Answer, inventory: Inventory, layers: Layers) -> Json:
    """TensorFlow's devices (null with an error) and what the fraction is of each."""
    if answer.visible is None:
        message = "which GPU is which cannot be told"
        return {"tensorflow": None, "error": "unknown", "message": message, "memory": []}
    visible = answer.visible
    selection = layers.selection(len(visible))
    tensorflow = None
    if selection.ordinals is not None:
        tensorflow = [
            {"name": one.name, **identity(visible[one.ordinal]), "memory_limit": one.memory_limit}
            for one in tf_logical_devices(selection.ordinals, layers.tf_logical)
        ]
    memory = []
    for device in visible if layers.fraction is not None else ():
        usage = inventory.usage_of(device)
        part = claim(layers.fraction or 0, usage.memory_total, usage.memory_free)
        size = {"bytes": part and part.size, "fits": part and part.fits}
        memory.append({"gpu": device.index, "fraction": layers.fraction, **size})
    error = {"error": selection.error, "message": selection.message or None}
    return {"tensorflow": tensorflow, **error, "memory": memory}


def layer_lines(answer: Answer, inventory: Inventory, layers: Layers) -> Iterator[str]:
    """What comes of it, for people; nothing where nothing was selected."""
    if layers == Layers():
        return
    found = layers_json(answer, inventory, layers)
    if found["error"]:
        raises = "" if found["error"] == "unknown" else " raises an error"
        yield f"TensorFlow{raises}: {found['message']}"
    for one in found["tensorflow"] or ():
        limit = "" if one["memory_limit"] is None else f"  {one['memory_limit'] / GIB:.2f} GiB"
        yield f"  TensorFlow {one['name']:<14} -> {_label(one)}{limit}"
    for one in found["memory"]:
        if one["bytes"] is None:
            yield f"  GPU {one['gpu']}: its memory is not known"
            continue
        fits = {None: "", True: ", which is free now", False: ", which is NOT free now"}[
            one["fits"]
        ]
        yield f"  {one['fraction']:g} of GPU {one['gpu']} is {one['bytes'] / GIB:.2f} GiB{fits}"


def _label(one: Json) -> str:
    return str(one["mig_uuid"] or f"GPU {one['gpu']}")
