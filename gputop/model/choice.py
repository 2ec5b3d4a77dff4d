"""Which GPUs a new job should take, and the CUDA_VISIBLE_DEVICES that names them.

A GPU is refused if its state is in doubt, if it is in MIG mode, if the caller may not see it, if
somebody computes on it, or for want of memory or rest. Of those that are left come first

1. GPUs of one model, if enough are; others only where `same_model` does not forbid it
2. those that nobody is on, that draw no screen, that are least busy (in steps of 10 %)
3. the model with most memory
4. those that are best connected: the worst link between two of them, then all links; NVLink before
   PCIe; where that is not known, neighbours by PCI bus id
5. those with most free memory (in whole GiB)
6. the lowest PCI bus id, and then the lowest index

Given the same frames the answer is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal

import msgspec

from gputop.errors import UsageError
from gputop.model.enumeration import PCI_BUS_ID, normalize_bus_id, shown
from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.health import findings
from gputop.model.inventory import frame_inventory
from gputop.model.links import Links, connection
from gputop.model.mapping import Mapping
from gputop.model.summary import is_free, strangers, users
from gputop.model.text import GIB, percent, printable, size
from gputop.model.visibility import resolve

Form = Literal["uuid", "index", "export"]

_FAR = (1 << 32, 0, 0)
_MOST_SETS = 5000


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for, and where it is asked."""

    count: int = 1
    min_free: int | None = None
    """Bytes; None: all but what the driver itself takes."""
    max_utilization: float = 0.1
    """At 1 nothing is too busy, and utilization may be unknown."""
    shared: bool = False
    """Take GPUs that others compute on."""
    same_model: bool = False
    exclude: tuple[str, ...] = ()
    """NVML indices and beginnings of UUIDs."""
    value: str | None = None
    """The caller's own CUDA_VISIBLE_DEVICES, which leaves him fewer GPUs."""
    order: str | None = None
    """The caller's own CUDA_DEVICE_ORDER."""


class Choice(msgspec.Struct, frozen=True):
    """The answer."""

    gpus: tuple[Gpu, ...] | None
    """By PCI bus id; None: there are not enough."""
    reasons: dict[int, str]
    """Why not, of every GPU that cannot be had, by index."""
    free: int
    possible: bool
    """Whether waiting can help."""
    note: str | None
    """What the caller's own CUDA_VISIBLE_DEVICES leaves."""


class Value(msgspec.Struct, frozen=True):
    """A value for CUDA_VISIBLE_DEVICES, and what the caller should know of it."""

    text: str
    note: str | None = None


class _Candidate(msgspec.Struct, frozen=True):
    gpu: Gpu
    quality: tuple[bool, bool, int]
    """The less the better."""


def choose(frames: Sequence[Frame], wanted: Wanted) -> Choice:
    """Pick from the last of these frames; all of them tell how busy a GPU is.

    Raises UsageError for an `exclude` that names nothing.
    """
    frame = frames[-1]
    barred, note = _out_of_sight(frame, wanted)
    barred |= _excluded(frame, wanted.exclude)
    reasons: dict[int, str] = {}
    able: list[_Candidate] = []
    perhaps: list[_Candidate] = []
    for gpu in frame.gpus:
        peak = _peak(frames, gpu)
        never = barred.get(gpu.index) or _never(gpu, wanted)
        reason = never or _not_now(frame, gpu, peak, wanted)
        if never is None:
            perhaps.append(_candidate(frame, gpu, peak))
        if reason is None:
            able.append(perhaps[-1])
        else:
            reasons[gpu.index] = reason
    possible = _best(perhaps, wanted, frame.links) is not None
    return Choice(_best(able, wanted, frame.links), reasons, len(able), possible, note)


