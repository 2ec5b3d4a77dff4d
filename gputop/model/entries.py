"""The entries of a CUDA_VISIBLE_DEVICES value, read from left to right as the driver reads them.

The first entry decides the kind of the whole list: integers, GPU UUIDs or MIG devices. The list
ends at the first entry that names nothing; what precedes it stays visible. An entry that names a
GPU a second time hides every GPU.

Sources: NVIDIA CUDA Programming Guide 13.x, 5.2.1.1 (the stop); PyTorch's test_cuda.py, checked
against driver 525.60.13 (duplicates); ptrblck's run on a real driver in pytorch#92315 (a duplicate
after the stop does not matter).
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Literal

import msgspec

from gputop.model.enumeration import Device, Enumeration, shown
from gputop.model.mig import beside
from gputop.model.readings import (
    SPACE,
    UNRESOLVED,
    Kind,
    Reading,
    Reason,
    kind_of,
    read_entry,
    read_number,
    targets,
)

Outcome = Literal["visible", "stopped", "duplicate", "discarded", "ignored", "unresolved"]
"""What became of an entry.

visible     it is logical device `logical`
stopped     it names nothing: the list ended here
duplicate   it names a GPU again: every GPU is hidden
discarded   it named a GPU, but a later duplicate hid every GPU
ignored     the list had ended before it
unresolved  what it means cannot be told
"""
_DISPUTED: frozenset[Reason] = frozenset({"out_of_range", "unknown_uuid", "ambiguous_uuid"})


class Entry(msgspec.Struct, frozen=True):
    """One comma-separated entry of the value and what became of it."""

    position: int
    """Counted from 0; `message` counts from 1."""
    text: str
    """As it stands in the value: text from outside, not made printable."""
    outcome: Outcome
    message: str
    """One sentence for people, printable."""
    logical: int | None = None
    device: Device | None = None
    """The GPU, where the entry is visible and CUDA's order is known."""
    reason: Reason | None = None
    documented: bool = True
    """False: neither NVIDIA's text nor a published run settles how CUDA reads this entry."""


def read_entries(value: str, cuda: Enumeration) -> tuple[Entry, ...]:
    """Read a list; the texts of the entries, joined with commas, are `value` again."""
    texts = value.split(",")
    kind = kind_of(value)
    taken: dict[int, Entry] = {}
    for position, text in enumerate(texts):
        reading = read_entry(text, kind, cuda)
        if cuda.has_mig and reading.rank is not None and reading.rank not in taken:
            reading = beside(reading, list(taken), targets(kind, cuda), cuda.mig)
        if reading.rank is None or reading.rank in taken:
            end = _end(position, text, reading, taken)
            return (*_before(taken.values(), end), end, *_after(texts, end))
        taken[reading.rank] = _visible(position, text, reading, len(taken), kind, cuda)
    return tuple(taken.values())


def named_devices(
    entries: Iterable[Entry], kind: Kind, cuda: Enumeration
) -> Iterator[tuple[Entry, Device]]:
    """Give every entry that names a GPU by itself, whether or not the list reaches it."""
    if kind == "integer" and not cuda.ordered:
        return
    for entry in entries:
        rank = read_entry(entry.text, kind, cuda).rank
        if rank is not None:
            yield entry, targets(kind, cuda)[rank]


def repeats_after_end(entries: tuple[Entry, ...], kind: Kind, cuda: Enumeration) -> bool:
    """Tell whether a GPU is named again after the end of the list where that is disputed.

    `0,9,0` is 0 when it is read from left to right; PyTorch looks for repeated entries before it
    looks for the range and hides all. A negative number or a word ends both readings.
    """
    if entries[0].outcome != "visible" or not any(e.reason in _DISPUTED for e in entries):
        return False
    readings = ((entry.text, read_entry(entry.text, kind, cuda)) for entry in entries)
    both = takewhile(lambda pair: pair[1].rank is not None or pair[1].reason in _DISPUTED, readings)
    seen: set[int | str] = set()
    for text, reading in both:
        name = text if reading.rank is None else reading.rank
        if name in seen:
            return True
        seen.add(name)
    return False


def _visible(
    position: int, text: str, reading: Reading, logical: int, kind: Kind, cuda: Enumeration
) -> Entry:
    rank = reading.rank or 0
    device = targets(kind, cuda)[rank] if kind != "integer" or cuda.ordered else None
    plain = kind != "integer" or text.strip(SPACE) == str(rank)
    read_as = "" if plain else f"is read as {rank} and "
    target = device.label if device else "on a GPU that cannot be told"
    message = f"{_subject(position, text)} {read_as}is cuda:{logical}, {target}"
    return Entry(position, text, "visible", message, logical, device, documented=reading.documented)


def _end(position: int, text: str, reading: Reading, taken: dict[int, Entry]) -> Entry:
    """Describe the entry at which the list ends."""
    subject = _subject(position, text)
    if reading.rank is not None:
        return _duplicate(position, text, reading, taken[reading.rank])
    if reading.reason in UNRESOLVED:
        outcome: Outcome = "unresolved"
        message = f"{subject} {reading.problem}"
    else:
        outcome = "stopped"
        left = "the entries before it stay visible" if taken else "no GPU is visible"
        message = f"{subject} {reading.problem}: CUDA stops here, {left}"
    return Entry(
        position, text, outcome, message, reason=reading.reason, documented=reading.documented
    )


def _duplicate(position: int, text: str, reading: Reading, first: Entry) -> Entry:
    """Describe an entry that names a GPU again; with a -0, whether it does is not documented."""
    subject = _subject(position, text)
    named = "MIG device" if first.device and first.device.instance else "GPU"
    message = (
        f"{subject} names the {named} of entry {first.position + 1} again: CUDA hides every GPU"
    )
    numbers = (read_number(text), read_number(first.text))
    documented = reading.documented and not any(n is not None and n.signed for n in numbers)
    return Entry(position, text, "duplicate", message, reason="duplicate", documented=documented)


def _before(taken: Iterable[Entry], end: Entry) -> Iterator[Entry]:
    """Give the entries before the end of the list, as that end leaves them."""
    for entry in taken:
        if end.outcome == "stopped":
            yield entry
            continue
        outcome: Outcome = "discarded" if end.outcome == "duplicate" else "unresolved"
        fate = "hidden" if end.outcome == "duplicate" else "undecided"
        subject = _subject(entry.position, entry.text)
        message = f"{subject} is {fate} because of entry {end.position + 1}"
        documented = entry.documented
        yield Entry(entry.position, entry.text, outcome, message, documented=documented)


def _after(texts: list[str], end: Entry) -> Iterator[Entry]:
    """Give the entries after the end of the list; there may be very many, so they share text."""
    undecided = end.outcome == "unresolved"
    outcome: Outcome = "unresolved" if undecided else "ignored"
    number = end.position + 1
    message = f"undecided because of entry {number}" if undecided else _ended(number)
    for position in range(number, len(texts)):
        yield Entry(position, texts[position], outcome, message)


def _ended(number: int) -> str:
    return f"ignored, because the list ended at entry {number}"


def _subject(position: int, text: str) -> str:
    return f"entry {position + 1} {shown(text)}" if text else f"entry {position + 1}"
