"""The filter language: which rows of processes are meant.

    alice train.py       both words, each somewhere in user, command, pid or container; in any case
    "train.py --lr 1"    quotes keep blanks, and take every sign for itself
    user:alice pid:4242  exactly this one
    container:train      a part of its name, id or image
    gpu:1 gpu:2:3 gpu:GPU-4f    index as the column GPU says it, or the beginning of a UUID
    cuda:0               what the column CUDA says, with or without its ?
    mem>10G rss>=1.5GiB  sizes in binary units K M G T
    sm<5 cpu>100         percent, as shown
    age>1h               s m h d
    idle idle>10m        no work on the SMs now, or for so long
    !word !user:bob      not that
    a b or c             either both a and b, or c

A test on what is unknown is unknown, and so is its negation: neither fits. Unknown is not 0.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from gputop.errors import UsageError
from gputop.model.process_metrics import COLUMNS, PROCESS, ProcessRow
from gputop.model.text import printable

Test = Callable[[ProcessRow], bool | None]
"""Whether a row fits; None where that is not known."""


class FilterError(UsageError):
    """A filter that says nothing: `reason` what is wrong, `position` where, counted from 0."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(f"filter {printable(text, 200)!r}, column {position + 1}: {reason}")
        self.reason, self.position = reason, position


_WORD = re.compile(
    r"(?=\S)(?P<negated>!?)(?:(?P<key>user|pid|gpu|cuda|container):)?"
    r'(?:"(?P<quoted>[^"]*)"(?!\S)|(?P<plain>\S*))',
    re.IGNORECASE,
)
_COMPARISON = re.compile(r"(?P<name>[a-z_]+)(?P<sign>>=|<=|>|<)(?P<value>.*)", re.DOTALL)
_NUMBER = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<unit>\S*)", re.ASCII)
_GPU_WORD = re.compile(r"gpu([0-9]+)", re.ASCII)

_SIZES = {unit + end: 1024.0**k for k, unit in enumerate("kmgt", 1) for end in ("", "b", "ib")}
_SPANS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PERCENT = {"": 0.01, "%": 0.01}
_FIELDS: dict[str, tuple[str, Mapping[str, float], str]] = {
    "mem": ("gpu_memory", _SIZES, "K M G T"),
    "rss": ("rss", _SIZES, "K M G T"),
    "age": ("age", _SPANS, "s m h d"),
    "idle": ("idle_for", _SPANS, "s m h d"),
    "sm": ("sm_utilization", _PERCENT, "%"),
    "cpu": ("cpu", _PERCENT, "%"),
}
"""Name in a filter: the metric, what its units are worth, the units in words."""

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


def parse(text: str) -> Callable[[ProcessRow], bool]:
    """Whether a row fits a filter, as a function; every row fits an empty one. FilterError."""
    alternatives: list[list[Test]] = [[]]
    place = 0
    for match in _WORD.finditer(text):
        place = match.start()
        if match[0].casefold() != "or":
            alternatives[-1].append(_test(text, match))
        elif alternatives[-1]:
            alternatives.append([])
        else:
            raise FilterError(text, place, "nothing before this 'or'")
    if len(alternatives) > 1 and not alternatives[-1]:
        raise FilterError(text, place, "nothing after this 'or'")
    return lambda row: any(all(test(row) for test in tests) for tests in alternatives)


def _test(text: str, word: re.Match[str]) -> Test:
    key, quoted, plain = word["key"], word["quoted"], word["plain"]
    if plain and plain.startswith('"'):
        raise FilterError(text, word.start("plain"), "this quote is not closed")
    value = (plain if quoted is None else quoted).casefold()
    if not value:
        raise FilterError(text, word.start(), f"a word is missing after {word[0].rstrip()}")
    if key is not None:
        test = _KEYS[key.casefold()](value)
    elif quoted is not None:
        test = _anywhere(value)
    else:
        test = _plain(text, word.start("plain"), value)
    return _negation(test) if word["negated"] else test