def value_for(frame: Frame, gpus: Sequence[Gpu], order: str | None, form: Form = "uuid") -> Value:
    """Name GPUs so that the k-th is cuda:k; indices only where they surely mean these GPUs."""
    order = PCI_BUS_ID if form == "export" else order
    text = ",".join(gpu.uuid or "" for gpu in gpus)
    note = _doubt(frame, gpus, order, text)
    if form != "uuid":
        ranks = {d.index: str(k) for k, d in enumerate(_mapping(frame, None, order).visible or ())}
        numbers = ",".join(ranks.get(gpu.index, "") for gpu in gpus)
        why = _doubt(frame, gpus, order, numbers)
        note = why and f"UUIDs in place of indices, which are not exact here: {why}"
        text = text if why else numbers
    return Value(text, note)


def _mapping(frame: Frame, value: str | None, order: str | None) -> Mapping:
    found = frame_inventory(frame)
    return resolve(value, found.devices, order=order, driver_version=found.driver_version)


def _doubt(frame: Frame, gpus: Sequence[Gpu], order: str | None, value: str) -> str | None:
    """Why a value does not surely mean these GPUs in this order."""
    mapping = _mapping(frame, value, order)
    seen = [device.index for device in mapping.visible or ()]
    if mapping.certainty != "exact" or seen != [gpu.index for gpu in gpus]:
        return _mapping(frame, None, order).because
    return None if mapping.documented else "what CUDA makes of them is not documented"


def _out_of_sight(frame: Frame, wanted: Wanted) -> tuple[dict[int, str], str | None]:
    """Give the GPUs that the caller's own variables hide, and a sentence about the rest."""
    if wanted.value is None:
        return {}, None
    own = f"your own CUDA_VISIBLE_DEVICES={shown(wanted.value)}"
    mapping = _mapping(frame, wanted.value, wanted.order)
    seen = mapping.visible if mapping.visible is not None else mapping.visible_set
    if seen is None:
        reason = f"which GPUs {own} leaves cannot be told: {mapping.because}"
        return dict.fromkeys((gpu.index for gpu in frame.gpus), reason), None
    whole = {device.index for device in seen if device.instance is None}
    hidden = [gpu.index for gpu in frame.gpus if gpu.index not in whole]
    if not hidden:
        return {}, None
    left = ", ".join(f"GPU {index}" for index in sorted(whole)) or "no GPU"
    sure = "" if mapping.certainty == "exact" else f" ({mapping.certainty}: {mapping.because})"
    return dict.fromkeys(hidden, f"{own} hides it"), f"{own} leaves {left}{sure}"


