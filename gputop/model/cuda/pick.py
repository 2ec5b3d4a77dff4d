"""Which GPUs a new job should take, and the CUDA_VISIBLE_DEVICES that names them.

A GPU is refused if it is not free (`model.health.free`) or if the caller's variables hide it. The
request can set its own limits for memory, utilization and other users. Of the rest gputop prefers

1. GPUs of one model, if there are enough; a mix only if `same_model` does not forbid it
2. GPUs without users, then without a screen, then the least busy (in steps of 10 %)
3. the model with most memory
4. the best connected: by the worst link between two of them, then by all links; NVLink before
   PCIe; if the links are not known, neighbours by PCI bus id
5. the most free memory (in whole GiB)
6. the lowest PCI bus id, then the lowest index

The same frames always give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import msgspec

from gputop.errors import UsageError
from gputop.model.cuda.enumeration import (
    CERTAINTY_WORDS,
    PCI_BUS_ID,
    DeviceId,
    normalize_bus_id,
    shown,
)
from gputop.model.cuda.export import quoted
from gputop.model.cuda.inventory import frame_devices
from gputop.model.cuda.mapping import Mapping
from gputop.model.cuda.resolve import resolve
from gputop.model.health.free import ObjectionCode, count_of_free, jobs_note, objections
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice, gpus_named, mig_number
from gputop.model.machine.summary import count_without_user, free_memory, users
from gputop.model.machine.text import GIB, percent, size
from gputop.model.machine.topology import Links, connection

LASTING = {"mode", "unseen"}
FAR = (1 << 32, 0, 0)
_MOST_SETS = 5000


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


class MigSlice(msgspec.Struct, frozen=True):
    """A MIG device and its GPU."""

    gpu: Gpu
    device: MigDevice

    @property
    def number(self) -> str:
        """As `0:2`."""
        return mig_number(self.gpu.index, *self.device.instance_ids)

    @property
    def id(self) -> DeviceId:
        """As `CudaDevice.id`."""
        return self.gpu.index, *self.device.instance_ids


def slices_of(frame: Frame) -> list[MigSlice]:
    """Return the MIG devices of a machine, in the order of their GPUs."""
    return [MigSlice(gpu, device) for gpu in frame.gpus for device in gpu.mig or ()]


class GpuPick(msgspec.Struct, frozen=True):
    gpus: tuple[Gpu, ...] | None
    """In the order of PCI bus ids; None: there are not enough."""
    reasons: dict[int, str]
    """Why each refused GPU cannot be had, by index."""
    suitable: int
    """The number of GPUs that fit the request."""
    free: int | None
    """The number of GPUs that are free, by `count_of_free`."""
    possible: bool
    """Whether waiting can help."""
    note: str | None
    """What the caller's own CUDA_VISIBLE_DEVICES leaves, and what is not known of Slurm's jobs."""
    slices: tuple[MigSlice, ...] | None = None
    """The MIG devices that are picked in place of whole GPUs; `gpus` then has the GPU of each."""
    slice_reasons: dict[str, str] = {}
    """Why each refused MIG device cannot be had, by its number; empty if none was looked at."""

    @property
    def numbers(self) -> list[str]:
        """The numbers of what is picked: `2`, or `0:2` for a MIG device."""
        if self.slices:
            return [part.number for part in self.slices]
        return [str(gpu.index) for gpu in self.gpus or ()]

    @property
    def uuids(self) -> list[str]:
        """The UUIDs of what is picked."""
        parts = [part.device for part in self.slices] if self.slices else self.gpus or ()
        return [part.uuid for part in parts if part.uuid]


class PickedValue(msgspec.Struct, frozen=True):
    """A value for CUDA_VISIBLE_DEVICES, and what the caller should know about it."""

    text: str | None = None
    """None: indices may mean other GPUs, and `note` says what to do."""
    note: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    text: str
    lasts: bool = False
    """Waiting does not help."""


class _GpuCandidate(msgspec.Struct, frozen=True):
    gpu: Gpu
    quality: tuple[bool, bool, int]
    """Lower is better."""


def choose(frames: Sequence[Frame], wanted: PickRequest) -> GpuPick:
    """Pick from the last of these frames; all of them show how busy a GPU is.

    Raises UsageError for an `exclude` that names nothing.
    """
    frame = frames[-1]
    barred, hidden_by = _out_of_sight(frame, wanted)
    note = "; ".join(filter(None, (hidden_by, jobs_note(frame)))) or None
    barred |= _excluded(frame, wanted.exclude)
    reasons: dict[int, str] = {}
    able: list[_GpuCandidate] = []
    perhaps: list[_GpuCandidate] = []
    for gpu in frame.gpus:
        peak = _peak(frames, gpu)
        hidden = barred.get(gpu.index)
        refusal = Refusal(hidden, lasts=True) if hidden else _refusal(frame, gpu, peak, wanted)
        if refusal is None or not refusal.lasts:
            perhaps.append(_candidate(frame, gpu, peak))
        if refusal is None:
            able.append(perhaps[-1])
        else:
            reasons[gpu.index] = refusal.text
    possible = _best(perhaps, wanted, frame.links) is not None
    best, free = _best(able, wanted, frame.links), count_of_free(frame)
    return GpuPick(best, reasons, len(able), free, possible, note)


def value_for(
    frame: Frame, gpus: Sequence[Gpu], order: str | None, by_uuid: bool = False
) -> PickedValue:
    """Name GPUs so that the k-th is cuda:k; `order`: the CUDA_DEVICE_ORDER it will be read with.

    An index counts by PCI bus id, and is given only where it means the same GPU in that order.
    """
    if by_uuid:
        text = ",".join(gpu.uuid or "" for gpu in gpus)
        return PickedValue(text, _doubt(frame, gpus, order, text))
    by_bus = mapping_of(frame, None, PCI_BUS_ID).visible or ()
    ranks = {device.index: str(k) for k, device in enumerate(by_bus)}
    numbers = ",".join(ranks.get(gpu.index, "") for gpu in gpus)
    if why := _doubt(frame, gpus, PCI_BUS_ID, numbers):
        return PickedValue(None, f"no index is exact here: {why}; --uuid (uuid=True) gives UUIDs")
    mapping = mapping_of(frame, numbers, order)
    if mapping.certainty == "exact" and _means(mapping, gpus):
        return PickedValue(numbers)
    if mapping.certainty == "expected" and _means(mapping, gpus):
        return PickedValue(numbers, f"counted by PCI bus id: set {ORDER}={PCI_BUS_ID}, too")
    words = f"an index may mean another GPU here: set {ORDER}={PCI_BUS_ID}, or give --uuid"
    return PickedValue(None, words)


def export_for(frame: Frame, gpu: Gpu, order: str | None) -> str:
    """Return the line that gives a GPU to all that a shell starts; `order` is the shell's own
    CUDA_DEVICE_ORDER. It names the GPU by its index, sets CUDA_DEVICE_ORDER if the index needs it,
    and uses the UUID if no index is exact. Empty if the value cannot be quoted."""
    plain = value_for(frame, [gpu], order)
    if plain.note is not None:
        if counted := value_for(frame, [gpu], PCI_BUS_ID).text:
            return f"export {ORDER}={PCI_BUS_ID} {NAME}={counted}"
        plain = value_for(frame, [gpu], order, by_uuid=True)
    value = quoted(plain.text or "")
    return f"export {NAME}={value}" if value else ""


def mapping_of(frame: Frame, value: str | None, order: str | None) -> Mapping:
    return resolve(value, frame_devices(frame), order=order, driver_version=frame.driver_version)


def _doubt(frame: Frame, gpus: Sequence[Gpu], order: str | None, value: str) -> str | None:
    mapping = mapping_of(frame, value, order)
    if mapping.certainty != "exact" or not _means(mapping, gpus):
        return mapping_of(frame, None, order).because
    return None if mapping.documented else "what CUDA makes of them is not documented"


def _means(mapping: Mapping, gpus: Sequence[Gpu]) -> bool:
    return [device.index for device in mapping.visible or ()] == [gpu.index for gpu in gpus]


def _out_of_sight(frame: Frame, wanted: PickRequest) -> tuple[dict[int, str], str | None]:
    """Return the GPUs that the caller's own variables hide, and a sentence about the rest."""
    if wanted.value is None:
        return {}, None
    own = f"your own CUDA_VISIBLE_DEVICES={shown(wanted.value)}"
    mapping = mapping_of(frame, wanted.value, wanted.order)
    visible = mapping.visible if mapping.visible is not None else mapping.visible_set
    if visible is None:
        reason = f"which GPUs {own} leaves is not known: {mapping.because}"
        return dict.fromkeys((gpu.index for gpu in frame.gpus), reason), None
    whole = {device.index for device in visible if device.instance is None}
    hidden = [gpu.index for gpu in frame.gpus if gpu.index not in whole]
    if not hidden:
        return {}, None
    left = ", ".join(f"GPU {index}" for index in sorted(whole)) or "no GPU"
    how = CERTAINTY_WORDS[mapping.certainty]
    sure = "" if mapping.certainty == "exact" else f" ({how}: {mapping.because})"
    return dict.fromkeys(hidden, f"{own} hides it"), f"{own} leaves {left}{sure}"


