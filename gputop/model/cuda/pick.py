"""Which GPUs or MIG devices a new job should take, and the CUDA_VISIBLE_DEVICES that names them.

A part of a machine, a GPU or a MIG device, is refused if it is not free (`model.health.free`) or if
the caller's variables hide it. The request can set its own limits for memory, utilization and other
users. Of the rest gputop prefers

1. parts of one model or profile, if there are enough; a mix only if `same_model` does not forbid it
2. parts without users, then without a screen, then the least busy (in steps of 10 %)
3. the model or profile with most memory
4. the best connected: by the worst link between two of them, then by all links; NVLink before
   PCIe; if the links are not known, neighbours by PCI bus id; MIG devices use no links
5. the most free memory (in whole GiB)
6. the lowest PCI bus id, then the lowest index

The same frames always give the same answer.

MIG devices are taken only where a job can have no whole GPU. Their load counts only where GPM tells
it. CUDA shows a process one device of each GPU instance, and before R570 one device at all
(NVIDIA's MIG User Guide, "CUDA Device Enumeration"). They are named by their UUIDs: no number is
documented to name one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from operator import attrgetter

import msgspec

from gputop.errors import UsageError
from gputop.model.cuda.enumeration import (
    CERTAINTY_WORDS,
    MAX_INSTANCES,
    PCI_BUS_ID,
    normalize_bus_id,
    rules_for,
    shown,
)
from gputop.model.cuda.export import quoted
from gputop.model.cuda.inventory import frame_devices
from gputop.model.cuda.mapping import Mapping
from gputop.model.cuda.resolve import resolve
from gputop.model.health.free import (
    ObjectionCode,
    count_of_free,
    free_slices,
    jobs_note,
    objections,
    processes_on,
)
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, GpuPart, gpus_named, parts_of
from gputop.model.machine.grouped import grouped
from gputop.model.machine.summary import free_memory
from gputop.model.machine.text import GIB, size
from gputop.model.machine.topology import Links, connection

_LASTING = {"mode", "unseen"}
_FAR = (1 << 32, 0, 0)
_MOST_SETS = 5000
_UNDOCUMENTED = "what CUDA makes of them is not documented"


class PickRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for, and the CUDA variables of the caller."""

    count: int = 1
    min_free: int | None = None
    """Bytes of free memory; None: all but what the driver itself takes."""
    max_utilization: float | None = None
    """0 to 1, over all frames; at 1 no GPU is too busy, and utilization may be unknown. None: a GPU
    must not be at work by the last frame alone, as everywhere else."""
    shared: bool = False
    """Take GPUs that others compute on."""
    same_model: bool = False
    exclude: tuple[str, ...] = ()
    """NVML indices, numbers of MIG devices, and beginnings of UUIDs."""
    value: str | None = None
    """The caller's own CUDA_VISIBLE_DEVICES, which may hide GPUs."""
    order: str | None = None
    """The caller's own CUDA_DEVICE_ORDER."""


class GpuPick(msgspec.Struct, frozen=True):
    """What a job should take, and why not the rest."""

    parts: tuple[GpuPart, ...] | None
    """In the order of PCI bus ids; None: there are not enough."""
    reasons: dict[str, str]
    """Why each refused part cannot be had, by its number."""
    suitable: int
    """The number of parts that fit the request."""
    free: int | None
    """The number of GPUs that are free, by `count_of_free`; of MIG devices if `of_slices`."""
    possible: bool
    """Whether waiting can help."""
    note: str | None
    """What the caller's own CUDA_VISIBLE_DEVICES leaves, and what is not known of Slurm's jobs."""
    of_slices: bool = False
    """Whether MIG devices are picked, since no GPU can be had."""

    @property
    def gpus(self) -> tuple[Gpu, ...] | None:
        """The GPUs, of MIG devices the GPU of each."""
        return None if self.parts is None else tuple(part.gpu for part in self.parts)

    @property
    def numbers(self) -> list[str]:
        return [part.number for part in self.parts or ()]

    @property
    def uuids(self) -> list[str]:
        return [part.subject.uuid for part in self.parts or () if part.subject.uuid]


class PickedValue(msgspec.Struct, frozen=True):
    """A value for CUDA_VISIBLE_DEVICES, and what the caller should know about it."""

    text: str | None = None
    """None: it may mean other GPUs, and `note` says what to do."""
    note: str | None = None


