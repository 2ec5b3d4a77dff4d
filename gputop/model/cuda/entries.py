"""The entries of a CUDA_VISIBLE_DEVICES value: what each means by itself, and where the list ends.

The first entry decides the kind of the whole list: integers, GPU UUIDs or MIG devices. The list
ends at the first entry that names nothing; what precedes it stays visible. An entry that names a
GPU a second time hides every GPU.

Sources: NVIDIA CUDA Programming Guide 13.x, 5.2.1.1 (integers, the stop, UUIDs and their
abbreviations); the NVIDIA MPS guide, CUDA_VISIBLE_DEVICES; what driver 580.159.04 answered on an
H200 and an H100 to 167 values (tests/data/visibility/*.jsonl: how numbers and UUIDs are read, what
follows them, duplicates); ptrblck's run in pytorch#92315 (a duplicate after the stop does not
matter). `documented` is False if all of these are silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

import msgspec

from gputop.model.cuda.enumeration import (
    MAX_INSTANCES,
    ONE_DEVICE,
    CudaDevice,
    Enumeration,
    shown,
)

EntryKind = Literal["integer", "gpu", "mig"]
EntryReason = Literal[
    "negative",
    "out_of_range",
    "not_a_number",
    "empty_entry",
    "unknown_uuid",
    "ambiguous_uuid",
    "kind_mismatch",
    "duplicate",
    "order",
    "unset",
    "empty_value",
    "mig_single_instance",
    "mig_one_ci_per_gi",
    "mig_limit",
    "mig",
    "mig_abbreviated",
    "uuid_missing",
]
"""Why a result is what it is; the last three mean that it is not known."""
EntryOutcome = Literal["visible", "stopped", "duplicate", "discarded", "ignored", "unresolved"]
"""What became of an entry.

visible     it names a GPU: the k-th of these is cuda:k
stopped     it names nothing: the list ended here
duplicate   it names a GPU again: every GPU is hidden
discarded   it named a GPU, but a later duplicate hid every GPU
ignored     the list had ended before it, or CUDA does not start
unresolved  what it means is not known
"""

ENDS: frozenset[EntryOutcome] = frozenset({"stopped", "duplicate", "unresolved"})
"""The outcomes of an entry that ends a list."""
_UNRESOLVED: frozenset[EntryReason] = frozenset({"mig", "mig_abbreviated", "uuid_missing"})
_SPACE = " \t\n\v\f\r"

# C's isspace() and strtoul(): ASCII only. str.isdigit() and int() would take full-width digits.
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
_HEX_DIGITS = re.compile(r"(?:-*[0-9a-fA-F]){0,32}-*")
_MIG_OLD_NAME = re.compile(r"MIG-(GPU-[^/]*)/([0-9]{1,9})/([0-9]{1,9})")
_UUID_DIGITS = 32
_ENOUGH_DIGITS = 20  # 10**20 > 2**64, and int() refuses more than 4300 digits


class ParsedEntry(msgspec.Struct, frozen=True):
    """An entry by itself: the rank of the GPU that it names in the enumeration, or why none."""

    rank: int | None = None
    reason: EntryReason | None = None
    problem: str = ""
    """What is wrong with it, as the end of a sentence."""
    documented: bool = True


class ResolvedEntry(msgspec.Struct, frozen=True):
    """One comma-separated entry of the value and what became of it."""

    position: int
    """Counted from 0; `message` counts from 1."""
    text: str
    """As in the value: text from outside, not made printable."""
    outcome: EntryOutcome
    message: str = ""
    """Why the list ended here, or why its meaning is not known: a printable sentence for people."""
    device: CudaDevice | None = None
    """The GPU, if the entry is visible and CUDA's order is known."""
    reason: EntryReason | None = None
    documented: bool = True
    """False: neither NVIDIA's text nor a run of a driver settles how CUDA reads this entry."""


# --- one entry by itself -------------------------------------------------------------------------


def kind_of(value: str) -> EntryKind:
    """Return the kind of a whole list, which the start of its first entry decides."""
    if value.startswith("GPU-"):
        return "gpu"
    return "mig" if value.startswith("MIG-") else "integer"


