"""What a person asks of the mapping, and the answer, which every view of it shows.

A query changes with a key, the machine seldom, and the use of its GPUs with every frame. A
`MappingResult` depends on the first two; `judge` and `completion` use the third as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gputop.model.cuda.advice import advise, requests_advice
from gputop.model.cuda.entries import ENDS, kind_of
from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.frameworks import Layers
from gputop.model.cuda.inventory import DeviceUse, Inventory
from gputop.model.cuda.mapping import Mapping as CudaMapping
from gputop.model.cuda.mapping import unknown_mapping
from gputop.model.cuda.pasted.reading import Pasted, read_pasted
from gputop.model.cuda.pick import GpuPick, PickRequest, choose
from gputop.model.cuda.probe import ProbeResult, answer_to, compare, probed_order
from gputop.model.cuda.resolve import resolve
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.finding import Finding, worst_first
from gputop.model.machine.frame import Frame
from gputop.model.machine.probed import Probed
from gputop.model.machine.summary import users_of

OF_USAGE = ("gpu-full", "gpu-in-use")
"""Codes of the advice that repeats what a device's own line shows."""
_WINDOW = 2.0
"""Seconds of frames that show how busy a GPU is, to pick the least busy."""


class MappingQuery(msgspec.Struct, frozen=True):
    """What a person typed."""

    text: str | None
    """A value of CUDA_VISIBLE_DEVICES or a line of shell or Python; None: unset."""
    order: str | None
    """CUDA_DEVICE_ORDER, unless the line sets it; None: unset."""
    layers: Layers = Layers()
    inherited: str | None = None
    """CUDA_VISIBLE_DEVICES of the shell that would run a line; None: unset."""


class MappingResult(msgspec.Struct, frozen=True):
    """What the CUDA variables mean on a machine, whoever uses its GPUs."""

    mapping: CudaMapping
    line_advice: tuple[Finding, ...]
    """Findings on the line itself, as a shell reads it."""
    request_advice: tuple[Finding, ...]
    """Findings on devices that are asked for and not visible."""
    is_line: bool
    """Whether a whole line was asked about, not a value."""
    probe_result: ProbeResult | None
    """Whether the CUDA driver agrees; None: it was not asked about this."""
    contradiction: ProbeResult | None
    """How the answer differs from the mapping without the driver's order; None: it does not."""
    ranks: dict[int, str]
    """CUDA's number of each GPU, by NVML index; empty if that is not known."""
    exact: bool
    """Whether `ranks` can be relied on."""
    unknown: str | None = None
    """Why nothing is claimed about a line; None: the mapping says which GPUs it gets."""


def mapping_result(
    query: MappingQuery, inventory: Inventory, probed: Sequence[Probed] = ()
) -> MappingResult:
    """Work out what the text means on a machine; `probed` are its driver's answers so far."""
    line, requests = read_line(query), [query.layers.device or ""]
    if line is None:
        return result_of(query.text, query.order, inventory, probed, requests)
    return result_of(line, line.order, inventory, probed, requests)


def result_of(
    asked: str | Pasted | None,
    order: str | None,
    inventory: Inventory,
    probed: Sequence[Probed] = (),
    requests: Sequence[str] = (),
) -> MappingResult:
    """Work out what a value (None: unset) or a line means under CUDA_DEVICE_ORDER=`order`;
    `requests` name devices that are asked for besides those of the line."""
    line = asked if isinstance(asked, Pasted) else None
    devices, version = inventory.devices, inventory.driver_version
    cuda_order = inventory.cuda_order or probed_order(probed, order, devices)

    def mapped(value: str | None, cuda_order: Sequence[int] | None) -> CudaMapping:
        return resolve(value, devices, order=order, cuda_order=cuda_order, driver_version=version)

    value = asked.value if isinstance(asked, Pasted) else asked
    mapping = _despite_lost(mapped(value, cuda_order), inventory.lost)
    whole = _despite_lost(mapped(None, cuda_order), inventory.lost)
    unknown = None if line is None else line.unknown
    if unknown is not None:
        mapping = unknown_mapping(None, order, unknown)
    answer = answer_to(probed, value, order) if unknown is None else None
    probe_result = None if answer is None else compare(mapping, answer, devices)
    guess = None if answer is None else compare(mapped(value, None), answer, devices)
    agrees = probe_result is not None and probe_result.ok is True
    contradiction = guess if agrees and guess and guess.ok is False else None
    requests = (*(line.rest if line else ()), *requests)
    return MappingResult(
        mapping=mapping,
        line_advice=line.advice if line else (),
        request_advice=requests_advice(requests, mapping) if any(requests) else (),
        is_line=line is not None,
        probe_result=probe_result,
        contradiction=contradiction,
        ranks={d.index: str(k) for k, d in enumerate(whole.visible or ()) if not d.instance},
        exact=whole.certainty == "exact",
        unknown=unknown,
    )


