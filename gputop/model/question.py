"""What a person asks of the mapping, and the answer: the same for every view of it.

A question changes with a key, the machine seldom, and what is taken of its GPUs with every frame:
an `Answer` is worked out for the first two, `judge` and `completion` look at the third.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gputop.model.advice import Advice, advise, request_advice
from gputop.model.choice import Choice, Wanted, choose
from gputop.model.enumeration import Device
from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.inventory import Inventory, Usage
from gputop.model.mapping import Mapping as Resolved
from gputop.model.probe import Verdict, answer_to, compare, probed_order
from gputop.model.probed import Probed
from gputop.model.readings import kind_of
from gputop.model.selections import Layers
from gputop.model.shell_line import parse_shell
from gputop.model.summary import users
from gputop.model.visibility import resolve

OF_USAGE = ("gpu-full", "gpu-in-use")
"""Ids of the advice that says what stands in a device's own line."""
_SEVERITIES = ("error", "warning", "info")
_NOT_OF_NAMES = re.compile(r"[^\w:(=/]+")
_TROUBLE = ("stopped", "duplicate", "unresolved")
_WINDOW = 2.0
"""Seconds over which a GPU has to be idle, as in `gputop free`."""


class Question(msgspec.Struct, frozen=True):
    """What was typed."""

    text: str | None
    """A value of CUDA_VISIBLE_DEVICES or a line of shell or Python; None: unset."""
    order: str | None
    """CUDA_DEVICE_ORDER, unless the line sets it; None: unset."""
    layers: Layers = Layers()


class Answer(msgspec.Struct, frozen=True):
    """What the CUDA variables come to on a machine, whoever is on it."""

    mapping: Resolved
    said: tuple[Advice, ...]
    """Of the line itself, as a shell reads it."""
    missed: tuple[Advice, ...]
    """Of devices that are asked for and are not there."""
    is_line: bool
    """Whether a whole line was asked about, not a value."""
    verdict: Verdict | None
    """The CUDA driver's own word; None: it was not asked about this."""
    surprise: Verdict | None
    """Where it differs from what would be expected had the driver told nothing."""
    ranks: dict[int, str]
    """CUDA's number of each GPU, by NVML index; empty where that cannot be told."""
    exact: bool
    """Whether `ranks` can be relied on."""


def answer(question: Question, inventory: Inventory, probed: Sequence[Probed] = ()) -> Answer:
    """Work out what the text means on a machine; `probed` is what its driver said so far."""
    line = None if question.text is None else parse_shell(question.text)
    value = question.text if line is None else line.value
    order = line.order if line is not None and line.order is not None else question.order
    devices = inventory.devices
    seen = inventory.cuda_order or probed_order(probed, order, devices)

    def mapped(value: str | None, seen: Sequence[int] | None) -> Resolved:
        version = inventory.driver_version
        return resolve(value, devices, order=order, cuda_order=seen, driver_version=version)

    mapping, whole = mapped(value, seen), mapped(None, seen)
    asked = f"{line.rest if line else ''} {question.layers.device or ''}"
    found = (request_advice(name, mapping) for name in _NOT_OF_NAMES.split(asked))
    heard = answer_to(probed, value, order)
    verdict = None if heard is None else compare(mapping, heard, devices)
    guess = None if heard is None else compare(mapped(value, None), heard, devices)
    surprise = guess if verdict and verdict.ok and guess and guess.ok is False else None
    return Answer(
        mapping=mapping,
        said=line.advice if line else (),
        missed=tuple(dict.fromkeys(one for one in found if one is not None)),
        is_line=line is not None,
        verdict=verdict,
        surprise=surprise,
        ranks={d.index: str(k) for k, d in enumerate(whole.visible or ()) if not d.instance},
        exact=whole.certainty == "exact",
    )


def judge(found: Answer, usage: Mapping[int, Usage]) -> tuple[Advice, ...]:
    """Say what is worth a word: of the line, of the value and its GPUs, of what is asked for."""
    return (*found.said, *advise(found.mapping, usage), *found.missed)


def by_severity(advice: Sequence[Advice]) -> list[Advice]:
    """Errors first, what stands in a device's own line left out."""
    rest = [one for one in advice if one.id not in OF_USAGE]
    return sorted(rest, key=lambda one: _SEVERITIES.index(one.severity))


def reasons(found: Answer, advice: Sequence[Advice]) -> list[str]:
    """Say why the list ended, unless the advice does."""
    ids = {one.id for one in advice if one.id.startswith(("value-", "mig-"))}
    grave = {one.id for one in advice if one.id in ids and one.severity != "info"}
    if found.mapping.reason == "negative":
        explained = "value-hides-rest" in ids
    else:
        explained = bool(grave) or "value-none" in ids
    if explained:
        return []
    return [entry.message for entry in found.mapping.entries if entry.outcome in _TROUBLE][:1]


def who_is_on(frame: Frame, inventory: Inventory, device: Device) -> Sequence[str]:
    """Name the users of a GPU or MIG device, those with most memory first."""
    if device.instance is None:
        return inventory.usage_of(device).users
    here = tuple(
        one
        for one in frame.processes
        if one.gpu_uuid == device.uuid
        and (device.index, one.gpu_instance, one.compute_instance) == device.place
    )
    return users(msgspec.structs.replace(frame, processes=here))


def suggest(frames: Sequence[Frame], own: Question, named: Sequence[Device] = ()) -> Choice:
    """Pick a GPU for a new job as `gputop free` does, whose own variables are those of `own`;
    none that is `named` already."""
    last = frames[-1]
    recent = [one for one in frames if 0 <= last.time - one.time <= _WINDOW]
    taken = tuple(str(device.index) for device in named)
    return choose(recent, Wanted(exclude=taken, value=own.text, order=own.order))


def name_of(gpu: Gpu, found: Answer) -> str:
    """Name a GPU for CUDA_VISIBLE_DEVICES: by its number where that is exact, else by UUID."""
    return found.ranks[gpu.index] if found.exact and gpu.index in found.ranks else gpu.uuid or ""


def completion(
    text: str,
    found: Answer,
    inventory: Inventory,
    free: Callable[[Sequence[Device]], Gpu | None],
) -> str | None:
    """Complete what is typed: the start of a UUID that is the only one, or the next free GPU.

    `free` gives a GPU for a new job that is not among those named already. A number is never
    offered after a UUID or the other way round: CUDA would end the list there.
    """
    before, comma, last = text.rpartition(",")
    if found.is_line:
        return None
    if last:
        parts = [part for device in inventory.devices for part in (device, *device.parts())]
        uuids = {(part.mig_uuid if part.instance else part.uuid) or "" for part in parts}
        fits = [uuid for uuid in uuids if uuid.startswith(last)]
        started = last.startswith(("GPU-", "MIG-")) and len(fits) == 1 and fits[0] != last
        return f"{before}{comma}{fits[0]}" if started else None
    end, named = found.mapping.stopped_at, found.mapping.visible
    if text and (end is None or end.position != text.count(",") or named is None):
        return None
    gpu = free((named or ()) if text else ())
    name = "" if gpu is None else _like(text, gpu, found)
    return f"{text}{name}" if name else None


def _like(text: str, gpu: Gpu, found: Answer) -> str:
    """Name a GPU in the way in which a list names the others; "" where that cannot be."""
    if not text:
        return name_of(gpu, found)
    names = {"integer": found.ranks.get(gpu.index), "gpu": gpu.uuid, "mig": None}
    return names[kind_of(text)] or ""