def _excluded(frame: Frame, exclude: Sequence[str]) -> dict[int, str]:
    excluded: dict[int, str] = {}
    unnamed = any(gpu.uuid is None for gpu in frame.gpus)
    slices = {name for part in slices_of(frame) for name in (part.number, part.device.uuid)}
    for word in exclude:
        named = [gpu.index for gpu in gpus_named(frame.gpus, word)]
        if not named and not unnamed and word not in slices:
            raise UsageError(f"--exclude {shown(word)} names no GPU here: nvidia-smi -L lists them")
        excluded |= dict.fromkeys(named, "it is excluded")
    return excluded


def _peak(frames: Sequence[Frame], gpu: Gpu) -> float | None:
    """Return the highest utilization of a GPU; None if any frame lacks it."""
    values = [g.utilization for frame in frames for g in frame.gpus if g.key == gpu.key]
    samples = [value for value in values if value is not None]
    return max(samples) if samples and len(samples) == len(values) else None


def _refusal(frame: Frame, gpu: Gpu, peak: float | None, wanted: PickRequest) -> Refusal | None:
    waived = waived_codes(wanted)
    against = [o for o in objections(frame, gpu) if o.code not in waived]
    least = wanted.min_free or 0
    if lasting := next((o for o in against if o.code in LASTING), None):
        return Refusal(lasting.text, lasts=True)
    if (gpu.memory_total or least) < least:
        return Refusal(f"it has only {size(gpu.memory_total)} of memory", lasts=True)
    text = against[0].text if against else too_little(free_memory(frame, gpu), least)
    if wanted.max_utilization is not None:
        text = text or too_busy(peak, wanted.max_utilization)
    return None if text is None else Refusal(text)


