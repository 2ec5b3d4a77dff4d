"""The entries of a CUDA_VISIBLE_DEVICES value: what each means by itself, and where the list ends.

The first entry decides the kind of the whole list: integers, GPU UUIDs or MIG devices. The list
ends at the first entry that names nothing; what precedes it stays visible. An entry that names a
GPU a second time hides every GPU.

Sources: NVIDIA CUDA Programming Guide 13.x, 5.2.1.1 (integers, the stop, UUIDs and their
abbreviations); the NVIDIA MPS guide, CUDA_VISIBLE_DEVICES; PyTorch's test_cuda.py, checked against
driver 525.60.13 (trailing junk, signs, spaces, duplicates); ptrblck's run on a real driver in
pytorch#92315 (a duplicate after the stop does not matter). `documented` is False if all of these
are silent or contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
ignored     the list had ended before it
unresolved  what it means is not known
"""

ENDS: frozenset[EntryOutcome] = frozenset({"stopped", "duplicate", "unresolved"})
"""The outcomes of an entry that ends a list."""
_UNRESOLVED: frozenset[EntryReason] = frozenset({"mig", "mig_abbreviated", "uuid_missing"})
_DISPUTED: frozenset[EntryReason] = frozenset({"out_of_range", "unknown_uuid", "ambiguous_uuid"})
_SPACE = " \t\n\v\f\r"

# C's isspace() and strtol(): ASCII only. str.isdigit() and int() would take full-width digits.
_NUMBER = re.compile(r"([ \t\n\v\f\r]*)([+-]?)([0-9]+)")
_HEXADECIMAL = re.compile(r"[xX][0-9a-fA-F]")
_BARE_UUID = re.compile(r"[0-9a-fA-F]{8}-")
_MIG_OLD_NAME = re.compile(r"MIG-(GPU-[^/]*)/([0-9]{1,9})/([0-9]{1,9})")
_UUID_LENGTH = len("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")
_ENOUGH_DIGITS = 20  # 10**20 > 2**64, and int() refuses more than 4300 digits


class Number(msgspec.Struct, frozen=True):
    """What C's strtol() reads at the start of a text."""

    value: int
    """Its magnitude is at most 10**20: larger ones are cut to that."""
    documented: bool
    """False where base 10 and base 0 differ, or where a 32-bit integer would wrap."""


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
    """False: neither NVIDIA's text nor a published run settles how CUDA reads this entry."""


# --- one entry by itself -------------------------------------------------------------------------


def kind_of(value: str) -> EntryKind:
    """Return the kind of a whole list, which the start of its first entry decides."""
    if value.startswith("GPU-"):
        return "gpu"
    return "mig" if value.startswith("MIG-") else "integer"


def read_number(text: str) -> Number | None:
    """Read an integer as C's strtol(text, NULL, 10) does; None if there are no digits."""
    match = _NUMBER.match(text)
    if match is None:
        return None
    space, sign, digits = match.groups()
    significant = digits.lstrip("0") or "0"
    size = int(significant) if len(significant) <= _ENOUGH_DIGITS else 10**_ENOUGH_DIGITS
    octal = len(digits) > 1 and digits[0] == "0" and (len(significant) > 1 or significant > "7")
    hexadecimal = digits == "0" and _HEXADECIMAL.match(text, match.end()) is not None
    wraps = 2**31 <= size < 2**64
    documented = space.strip(" ") == "" and not (octal or hexadecimal or wraps)
    return Number(-size if sign == "-" else size, documented)


def read_entry(text: str, kind: EntryKind, cuda: Enumeration) -> ParsedEntry:
    """Read one entry of a list of `kind`, regardless of the entries around it."""
    if not text:
        return ParsedEntry(None, "empty_entry", "is empty")
    if kind == "mig":
        return _read_mig(text, cuda)
    return _read_gpu(text, cuda) if kind == "gpu" else _read_integer(text, cuda)


def _mismatch(problem: str) -> ParsedEntry:
    return ParsedEntry(None, "kind_mismatch", problem, documented=False)


def _read_integer(text: str, cuda: Enumeration) -> ParsedEntry:
    number = read_number(text)
    if number is None:
        if text.startswith(("GPU-", "MIG-")):
            return _mismatch("is a UUID in a list that began with a number")
        like_uuid = text.lstrip(_SPACE)[:4].upper() in ("GPU-", "MIG-") or _is_bare_uuid(text, cuda)
        return ParsedEntry(None, "not_a_number", "is not a number", documented=not like_uuid)
    documented = number.documented and not _is_bare_uuid(text, cuda)
    if number.value < 0:
        return ParsedEntry(None, "negative", "is negative", documented)
    if cuda.mig == "new":
        problem = "is a number on a machine with MIG: what it counts from R570 on is not documented"
        return ParsedEntry(None, "mig", problem, documented=False)
    if number.value >= len(cuda.devices):
        problem = f"is out of range (GPUs here: {len(cuda.devices)}, counted from 0)"
        return ParsedEntry(None, "out_of_range", problem, documented)
    return _whole(number.value, cuda, documented=documented)