def _excluded(frame: Frame, exclude: Sequence[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    unnamed = any(gpu.uuid is None for gpu in frame.gpus)
    for word in exclude:
        named = [
            gpu.index
            for gpu in frame.gpus
            if str(gpu.index) == word
            or (
                word.upper().startswith("GPU-")
                and (gpu.uuid or "").lower().startswith(word.lower())
            )
        ]
        if not named and not unnamed:
            raise UsageError(f"--exclude {shown(word)} names no GPU here: nvidia-smi -L lists them")
        found |= dict.fromkeys(named, "it is excluded")
    return found


def _peak(frames: Sequence[Frame], gpu: Gpu) -> float | None:
    """The highest utilization; None if it is unknown at any time."""
    values = [one.utilization for frame in frames for one in frame.gpus if one.key == gpu.key]
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _never(gpu: Gpu, wanted: Wanted) -> str | None:
    """Why it cannot be had however long one waits."""
    least = wanted.min_free or 0
    return _first(
        (
            gpu.mig_mode,
            "it is in MIG mode, where a job gets an instance (nvidia-smi -L), not a GPU",
        ),
        (gpu.compute_mode == "prohibited", "its compute mode is prohibited"),
        ((gpu.memory_total or least) < least, f"it has {size(gpu.memory_total)} of memory in all"),
    )


def _not_now(frame: Frame, gpu: Gpu, peak: float | None, wanted: Wanted) -> str | None:
    who = [printable(user, 40) for user in users(frame, gpu)]
    unknown, used, free = strangers(frame, gpu), gpu.memory_used, gpu.memory_free
    who += [f"{unknown} of unknown users"] if unknown else []
    exclusive = (gpu.compute_mode or "").startswith("exclusive")
    mode = ", and its compute mode is exclusive" if exclusive else ""
    least, limit = wanted.min_free, wanted.max_utilization
    unlisted = gpu.processes_known is False and not wanted.shared
    doubtful = gpu.stale_for is not None or gpu.uuid is None
    seized = least is None and not is_free(frame, gpu)
    sick = next((one.text for one in findings(frame, gpu) if one.level == "alarm"), None)
    return _first(
        (gpu.error, printable(gpu.complaint or "", 200)),
        (doubtful, "it does not answer"),
        (gpu.asleep, "it is asleep, and is not asked who is on it, which would wake it"),
        (
            unlisted,
            "the driver does not say who is on it",
        ),
        (who and (exclusive or not wanted.shared), f"processes of {', '.join(who)}{mode}"),
        (seized and used is None, "how much of its memory is in use is not known"),
        (seized, f"{size(used)} in use, by nobody who can be seen from here"),
        (least and free is None, "how much of its memory is free is not known"),
        ((free or 0) < (least or 0), f"{size(free)} free"),
        (limit < 1 and peak is None, "its utilization is not known"),
        (limit < min(1, peak or 0), f"{percent(peak)} % busy, more than {limit * 100:g} %"),
        (sick, f"it needs a person (gputop doctor): {sick}"),
    )


def _first(*objections: tuple[object, str]) -> str | None:
    return next((reason for holds, reason in objections if holds), None)


def _candidate(frame: Frame, gpu: Gpu, peak: float | None) -> _Candidate:
    occupied = bool(users(frame, gpu) or strangers(frame, gpu))
    return _Candidate(
        gpu, (occupied, bool(gpu.display_active), 11 if peak is None else math.floor(peak * 10))
    )


def _best(
    able: Sequence[_Candidate], wanted: Wanted, links: Links | None
) -> tuple[Gpu, ...] | None:
    models: dict[str, list[_Candidate]] = {}
    for one in able:
        models.setdefault(one.gpu.name or one.gpu.key, []).append(one)
    groups = [group for group in models.values() if len(group) >= wanted.count]
    if not groups and not wanted.same_model and len(able) >= wanted.count:
        groups = [list(able)]
    sets = [chosen for group in groups for chosen in _sets(group, wanted.count)]
    best = min(sets, key=lambda chosen: _rank(chosen, links), default=None)
    return None if best is None else tuple(one.gpu for one in best)


def _sets(group: Sequence[_Candidate], count: int) -> Iterator[list[_Candidate]]:
    """Those of best quality, and of the equals that make up the number every choice; each run of
    neighbours where that would be too many."""
    group = sorted(group, key=_place)
    limit = sorted(one.quality for one in group)[count - 1]
    sure = [one for one in group if one.quality < limit]
    equal = [one for one in group if one.quality == limit]
    more = count - len(sure)
    if math.comb(len(equal), more) <= _MOST_SETS:
        for some in combinations(equal, more):
            yield sorted([*sure, *some], key=_place)
        return
    for start in range(len(equal) - more + 1):
        yield sorted(sure + equal[start : start + more], key=_place)


def _place(one: _Candidate) -> tuple[tuple[int, int, int], int]:
    return normalize_bus_id(one.gpu.pci_bus_id) or _FAR, one.gpu.index


def _rank(chosen: Sequence[_Candidate], links: Links | None) -> tuple[object, ...]:
    places = [_place(one) for one in chosen]
    worst, together = connection(links, [one.gpu.index for one in chosen])
    return (
        sorted((one.quality for one in chosen), reverse=True),
        -min(one.gpu.memory_total or 0 for one in chosen),
        (-worst, -together),
        [b - a for a, b in zip(places[0][0], places[-1][0], strict=True)],
        -min((one.gpu.memory_free or 0) // GIB for one in chosen),
        places,
    )