def _kind_here(kind: EntryKind, cuda: Enumeration) -> EntryKind:
    """Return what a kind comes to: MIG- names a GPU where none is in MIG mode."""
    return "gpu" if kind == "mig" and cuda.mig == "none" else kind


def read_number(text: str) -> int | None:
    """Read an integer as the driver does: strtoul(text, NULL, 10) on 64 bits, of which it looks at
    32, with a sign. None if there are no digits."""
    match = _NUMBER.match(text)
    if match is None:
        return None
    sign, digits = match.groups()
    significant = digits.lstrip("0") or "0"
    size = int(significant) if len(significant) <= _ENOUGH_DIGITS else 2**64
    if size >= 2**64:
        return -1  # ULONG_MAX
    number = (-size if sign == "-" else size) % 2**32
    return number - 2**32 if number >= 2**31 else number


def read_digits(text: str) -> str | None:
    """Return the hexadecimal digits of a UUID, or of its beginning, in lower case.

    Dashes are skipped, and what follows 32 digits is ignored. None if something else stands among
    them, or if there are none.
    """
    match = _HEX_DIGITS.match(text)
    digits = match[0].replace("-", "").lower() if match else ""
    whole = match is not None and match.end() == len(text)
    return digits if len(digits) == _UUID_DIGITS or (digits and whole) else None


def read_entry(text: str, kind: EntryKind, cuda: Enumeration) -> ParsedEntry:
    """Read one entry of a list of `kind`, regardless of the entries around it."""
    if not text:
        return ParsedEntry(None, "empty_entry", "is empty")
    if kind == "mig":
        return _read_mig(text, cuda)
    return _read_gpu(text, cuda) if kind == "gpu" else _read_integer(text, cuda)


def _read_integer(text: str, cuda: Enumeration) -> ParsedEntry:
    number = read_number(text)
    if number is None:
        if text.startswith(("GPU-", "MIG-")):
            problem = "is a UUID in a list that began with a number"
            return ParsedEntry(None, "kind_mismatch", problem, documented=cuda.mig == "none")
        return ParsedEntry(None, "not_a_number", "is not a number")
    if number < 0 and text.lstrip(_SPACE)[0] == "-":
        return ParsedEntry(None, "negative", "is negative")
    if cuda.mig == "new":
        problem = "is a number on a machine with MIG: what it counts from R570 on is not documented"
        return ParsedEntry(None, "mig", problem, documented=False)
    if not 0 <= number < len(cuda.devices):
        problem = f"is out of range (GPUs here: {len(cuda.devices)}, counted from 0)"
        return ParsedEntry(None, "out_of_range", problem)
    return _whole(number, cuda, documented=True)


def _read_gpu(text: str, cuda: Enumeration) -> ParsedEntry:
    as_mig = cuda.mig == "none" and text.startswith("MIG-")
    if not text.startswith("GPU-") and not as_mig:
        problem = "does not start with GPU- in a list that began with a UUID"
        return ParsedEntry(None, "kind_mismatch", problem, documented=not text.startswith("MIG-"))
    gpu = _find_gpu(text, cuda)
    if gpu.rank is None:
        return gpu
    # Before R570, a GPU's UUID may name its first MIG device: no source or run shows that it does.
    whole = cuda.devices[gpu.rank].instance is None
    entry = _whole(gpu.rank, cuda, documented=gpu.documented)
    return entry if whole else msgspec.structs.replace(entry, documented=False)


@lru_cache(maxsize=256)
def _digits_of(uuid: str | None) -> str | None:
    """Return the digits of a device's UUID; every entry of every process is compared with them."""
    return None if uuid is None else read_digits(uuid[4:])


def _find_gpu(text: str, cuda: Enumeration) -> ParsedEntry:
    digits = read_digits(text[4:])
    if digits is None:
        return ParsedEntry(None, "unknown_uuid", "is no UUID")
    uuids = [_digits_of(device.uuid) for device in cuda.devices]
    fits = [rank for rank, uuid in enumerate(uuids) if uuid and uuid.startswith(digits)]
    if len(fits) > 1:
        indices = ", ".join(str(cuda.devices[rank].index) for rank in fits)
        problem = f"is the start of several UUIDs (those of GPU {indices})"
        return ParsedEntry(None, "ambiguous_uuid", problem)
    if None in uuids and not (fits and len(digits) == _UUID_DIGITS):
        return ParsedEntry(None, "uuid_missing", "may name a GPU whose UUID is not known")
    if fits:
        return ParsedEntry(fits[0])
    return ParsedEntry(None, "unknown_uuid", "is the UUID of no GPU here")