class _RankedPart(msgspec.Struct, frozen=True):
    part: GpuPart
    quality: tuple[bool, bool, int]
    """Lower is better."""
    free: int
    """Whole GiB of its memory."""
    rank: tuple[tuple[int, int, int], int, int]
    """Its PCI bus id, the index, and its place among the MIG devices as NVML lists them."""


def choose(frames: Sequence[Frame], wanted: PickRequest) -> GpuPick:
    """Pick GPUs from the last of these frames; all of them show how busy a GPU is. Where none can
    be had, now or later, pick MIG devices. UsageError for an `exclude` that names nothing."""
    frame, gpus = frames[-1], [*map(GpuPart, frames[-1].gpus)]
    slices = [part for part in parts_of(frame.gpus) if part.device]
    whole = _choose(frames, wanted, gpus, len(gpus))
    if whole.possible or not slices:
        return whole
    rules = rules_for(frame_devices(frame), frame.driver_version)
    pick = _choose(frames, wanted, slices, MAX_INSTANCES if rules == ("new",) else 1)
    reasons = whole.reasons | pick.reasons
    free = free_slices(frame).free
    return msgspec.structs.replace(pick, reasons=reasons, free=free, of_slices=True)


def _choose(
    frames: Sequence[Frame], wanted: PickRequest, parts: Sequence[GpuPart], most: int
) -> GpuPick:
    """Pick some of these parts, `most` of them at most, and one of each GPU instance."""
    frame = frames[-1]
    barred, hidden_by = _out_of_sight(frame, wanted, parts)
    barred |= _excluded(frame, wanted.exclude, parts)
    reasons: dict[str, str] = {}
    able: dict[object, _RankedPart] = {}
    perhaps: dict[object, _RankedPart] = {}
    for number, part in enumerate(parts):
        peak, hidden = _peak(frames, part), barred.get(part.number)
        refusal, lasts = (hidden, True) if hidden else _refusal(frame, part, peak, wanted)
        candidate = _candidate(frame, part, peak, number)
        if not lasts:
            perhaps.setdefault(part.id[:2], candidate)
        if refusal is None:
            able.setdefault(part.id[:2], candidate)
        else:
            reasons[part.number] = refusal
    fits = wanted.count <= most
    return GpuPick(
        parts=_best([*able.values()], wanted, frame.links) if fits else None,
        reasons=reasons,
        suitable=min(len(able), most),
        free=count_of_free(frame),
        possible=fits and _best([*perhaps.values()], wanted, frame.links) is not None,
        note="; ".join(filter(None, (hidden_by, jobs_note(frame)))) or None,
    )


def value_of(
    frame: Frame, parts: Sequence[GpuPart], order: str | None, by_uuid: bool = False
) -> PickedValue:
    """Name GPUs so that the k-th is cuda:k; `order`: the CUDA_DEVICE_ORDER it will be read with.

    An index counts by PCI bus id, and is given only where it means the same GPU in that order. MIG
    devices are always named by their UUIDs.
    """
    if by_uuid or any(part.device for part in parts):
        text = ",".join(part.subject.uuid or "" for part in parts)
        mapping = mapping_of(frame, text, order)
        if not _means(mapping, parts):
            return PickedValue(None, f"what CUDA makes of {text} is not known: {mapping.because}")
        return PickedValue(text, None if mapping.documented else _UNDOCUMENTED)
    by_bus = mapping_of(frame, None, PCI_BUS_ID)
    ranks = {device.index: str(k) for k, device in enumerate(by_bus.visible or ())}
    numbers = ",".join(ranks.get(part.gpu.index, "") for part in parts)
    counted = mapping_of(frame, numbers, PCI_BUS_ID)
    why = None if counted.documented else _UNDOCUMENTED
    if counted.certainty != "exact" or not _means(counted, parts):
        why = by_bus.because
    if why:
        return PickedValue(None, f"no index is exact here: {why}; --uuid (uuid=True) gives UUIDs")
    mapping = mapping_of(frame, numbers, order)
    if mapping.certainty == "exact" and _means(mapping, parts):
        return PickedValue(numbers)
    if mapping.certainty == "expected" and _means(mapping, parts):
        return PickedValue(numbers, f"counted by PCI bus id: set {ORDER}={PCI_BUS_ID}, too")
    words = f"an index may mean another GPU here: set {ORDER}={PCI_BUS_ID}, or give --uuid"
    return PickedValue(None, words)