def _despite_lost(mapping: CudaMapping, lost: Sequence[int]) -> CudaMapping:
    """Weaken a mapping if CUDA may count without a lost GPU. UUIDs name what they name, and numbers
    below that of the lost GPU stay as they are."""
    named = [device.index for device in mapping.visible or ()]
    is_counted = mapping.value is None or kind_of(mapping.value) == "integer"
    first = min(lost, default=None)
    if first is None or not named or (max(named) < first if is_counted else not {*named} & {*lost}):
        return mapping
    because = (
        f"GPU {', '.join(map(str, lost))} is lost: CUDA may leave it out and number the others"
        " without it"
    )
    return mapping.weakened("predicted", because)


def read_line(query: MappingQuery) -> Pasted | None:
    """Read a line of shell or Python; None if the text is a value."""
    if query.text is None:
        return None
    own = {NAME: query.inherited, ORDER: query.order}
    return read_pasted(query.text, {k: v for k, v in own.items() if v is not None})


def judge(result: MappingResult, usage: Mapping[int, DeviceUse]) -> tuple[Finding, ...]:
    """Return the advice on the line, on the value and its GPUs, and on what is asked for."""
    return (*result.line_advice, *advise(result.mapping, usage), *result.request_advice)


def by_level(advice: Sequence[Finding]) -> list[Finding]:
    """Sort advice, errors first, without what a device's own line shows."""
    return worst_first(item for item in advice if item.code not in OF_USAGE)


def reasons(result: MappingResult, advice: Sequence[Finding]) -> list[str]:
    """Return why the list ended, unless the advice says so."""
    levels = {a.code: a.level for a in advice if a.code.startswith(("value-", "mig-"))}
    if result.mapping.reason == "negative":
        explained = "value-hides-rest" in levels
    else:
        grave = any(level != "info" for level in levels.values())
        explained = grave or "value-none" in levels
    if explained:
        return []
    return [entry.message for entry in result.mapping.entries if entry.outcome in ENDS][:1]


def who_is_on(frame: Frame, inventory: Inventory, device: CudaDevice) -> Sequence[str]:
    """Name the users of a GPU or MIG device, those with most memory first."""
    instance = device.instance
    if instance is None:
        return inventory.usage_of(device).users
    return users_of(frame.by_instance.get((device.uuid, instance.gi, instance.ci), ()))


def suggest(
    frames: Sequence[Frame], own: MappingQuery, named: Sequence[CudaDevice] = ()
) -> GpuPick:
    """Pick a GPU or a MIG device for a new job as `gputop free` does under the variables of `own`;
    leave out those in `named`."""
    recent = [frame for frame in frames if 0 <= frames[-1].time - frame.time <= _WINDOW]
    taken = tuple(str(device.index) for device in named)
    return choose(recent, PickRequest(exclude=taken, value=own.text, order=own.order))


def completion(
    text: str,
    result: MappingResult,
    inventory: Inventory,
    free: Callable[[Sequence[CudaDevice]], GpuPick | None],
) -> str | None:
    """Complete a text: with the only UUID that starts so, or with the next free GPU.

    `free` picks a GPU for a new job that is not among those named already. A number is never
    offered after a UUID or the other way round: CUDA would end the list there. A MIG device is
    offered only as the first.
    """
    before, comma, last = text.rpartition(",")
    if result.is_line:
        return None
    if last:
        parts = [part for device in inventory.devices for part in (device, *device.parts())]
        uuids = {part.own_uuid or "" for part in parts}
        fits = [uuid for uuid in uuids if uuid.startswith(last)]
        started = last.startswith(("GPU-", "MIG-")) and len(fits) == 1 and fits[0] != last
        return f"{before}{comma}{fits[0]}" if started else None
    end, named = result.mapping.stopped_at, result.mapping.visible
    if text and (end is None or end.position != text.count(",") or named is None):
        return None
    pick = free((named or ()) if text else ())
    name = pick and _name(pick, result, text)
    return f"{text}{name}" if name else None


def _name(pick: GpuPick, result: MappingResult, text: str) -> str | None:
    """Name a GPU as the list names the others; the first by its number if that is exact."""
    if pick.of_slices or not pick.gpus:
        return None if text else next(iter(pick.uuids), None)
    gpu = pick.gpus[0]
    rank = result.ranks.get(gpu.index)
    kind = kind_of(text) if text else "integer" if result.exact and rank else "gpu"
    return {"integer": rank, "gpu": gpu.uuid, "mig": None}[kind]