def _negation(test: Test) -> Test:
    def negated(row: ProcessRow) -> bool | None:
        fits = test(row)
        return None if fits is None else not fits

    return negated


def _plain(text: str, position: int, value: str) -> Test:
    if value == "idle":
        return idle
    if match := _GPU_WORD.fullmatch(value):
        return _on_gpu(match[1])
    if match := _COMPARISON.fullmatch(value):
        return _comparison(text, position, match)
    return _anywhere(value)


def _comparison(text: str, position: int, match: re.Match[str]) -> Test:
    if match["name"] not in _FIELDS:
        raise FilterError(text, position, f"compare one of {', '.join(_FIELDS)}, or quote it")
    metric_id, units, known = _FIELDS[match["name"]]
    # A folded text may be longer than what was typed.
    at = min(position + match.start("value"), len(text))
    number = _NUMBER.fullmatch(match["value"])
    if number is None:
        raise FilterError(text, at, f"a number is missing, with a unit of {known}")
    amount = float(number["number"])
    if number["unit"] not in units and (amount or number["unit"]):
        raise FilterError(text, at, f"a unit is missing: {known}")
    limit, holds = amount * units.get(number["unit"], 1.0), _SIGNS[match["sign"]]
    read = COLUMNS[metric_id].read

    def compared(row: ProcessRow) -> bool | None:
        known = read(row)
        return None if known is None else holds(known, limit)

    return compared


def _anywhere(value: str) -> Test:
    def found(row: ProcessRow) -> bool | None:
        process = row.process
        texts = (str(process.pid), process.user, process.command)
        if any(text is not None and value in text.casefold() for text in texts):
            return True
        if value in (_container_of(row) or ""):
            return True
        if row.gpu is not None and value == str(row.gpu.index):
            return True
        return None if None in texts else False

    return found


def _user(value: str) -> Test:
    def is_of(row: ProcessRow) -> bool | None:
        user = row.process.user
        return None if user is None else user.casefold() == value

    return is_of


def _container_of(row: ProcessRow) -> str | None:
    """Empty for a process outside of any; None while nobody has looked."""
    place = row.process.place
    if place is None:
        return None
    one = place.container
    return "" if one is None else f"{one.name or ''}\n{one.id}\n{one.image or ''}".casefold()


def _container(value: str) -> Test:
    def is_in(row: ProcessRow) -> bool | None:
        known = _container_of(row)
        return None if known is None else value in known

    return is_in


def _pid(value: str) -> Test:
    return lambda row: str(row.process.pid) == value


def _on_gpu(value: str) -> Test:
    place = value.lstrip("0") or "0" if value.isdecimal() and value.isascii() else value

    def is_on(row: ProcessRow) -> bool | None:
        if row.gpu is None:
            return None
        if place in (str(row.gpu.index), PROCESS["gpu"].text(row)):
            return True
        uuid = (row.gpu.uuid or "").casefold()
        return not place.isdecimal() and uuid.startswith((place, f"gpu-{place}"))

    return is_on


def _cuda(value: str) -> Test:
    names = {value, f"{value}?", f"cuda:{value}", f"cuda:{value}?"}

    def is_called(row: ProcessRow) -> bool | None:
        return None if row.cuda is None else row.cuda in names

    return is_called


_KEYS = {"user": _user, "pid": _pid, "gpu": _on_gpu, "cuda": _cuda, "container": _container}


def idle(row: ProcessRow) -> bool | None:
    """Whether a process does nothing on the SMs now. Where it has no sample of its own, a GPU on
    which nothing ran tells the same."""
    if row.process.idle_for:
        return True
    own = row.process.sm_utilization
    if own is not None:
        return own == 0
    silent = row.gpu is not None and row.gpu.utilization == 0 and row.gpu.stale_for is None
    return True if silent else None