def _is_bare_uuid(text: str, cuda: Enumeration) -> bool:
    """Return whether a text looks like a UUID without GPU-, which CUDA reads as a number."""
    bare = text.strip(_SPACE)
    if _BARE_UUID.match(bare):
        return True
    if len(bare) < 4 or bare.strip("0123456789") == "":
        return False
    return any((device.uuid or "").startswith("GPU-" + bare) for device in cuda.devices)


def _read_gpu(text: str, cuda: Enumeration) -> ParsedEntry:
    if not text.startswith("GPU-"):
        return _mismatch("does not start with GPU- in a list that began with a UUID")
    gpu = _find_gpu(text, cuda)
    if gpu.rank is None:
        return gpu
    # Before R570, a GPU's UUID may name its first MIG device: no source or run shows that it does.
    whole = cuda.devices[gpu.rank].instance is None
    entry = _whole(gpu.rank, cuda, documented=gpu.documented)
    return entry if whole else msgspec.structs.replace(entry, documented=False)


def _find_gpu(text: str, cuda: Enumeration) -> ParsedEntry:
    uuids = [device.uuid for device in cuda.devices]
    fits = [rank for rank, uuid in enumerate(uuids) if uuid is not None and uuid.startswith(text)]
    documented = text != "GPU-"
    if len(fits) > 1:
        indices = ", ".join(str(cuda.devices[rank].index) for rank in fits)
        problem = f"is the start of several UUIDs (those of GPU {indices})"
        return ParsedEntry(None, "ambiguous_uuid", problem, documented)
    if None in uuids and not (fits and len(text) == _UUID_LENGTH):
        return ParsedEntry(None, "uuid_missing", "may name a GPU whose UUID is not known")
    if fits:
        return ParsedEntry(fits[0], documented=documented)
    # Whether letter case and spaces count is not documented.
    loose = text.strip(_SPACE).lower()
    nearly = any((uuid or "").lower().startswith(loose) for uuid in uuids)
    return ParsedEntry(None, "unknown_uuid", "is the UUID of no GPU here", documented=not nearly)


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
        return _mismatch("does not start with MIG- in a list that began with a MIG device")
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
    return ParsedEntry(None, "unknown_uuid", "is the UUID of no MIG device here", not nearly)


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
    kind = kind_of(value)
    targets = cuda.targets(kind == "mig")
    taken: dict[int, ResolvedEntry] = {}
    for position, text in enumerate(texts):
        entry = read_entry(text, kind, cuda)
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
    targets = cuda.targets(kind == "mig") if kind != "integer" or cuda.ordered else ()
    first: dict[CudaDevice, ResolvedEntry] = {}
    for entry in entries:
        if len(first) == len(targets):
            break
        rank = read_entry(entry.text, kind, cuda).rank
        if rank is not None:
            first.setdefault(targets[rank], entry)
    return first


def repeats_after_end(
    entries: tuple[ResolvedEntry, ...], kind: EntryKind, cuda: Enumeration
) -> bool:
    """Return whether a GPU is named again after the end of the list, if the effect is disputed.

    Read from left to right, `0,9,0` means 0. PyTorch checks for repeated entries before the range,
    and hides all GPUs. A negative number or a word ends both readings.
    """
    if entries[0].outcome != "visible" or not any(e.reason in _DISPUTED for e in entries):
        return False
    named: set[int | str] = set()
    for text in (entry.text for entry in entries):
        entry = read_entry(text, kind, cuda)
        if entry.rank is None and entry.reason not in _DISPUTED:
            return False
        name = text if entry.rank is None else entry.rank
        if name in named:
            return True
        named.add(name)
    return False


def _end(
    position: int, text: str, entry: ParsedEntry, taken: dict[int, ResolvedEntry]
) -> ResolvedEntry:
    subject, reason, documented = _subject(position, text), entry.reason, entry.documented
    outcome: EntryOutcome = "unresolved" if reason in _UNRESOLVED else "stopped"
    message = f"{subject} {entry.problem}"
    if entry.rank is not None:
        first = taken[entry.rank]
        outcome, reason = "duplicate", "duplicate"
        named = "MIG device" if first.device and first.device.instance else "GPU"
        message = f"{subject} names the {named} of entry {first.position + 1} again"
        message += ": CUDA hides every GPU"
        # Whether a -0 names a GPU again is not documented.
        signs = (text.lstrip(_SPACE)[:1], first.text.lstrip(_SPACE)[:1])
        documented = documented and "-" not in signs
    elif outcome == "stopped":
        left = "the entries before it stay visible" if taken else "no GPU is visible"
        message += f": CUDA stops here, {left}"
    return ResolvedEntry(position, text, outcome, message, reason=reason, documented=documented)


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