def export_line(frame: Frame, parts: Sequence[GpuPart], order: str | None) -> str:
    """Return the line that gives what is picked to all that a shell starts; `order` is the shell's
    own CUDA_DEVICE_ORDER. It names a GPU by its index, sets CUDA_DEVICE_ORDER if the index needs
    it, and uses the UUID if no index is exact. Empty if there is no value, or none that can be
    quoted."""
    plain = value_of(frame, parts, order)
    if plain.note is not None and not any(part.device for part in parts):
        if counted := value_of(frame, parts, PCI_BUS_ID).text:
            return f"export {ORDER}={PCI_BUS_ID} {NAME}={counted}"
        plain = value_of(frame, parts, order, by_uuid=True)
    value = quoted(plain.text or "")
    return f"export {NAME}={value}" if value and plain.text else ""


def mapping_of(frame: Frame, value: str | None, order: str | None) -> Mapping:
    return resolve(value, frame_devices(frame), order=order, driver_version=frame.driver_version)


def _means(mapping: Mapping, parts: Sequence[GpuPart]) -> bool:
    return [device.id for device in mapping.visible or ()] == [part.id for part in parts]


def _out_of_sight(
    frame: Frame, wanted: PickRequest, parts: Sequence[GpuPart]
) -> tuple[dict[str, str], str | None]:
    """Return the parts that the caller's own variables hide, and a sentence about the rest."""
    if wanted.value is None:
        return {}, None
    own = f"your own CUDA_VISIBLE_DEVICES={shown(wanted.value)}"
    mapping = mapping_of(frame, wanted.value, wanted.order)
    visible = mapping.visible if mapping.visible is not None else mapping.visible_set
    if visible is None:
        reason = f"which GPUs {own} leaves is not known: {mapping.because}"
        return dict.fromkeys((part.number for part in parts), reason), None
    seen = {device.id for device in visible}
    hidden = [part.number for part in parts if part.id not in seen]
    if not hidden:
        return {}, None
    left = ", ".join(f"GPU {part.number}" for part in parts if part.id in seen) or "no GPU"
    how = CERTAINTY_WORDS[mapping.certainty]
    sure = "" if mapping.certainty == "exact" else f" ({how}: {mapping.because})"
    return dict.fromkeys(hidden, f"{own} hides it"), f"{own} leaves {left}{sure}"


def _excluded(frame: Frame, exclude: Sequence[str], parts: Sequence[GpuPart]) -> dict[str, str]:
    excluded: dict[str, str] = {}
    unnamed = any(gpu.uuid is None for gpu in frame.gpus)
    for word in exclude:
        gpus = [gpu.index for gpu in gpus_named(frame.gpus, word)]
        if not (gpus or unnamed or any(_is_named(part, word) for part in parts_of(frame.gpus))):
            raise UsageError(f"--exclude {shown(word)} names no GPU here: nvidia-smi -L lists them")
        named = (p.number for p in parts if p.gpu.index in gpus or _is_named(p, word))
        excluded |= dict.fromkeys(named, "it is excluded")
    return excluded


def _is_named(part: GpuPart, word: str) -> bool:
    """Return whether a word is its number, or a beginning of a MIG device's UUID."""
    begins = part.device is not None and not "mig-".startswith(word.casefold())
    uuid = (part.subject.uuid or "").casefold()
    return word == part.number or (begins and uuid.startswith(word.casefold()))


def _peak(frames: Sequence[Frame], part: GpuPart) -> float | None:
    """Return the highest load of a part; None if any frame lacks that of a GPU, or all lack that of
    a MIG device: GPM needs two samples."""
    key = part.gpu.key, part.subject.uuid
    parts = (each for frame in frames for each in parts_of(frame.gpus))
    loads = [p.subject.utilization for p in parts if (p.gpu.key, p.subject.uuid) == key]
    values = [load for load in loads if load is not None]
    is_known = part.device is not None or len(values) == len(loads)
    return max(values) if values and is_known else None


