"""What one entry of a CUDA_VISIBLE_DEVICES value says by itself.

Sources: NVIDIA CUDA Programming Guide 13.x, 5.2.1.1 (integers, the stop, UUIDs and their
abbreviations); the NVIDIA MPS guide, CUDA_VISIBLE_DEVICES; PyTorch's test_cuda.py, checked against
driver 525.60.13 (trailing junk, signs, spaces). `documented` is False where all of these are
silent or contradict each other.
"""

import re
from typing import Literal

import msgspec

from gputop.model.enumeration import Device, Enumeration

Kind = Literal["integer", "gpu", "mig"]
Reason = Literal[
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
"""Why a result is what it is; the last three are the limits of what can be told."""

UNRESOLVED: frozenset[Reason] = frozenset({"mig", "mig_abbreviated", "uuid_missing"})
SPACE = " \t\n\v\f\r"

# C's isspace() and strtol(): ASCII only. str.isdigit() and int() would take full-width digits.
_NUMBER = re.compile(r"([ \t\n\v\f\r]*)([+-]?)([0-9]+)")
_HEXADECIMAL = re.compile(r"[xX][0-9a-fA-F]")
_BARE_UUID = re.compile(r"[0-9a-fA-F]{8}-")
_MIG_PLACE = re.compile(r"MIG-(GPU-[^/]*)/([0-9]{1,9})/([0-9]{1,9})")
_UUID_LENGTH = len("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")
_ENOUGH_DIGITS = 20  # 10**20 > 2**64, and int() refuses more than 4300 digits


class Number(msgspec.Struct, frozen=True):
    """What C's strtol() reads at the start of a text."""

    value: int
    """Magnitudes from 10**20 on are 10**20."""
    signed: bool
    """A minus stands before it; the value may still be 0."""
    documented: bool
    """False where base 10 and base 0 differ, or where a 32-bit integer would wrap."""


class Reading(msgspec.Struct, frozen=True):
    """An entry by itself: the place in the enumeration of the GPU it names, or why it has none."""

    rank: int | None = None
    reason: Reason | None = None
    problem: str = ""
    """What is wrong with it, as the end of a sentence."""
    documented: bool = True


def kind_of(value: str) -> Kind:
    """Tell the kind of a whole list from the start of its first entry."""
    if value.startswith("GPU-"):
        return "gpu"
    return "mig" if value.startswith("MIG-") else "integer"


def targets(kind: Kind, cuda: Enumeration) -> tuple[Device, ...]:
    """Give what a list of `kind` can name; `Reading.rank` is a place in it."""
    return cuda.instances if kind == "mig" else cuda.devices


def read_number(text: str) -> Number | None:
    """Read an integer as C's strtol(text, NULL, 10) does; None where there are no digits."""
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
    return Number(-size if sign == "-" else size, sign == "-", documented)


def read_entry(text: str, kind: Kind, cuda: Enumeration) -> Reading:
    """Read one entry of a list of `kind`, regardless of the entries around it."""
    if not text:
        return Reading(None, "empty_entry", "is empty")
    if kind == "mig":
        return _read_mig(text, cuda)
    return _read_uuid(text, cuda) if kind == "gpu" else _read_integer(text, cuda)


def _read_integer(text: str, cuda: Enumeration) -> Reading:
    number = read_number(text)
    if number is None:
        return _read_word(text, cuda)
    documented = number.documented and not _is_bare_uuid(text, cuda)
    if number.value < 0:
        return Reading(None, "negative", "is negative", documented)
    if cuda.mig == "new":
        problem = "is a number on a machine with MIG: what it counts from R570 on is not documented"
        return Reading(None, "mig", problem, documented=False)
    if number.value >= len(cuda.devices):
        problem = f"is out of range (GPUs here: {len(cuda.devices)}, counted from 0)"
        return Reading(None, "out_of_range", problem, documented)
    return _whole(number.value, cuda, documented=documented)


def _read_word(text: str, cuda: Enumeration) -> Reading:
    """Judge an entry of an integer list that does not start with a number."""
    if text.startswith(("GPU-", "MIG-")):
        problem = "is a UUID in a list that began with a number"
        return Reading(None, "kind_mismatch", problem, documented=False)
    like_uuid = text.lstrip(SPACE)[:4].upper() in ("GPU-", "MIG-") or _is_bare_uuid(text, cuda)
    return Reading(None, "not_a_number", "is not a number", documented=not like_uuid)


def _read_uuid(text: str, cuda: Enumeration) -> Reading:
    if not text.startswith("GPU-"):
        problem = "does not start with GPU- in a list that began with a UUID"
        return Reading(None, "kind_mismatch", problem, documented=False)
    found = _find_gpu(text, cuda)
    if found.rank is None:
        return found
    named = _whole(found.rank, cuda, documented=found.documented)
    if cuda.devices[found.rank].instance is None:
        return named
    # The GPU's own UUID, in MIG mode before R570: no source says so, and no run shows it.
    return msgspec.structs.replace(named, documented=False)


def _find_gpu(text: str, cuda: Enumeration) -> Reading:
    """Find the GPU whose UUID starts with a text; MIG mode does not matter here."""
    uuids = [device.uuid for device in cuda.devices]
    fits = [rank for rank, uuid in enumerate(uuids) if uuid is not None and uuid.startswith(text)]
    documented = text != "GPU-"
    if len(fits) > 1:
        indices = ", ".join(str(cuda.devices[rank].index) for rank in fits)
        problem = f"is the start of several UUIDs (those of GPU {indices})"
        return Reading(None, "ambiguous_uuid", problem, documented)
    if None in uuids and not (fits and len(text) == _UUID_LENGTH):
        return Reading(None, "uuid_missing", "may name a GPU whose UUID is not known")
    return Reading(fits[0], documented=documented) if fits else _read_stranger(text, cuda)


def _whole(rank: int, cuda: Enumeration, *, documented: bool) -> Reading:
    """Name a GPU as a whole, which in MIG mode it cannot be."""
    device = cuda.devices[rank]
    if not device.mig_enabled:
        # Beside MIG devices, drivers before R570 hide plain GPUs; alone, no source says.
        return Reading(rank, documented=documented and cuda.mig != "old")
    if device.instance is not None:
        return Reading(rank, documented=documented)
    which = "whose instances are not known" if device.mig is None else "which has no instance"
    if cuda.mig == "new":
        which = "and not one of its MIG devices"
    return Reading(None, "mig", f"is GPU {device.index} in MIG mode, {which}", documented=False)


def _read_mig(text: str, cuda: Enumeration) -> Reading:
    """Read MIG-<uuid>, or the older MIG-<GPU UUID or its start>/<gi>/<ci>.

    Source: NVIDIA MIG User Guide, "CUDA Device Enumeration". Whether MIG-<uuid> may be abbreviated
    is not documented.
    """
    if not text.startswith("MIG-"):
        problem = "does not start with MIG- in a list that began with a MIG device"
        return Reading(None, "kind_mismatch", problem, documented=False)
    place = _MIG_PLACE.fullmatch(text)
    if place is not None:
        return _read_place(place[1], int(place[2]), int(place[3]), cuda)
    uuids = [device.mig_uuid for device in cuda.instances]
    if text in uuids:
        return Reading(uuids.index(text))
    if None in uuids or any(d.mig_enabled and d.mig is None for d in cuda.devices):
        return Reading(None, "mig", "may name a MIG device that is not known")
    if any(uuid is not None and uuid.startswith(text) for uuid in uuids):
        problem = "is the start of a MIG UUID: whether CUDA takes it is not documented"
        return Reading(None, "mig_abbreviated", problem, documented=False)
    nearly = any((uuid or "").lower() == text.strip(SPACE).lower() for uuid in uuids)
    return Reading(None, "unknown_uuid", "is the UUID of no MIG device here", not nearly)


def _read_place(gpu: str, gi: int, ci: int, cuda: Enumeration) -> Reading:
    found = _find_gpu(gpu, cuda)
    if found.rank is None:
        return found
    parent = cuda.devices[found.rank]
    if parent.mig_enabled and parent.mig is None:
        return Reading(None, "mig", "may name a MIG device that is not known")
    for rank, device in enumerate(cuda.instances):
        at = device.instance
        if device.index == parent.index and at is not None and (at.gi, at.ci) == (gi, ci):
            return Reading(rank, documented=found.documented)
    return Reading(None, "unknown_uuid", f"is no MIG device of GPU {parent.index}")


def _read_stranger(text: str, cuda: Enumeration) -> Reading:
    """Judge a UUID that no GPU has; whether letter case and spaces count is not documented."""
    loose = text.strip(SPACE).lower()
    nearly = any((device.uuid or "").lower().startswith(loose) for device in cuda.devices)
    return Reading(None, "unknown_uuid", "is the UUID of no GPU here", documented=not nearly)


def _is_bare_uuid(text: str, cuda: Enumeration) -> bool:
    """Tell whether a text looks like a UUID without its GPU-, which then reads as a number."""
    bare = text.strip(SPACE)
    if _BARE_UUID.match(bare):
        return True
    if len(bare) < 4 or bare.strip("0123456789") == "":
        return False
    return any((device.uuid or "").startswith("GPU-" + bare) for device in cuda.devices)