def waived_codes(wanted: PickRequest) -> set[ObjectionCode]:
    """Return the objections that do not count, or for which the request sets its own limit."""
    waived: set[ObjectionCode] = set()
    if wanted.max_utilization is not None:
        waived.add("work")
    if wanted.min_free is not None:
        waived.add("memory")
    if wanted.shared:
        waived |= {"users", "unseen", "unlisted"}
    return waived


def too_little(free: int | None, least: int) -> str | None:
    if least and free is None:
        return "how much of its memory is free is not known"
    return f"{size(free)} of its memory unused" if (free or 0) < least else None


def too_busy(peak: float | None, limit: float) -> str | None:
    if limit < 1 and peak is None:
        return "its utilization is not known"
    busy = limit < min(1, peak or 0)
    return f"{percent(peak)} % busy, more than {limit * 100:g} %" if busy else None


def _candidate(frame: Frame, gpu: Gpu, peak: float | None) -> _GpuCandidate:
    occupied = bool(users(frame, gpu) or count_without_user(frame, gpu))
    busy = 11 if peak is None else math.floor(peak * 10)
    return _GpuCandidate(gpu, (occupied, bool(gpu.display_active), busy))


def _best(
    able: Sequence[_GpuCandidate], wanted: PickRequest, links: Links | None
) -> tuple[Gpu, ...] | None:
    models: dict[str, list[_GpuCandidate]] = {}
    for candidate in able:
        models.setdefault(candidate.gpu.name or candidate.gpu.key, []).append(candidate)
    groups = [group for group in models.values() if len(group) >= wanted.count]
    if not groups and not wanted.same_model and len(able) >= wanted.count:
        groups = [list(able)]
    sets = [chosen for group in groups for chosen in _sets(group, wanted.count)]
    best = min(sets, key=lambda chosen: _rank(chosen, links), default=None)
    return None if best is None else tuple(candidate.gpu for candidate in best)


def _sets(group: Sequence[_GpuCandidate], count: int) -> Iterator[list[_GpuCandidate]]:
    """Yield the sets of best quality. Equals fill up the number in every combination, or only as
    runs of neighbours if there would be more than _MOST_SETS."""
    group = sorted(group, key=_by_rank)
    limit = sorted(candidate.quality for candidate in group)[count - 1]
    better = [candidate for candidate in group if candidate.quality < limit]
    equal = [candidate for candidate in group if candidate.quality == limit]
    more = count - len(better)
    choices: Iterable[Sequence[_GpuCandidate]] = combinations(equal, more)
    if math.comb(len(equal), more) > _MOST_SETS:
        choices = (equal[start : start + more] for start in range(len(equal) - more + 1))
    for choice in choices:
        yield sorted([*better, *choice], key=_by_rank)


def _by_rank(candidate: _GpuCandidate) -> tuple[tuple[int, int, int], int]:
    return normalize_bus_id(candidate.gpu.pci_bus_id) or FAR, candidate.gpu.index


def _rank(chosen: Sequence[_GpuCandidate], links: Links | None) -> tuple[object, ...]:
    ranks, gpus = [_by_rank(candidate) for candidate in chosen], [c.gpu for c in chosen]
    worst, together = connection(links, [gpu.index for gpu in gpus])
    return (
        sorted((candidate.quality for candidate in chosen), reverse=True),
        -min(gpu.memory_total or 0 for gpu in gpus),
        (-worst, -together),
        [b - a for a, b in zip(ranks[0][0], ranks[-1][0], strict=True)],
        -min((gpu.memory_free or 0) // GIB for gpu in gpus),
        ranks,
    )
