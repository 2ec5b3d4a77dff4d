"""What one entry of a CUDA_VISIBLE_DEVICES value says by itself.

Sources: NVIDIA CUDA Programming Guide 13.x, 5.2.1.1 (integers, the stop, UUIDs and their
abbreviations); the NVIDIA MPS guide, CUDA_VISIBLE_DEVICES; PyTorch's test_cuda.py, checked against
driver 525.60.13 (trailing junk, signs, spaces). `documented` is False where all of these are
silent or contradict each other.
"""

import re
from typing import Literal

import msgspec

from gputop.model.enumeration import Enumeration

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
    "mig",
    "uuid_missing",
]
"""Why a result is what it is; the last two are the limits of what gputop can tell."""

UNRESOLVED: frozenset[Reason] = frozenset({"mig", "uuid_missing"})
SPACE = " \t\n\v\f\r"

# C's isspace() and strtol(): ASCII only. str.isdigit() and int() would take full-width digits.
_NUMBER = re.compile(r"([ \t\n\v\f\r]*)([+-]?)([0-9]+)")
_HEXADECIMAL = re.compile(r"[xX][0-9a-fA-F]")
_BARE_UUID = re.compile(r"[0-9a-fA-F]{8}-")
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
    if kind == "mig":
        return Reading(None, "mig", "names a MIG device, which gputop cannot resolve")
    if not text:
        return Reading(None, "empty_entry", "is empty")
    return _read_uuid(text, cuda) if kind == "gpu" else _read_integer(text, cuda)


def _read_integer(text: str, cuda: Enumeration) -> Reading:
    number = read_number(text)
    if number is None:
        return _read_word(text, cuda)
    documented = number.documented and not _is_bare_uuid(text, cuda)
    if number.value < 0:
        return Reading(None, "negative", "is negative", documented)
    if cuda.has_mig:
        return Reading(
            None, "mig", "is a number on a machine with MIG, where CUDA counts otherwise"
        )
    if number.value >= len(cuda.devices):
        problem = f"is out of range (GPUs here: {len(cuda.devices)}, counted from 0)"
        return Reading(None, "out_of_range", problem, documented)
    return Reading(number.value, documented=documented)


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
    uuids = [device.uuid for device in cuda.devices]
    fits = [rank for rank, uuid in enumerate(uuids) if uuid is not None and uuid.startswith(text)]
    documented = text != "GPU-"
    if len(fits) > 1:
        indices = ", ".join(str(cuda.devices[rank].index) for rank in fits)
        problem = f"is the start of several UUIDs (those of GPU {indices})"
        return Reading(None, "ambiguous_uuid", problem, documented)
    if None in uuids and not (fits and len(text) == _UUID_LENGTH):
        return Reading(None, "uuid_missing", "may name a GPU whose UUID is not known")
    if not fits:
        return _read_stranger(text, cuda)
    if cuda.has_mig:
        return Reading(None, "mig", "is a GPU on a machine with MIG, which gputop cannot resolve")
    return Reading(fits[0], documented=documented)


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