def _refusal(
    frame: Frame, part: GpuPart, peak: float | None, wanted: PickRequest
) -> tuple[str | None, bool]:
    """Return why a part cannot be had, None if it can, and whether waiting does not help."""
    if part.device is not None and part.subject.uuid is None:
        return "its UUID is not known", False
    waived, least = _waived(wanted), wanted.min_free or 0
    against = [o for o in objections(frame, part.gpu, part.device) if o.code not in waived]
    if lasting := next((o for o in against if o.code in _LASTING), None):
        return lasting.text, True
    if (part.subject.memory_total or least) < least:
        return f"it has only {size(part.subject.memory_total)} of memory", True
    free = part.device.memory_free if part.device else free_memory(frame, part.gpu)
    text = against[0].text if against else _too_little(free, least)
    if wanted.max_utilization is not None and (part.device is None or peak is not None):
        text = text or _too_busy(peak, wanted.max_utilization)
    return text, False


def _waived(wanted: PickRequest) -> set[ObjectionCode]:
    """Return the objections that do not count, or for which the request sets its own limit."""
    waived: set[ObjectionCode] = set()
    if wanted.max_utilization is not None:
        waived.add("work")
    if wanted.min_free is not None:
        waived.add("memory")
    if wanted.shared:
        waived |= {"users", "unseen", "unlisted"}
    return waived


def _too_little(free: int | None, least: int) -> str | None:
    if least and free is None:
        return "how much of its memory is free is not known"
    return f"{size(free)} of its memory unused" if (free or 0) < least else None


def _too_busy(peak: float | None, limit: float) -> str | None:
    if limit < 1 and peak is None:
        return "its utilization is not known"
    busy = limit < min(1, peak or 0)
    return f"{(peak or 0) * 100:.3g} % busy, more than {limit * 100:g} %" if busy else None


def _candidate(frame: Frame, part: GpuPart, peak: float | None, number: int) -> _RankedPart:
    occupied = bool(processes_on(frame, part.gpu, part.device))
    busy = 11 if peak is None else math.floor(peak * 10)
    free = part.subject.memory_free or 0
    bus = normalize_bus_id(part.gpu.pci_bus_id) or _FAR
    quality = (occupied, bool(part.gpu.display_active), busy)
    return _RankedPart(part, quality, free // GIB, (bus, part.gpu.index, number))


def _kind(candidate: _RankedPart) -> object:
    """Return what parts that are alike have in common; a GPU without a name is like no other."""
    gpu, device = candidate.part.gpu, candidate.part.device
    return gpu.name or gpu.key, device and device.profile


def _best(
    able: Sequence[_RankedPart], wanted: PickRequest, links: Links | None
) -> tuple[GpuPart, ...] | None:
    kinds = grouped(able, _kind)
    groups = [group for group in kinds.values() if len(group) >= wanted.count]
    if not groups and not wanted.same_model and len(able) >= wanted.count:
        groups = [list(able)]
    sets = [chosen for group in groups for chosen in _sets(group, wanted.count)]
    best = min(sets, key=lambda chosen: _rank(chosen, links), default=None)
    return None if best is None else tuple(candidate.part for candidate in best)


def _sets(group: Sequence[_RankedPart], count: int) -> Iterator[list[_RankedPart]]:
    """Yield the sets of best quality. Equals fill up the number in every combination, or only as
    runs of neighbours if there would be more than _MOST_SETS."""
    group = sorted(group, key=attrgetter("rank"))
    limit = sorted(candidate.quality for candidate in group)[count - 1]
    better = [candidate for candidate in group if candidate.quality < limit]
    equal = [candidate for candidate in group if candidate.quality == limit]
    more = count - len(better)
    choices: Iterable[Sequence[_RankedPart]] = combinations(equal, more)
    if math.comb(len(equal), more) > _MOST_SETS:
        choices = (equal[start : start + more] for start in range(len(equal) - more + 1))
    for choice in choices:
        yield sorted([*better, *choice], key=attrgetter("rank"))


def _rank(chosen: Sequence[_RankedPart], links: Links | None) -> tuple[object, ...]:
    first, last = chosen[0], chosen[-1]
    indices = [candidate.part.gpu.index for candidate in chosen]
    worst, together = connection(None if first.part.device else links, indices)
    return (
        sorted((candidate.quality for candidate in chosen), reverse=True),
        -min(candidate.part.subject.memory_total or 0 for candidate in chosen),
        (-worst, -together),
        [b - a for a, b in zip(first.rank[0], last.rank[0], strict=True)],
        -min(candidate.free for candidate in chosen),
        [candidate.rank for candidate in chosen],
    )