def _whole(rank: int, cuda: Enumeration, *, documented: bool) -> ParsedEntry:
    """Return the entry of a whole GPU. In MIG mode only its first MIG device can be named so."""
    device = cuda.devices[rank]
    if not device.mig_enabled:
        # Drivers before R570 hide plain GPUs beside MIG devices; no source covers them alone.
        return ParsedEntry(rank, documented=documented and cuda.mig != "old")
    if device.instance is not None:
        return ParsedEntry(rank, documented=documented)
    which = "whose instances are not known" if device.mig is None else "which has no instance"
    if cuda.mig == "new":
        which = "and not one of its MIG devices"
    return ParsedEntry(None, "mig", f"is GPU {device.index} in MIG mode, {which}", documented=False)


def _read_mig(text: str, cuda: Enumeration) -> ParsedEntry:
    """Read MIG-<uuid>, or the older MIG-<GPU UUID or its start>/<gi>/<ci>.

    Source: NVIDIA MIG User Guide, "CUDA Device Enumeration". Whether MIG-<uuid> may be abbreviated
    is not documented.
    """
    if not text.startswith("MIG-"):
        problem = "does not start with MIG- in a list that began with a MIG device"
        return ParsedEntry(None, "kind_mismatch", problem, documented=False)
    if old := _MIG_OLD_NAME.fullmatch(text):
        return _read_old_mig(old[1], int(old[2]), int(old[3]), cuda)
    uuids = [device.mig_uuid for device in cuda.instances]
    if text in uuids:
        return ParsedEntry(uuids.index(text))
    if None in uuids or any(d.mig_enabled and d.mig is None for d in cuda.devices):
        return ParsedEntry(None, "mig", "may name a MIG device that is not known")
    if any(uuid is not None and uuid.startswith(text) for uuid in uuids):
        problem = "is the start of a MIG UUID: whether CUDA takes it is not documented"
        return ParsedEntry(None, "mig_abbreviated", problem, documented=False)
    nearly = any((uuid or "").lower() == text.strip(_SPACE).lower() for uuid in uuids)
    return ParsedEntry(
        None, "unknown_uuid", "is the UUID of no MIG device here", documented=not nearly
    )


def _read_old_mig(gpu: str, gi: int, ci: int, cuda: Enumeration) -> ParsedEntry:
    entry = _find_gpu(gpu, cuda)
    if entry.rank is None:
        return entry
    parent = cuda.devices[entry.rank]
    if parent.mig_enabled and parent.mig is None:
        return ParsedEntry(None, "mig", "may name a MIG device that is not known")
    ids = [device.id for device in cuda.instances]
    if (parent.index, gi, ci) in ids:
        return ParsedEntry(ids.index((parent.index, gi, ci)), documented=entry.documented)
    return ParsedEntry(None, "unknown_uuid", f"is no MIG device of GPU {parent.index}")


# --- the list ------------------------------------------------------------------------------------


def read_entries(value: str, cuda: Enumeration) -> tuple[ResolvedEntry, ...]:
    """Read a list; the entries' texts, joined with commas, give `value` again."""
    texts = value.split(",")
    kind = _kind_here(kind_of(value), cuda)
    targets = cuda.targets(kind == "mig")
    taken: dict[int, ResolvedEntry] = {}
    for position, text in enumerate(texts):
        entry = read_entry(text, kind, cuda)
        if kind == "gpu" and {text[:4], value[:4]} == {"GPU-", "MIG-"}:
            entry = msgspec.structs.replace(entry, documented=False)
        if entry.rank is not None and entry.rank not in taken:
            entry = _beside(entry, [*taken], targets, cuda)
        if entry.rank is None or entry.rank in taken:
            end = _end(position, text, entry, taken)
            return (*_before(taken.values(), end), end, *_after(texts, end))
        device = targets[entry.rank] if kind != "integer" or cuda.ordered else None
        taken[entry.rank] = ResolvedEntry(
            position, text, "visible", device=device, documented=entry.documented
        )
    return tuple(taken.values())


def _beside(
    entry: ParsedEntry, taken: list[int], targets: tuple[CudaDevice, ...], cuda: Enumeration
) -> ParsedEntry:
    """Return an entry that names a device as MIG's rules leave it, after those of `taken`."""
    if cuda.mig == "none" or not taken or entry.rank is None:
        return entry
    device, before = targets[entry.rank], [targets[rank] for rank in taken]
    if cuda.mig == "old" and before[0].instance is not None:
        return ParsedEntry(None, "mig_single_instance", f"is a second device: {ONE_DEVICE}")
    if device.instance is None:
        return entry
    if cuda.mig == "old":
        problem = "is a MIG device after a plain GPU: which of them stays is not documented"
        return ParsedEntry(None, "mig", problem, documented=False)
    if len(taken) >= MAX_INSTANCES:
        problem = f"is more than the {MAX_INSTANCES} MIG devices that CUDA enumerates"
        return ParsedEntry(None, "mig_limit", problem, documented=False)
    if any(device.gpu_instance == other.gpu_instance for other in before):
        problem = "is in the same GPU instance as an earlier entry: CUDA uses one of them only"
        return ParsedEntry(None, "mig_one_ci_per_gi", problem, documented=False)
    # Which order counts, the list's or the enumeration's, is documented for plain GPUs only.
    in_order = entry.rank > taken[-1]
    return msgspec.structs.replace(entry, documented=entry.documented and in_order)


def first_naming(
    entries: Iterable[ResolvedEntry], kind: EntryKind, cuda: Enumeration
) -> dict[CudaDevice, ResolvedEntry]:
    """Return the first entry that names each device, whether or not the list reaches it."""
    kind = _kind_here(kind, cuda)
    targets = cuda.targets(kind == "mig") if kind != "integer" or cuda.ordered else ()
    first: dict[CudaDevice, ResolvedEntry] = {}
    for entry in entries:
        if len(first) == len(targets):
            break
        rank = read_entry(entry.text, kind, cuda).rank
        if rank is not None:
            first.setdefault(targets[rank], entry)
    return first


def _end(
    position: int, text: str, entry: ParsedEntry, taken: dict[int, ResolvedEntry]
) -> ResolvedEntry:
    subject, reason = _subject(position, text), entry.reason
    outcome: EntryOutcome = "unresolved" if reason in _UNRESOLVED else "stopped"
    message = f"{subject} {entry.problem}"
    if entry.rank is not None:
        first = taken[entry.rank]
        outcome, reason = "duplicate", "duplicate"
        named = "MIG device" if first.device and first.device.instance else "GPU"
        message = f"{subject} names the {named} of entry {first.position + 1} again"
        message += ": CUDA hides every GPU"
    elif outcome == "stopped":
        left = "the entries before it stay visible" if taken else "no GPU is visible"
        message += f": CUDA stops here, {left}"
    return ResolvedEntry(
        position, text, outcome, message, reason=reason, documented=entry.documented
    )


def _before(taken: Iterable[ResolvedEntry], end: ResolvedEntry) -> Iterator[ResolvedEntry]:
    """Yield the entries before the end of the list, as that end leaves them."""
    for entry in taken:
        if end.outcome == "stopped":
            yield entry
        elif end.outcome == "duplicate":
            yield msgspec.structs.replace(entry, outcome="discarded", device=None)
        else:
            subject = _subject(entry.position, entry.text)
            message = f"{subject} is undecided because of entry {end.position + 1}"
            yield msgspec.structs.replace(entry, outcome="unresolved", message=message, device=None)


def _after(texts: list[str], end: ResolvedEntry) -> Iterator[ResolvedEntry]:
    """Yield the entries after the end of the list; they may be very many, so they share a text."""
    number, unresolved = end.position + 1, end.outcome == "unresolved"
    outcome: EntryOutcome = "unresolved" if unresolved else "ignored"
    message = f"undecided because of entry {number}" if unresolved else ""
    for position in range(number, len(texts)):
        yield ResolvedEntry(position, texts[position], outcome, message)


def _subject(position: int, text: str) -> str:
    return f"entry {position + 1} {shown(text)}" if text else f"entry {position + 1}"
