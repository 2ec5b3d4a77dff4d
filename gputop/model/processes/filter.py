"""The filter language, which selects rows of processes.

    alice train.py       both words, each somewhere in user, command, pid, container or host, in
                         any case
    "train.py --lr 1"    quotes keep blanks, and take every sign for itself
    user:alice pid:4242  exactly this one
    container:train      a part of its name, id or image
    host:node3           of several machines the one given by this name, or as bob@node3.lab:22
    gpu:1 gpu:2:3 gpu:GPU-4f    index as the column GPU shows it, or the beginning of a UUID
    gpu:0,2 gpu:0-3      one of these
    cuda:0               what the column CUDA shows, with or without its ?
    mem>10G rss >= 1.5GiB    sizes in binary units K M G T
    sm<5 cpu>100         percent, as shown
    age>1h               s m h d
    idle idle>10m        no work seen on the SMs now, or for that long
    !word !user:bob      not that
    a b or c             either both a and b, or c

What looks like a slip (user=alice, usr:alice, a|b, not a) is an error that says what to write.
A test on what is unknown is unknown, and so is its negation: neither fits. Unknown is not 0.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from gputop.errors import UsageError
from gputop.model.machine.frame import Process
from gputop.model.machine.gpu import Gpu, is_named
from gputop.model.machine.text import printable
from gputop.model.metrics.process import COLUMNS, PROCESS, ProcessRow

Test = Callable[[ProcessRow], bool | None]
"""Whether a row fits; None if that is not known."""


class FilterError(UsageError):
    """A filter that is not valid: `reason` says what is wrong, `position` where, from 0."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(f"filter {printable(text, 200)!r}, column {position + 1}: {reason}")
        self.reason, self.position = reason, position


_WORD = re.compile(
    r"(?=\S)(?P<negated>!?)(?:(?P<key>user|pid|gpu|cuda|container|host):)?"
    r'(?:"(?P<quoted>[^"]*)"(?!\S)'
    r"|(?P<plain>(?:mem|rss|age|idle|sm|cpu)\s*[<>]=?\s*[^\s<>=]\S*|\S*))",
    re.IGNORECASE,
)
_COMPARISON = re.compile(r"(?P<name>[a-z_]+)(?P<sign>>=|<=|>|<)(?P<value>.*)", re.DOTALL)
_NUMBER = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<unit>\S*)", re.ASCII)
_PORT = re.compile(r":[0-9]+\Z", re.ASCII)
_GPU_WORD = re.compile(r"gpu([0-9][0-9,-]*)", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})", re.ASCII)
_NAMED = re.compile(r"(?P<name>[a-z]+)(?P<sign>=+|:)(?P<value>.*)", re.DOTALL)

_SIZES = {unit + end: 1024.0**k for k, unit in enumerate("kmgt", 1) for end in ("", "b", "ib")}
_SPANS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PERCENT = {"": 1.0, "%": 1.0}
_FIELDS: dict[str, tuple[str, Mapping[str, float], str]] = {
    "mem": ("gpu_memory", _SIZES, "K M G T"),
    "rss": ("rss", _SIZES, "K M G T"),
    "age": ("age", _SPANS, "s m h d"),
    "idle": ("idle_for", _SPANS, "s m h d"),
    "sm": ("sm_utilization", _PERCENT, "%"),
    "cpu": ("cpu", _PERCENT, "%"),
}
"""Name in a filter: the metric, what its units are worth, the units in words."""

_SLIPS = {
    "not": "write !alice in place of not alice",
    "and": "words next to each other must all match: leave it out",
    "&&": "words next to each other must all match: leave it out",
    **dict.fromkeys(("|", "||"), "write or"),
    **dict.fromkeys(("<", "<=", ">", ">=", "=", "=="), "a comparison is mem>10G"),
}
"""Words of other languages, which nobody searches for."""
_LIKE = 0.76
"""The least similarity (difflib) for which an unknown key is taken for a misspelt one."""
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


class Term(NamedTuple):
    """A word of a filter."""

    position: int
    """Where it begins, counted from 0."""
    negated: bool
    key: str
    """`user` of user:alice, `gpu` of gpu1, `mem` of mem>1G, `idle`; empty for text to search."""
    value: str
    """What was typed after the key: `alice`, `1`, `>1G`."""
    quoted: bool
    test: Test
    """Whether a row fits the word, `negated` or not."""


def parse(text: str) -> Callable[[ProcessRow], bool]:
    """Return a test of whether a row fits a filter; every row fits an empty one. FilterError."""
    alternatives = terms(text) or [[]]
    return lambda row: any(all(term.test(row) for term in words) for words in alternatives)


def terms(text: str) -> list[list[Term]]:
    """Return the words of a filter, a list for each side of an `or`; empty without any words.

    FilterError.
    """
    alternatives: list[list[Term]] = [[]]
    position = 0
    for match in _WORD.finditer(text):
        position = match.start()
        if match[0].casefold() != "or":
            alternatives[-1].append(_term(text, match))
        elif alternatives[-1]:
            alternatives.append([])
        else:
            raise FilterError(text, position, "nothing before this 'or'")
    if len(alternatives) > 1 and not alternatives[-1]:
        raise FilterError(text, position, "nothing after this 'or'")
    return alternatives if alternatives[-1] else []


def _term(text: str, word: re.Match[str]) -> Term:
    key, quoted, plain = word["key"], word["quoted"], word["plain"]
    if key is None and plain is not None and _COMPARISON.match("".join(plain.casefold().split())):
        plain = "".join(plain.split())
    if plain and plain.startswith('"'):
        raise FilterError(text, word.start("plain"), "this quote is not closed")
    typed = plain if quoted is None else quoted
    value = typed.casefold()
    if not value.strip():
        after = printable(word[0].rstrip(), 60)
        raise FilterError(text, word.start(), f"a word is missing after {after}")
    if key is not None:
        key = key.casefold()
        if key == "pid" and not (value.isascii() and value.isdecimal()):
            raise FilterError(text, word.start(), "a PID is a number: pid:4242, each one by itself")
        if key in ("user", "host") and quoted is None and "," in value:
            each = f" or {key}:".join(printable(typed, 60).split(","))
            raise FilterError(text, word.start(), f"one at a time: {key}:{each}")
        test = _on_gpu(text, word.start(), value) if key == "gpu" else _KEYS[key](value)
    elif quoted is not None:
        key, test = "", _anywhere(value)
    else:
        key, test = _plain(text, word.start("plain"), value)
        typed = typed[len(key) :]
    negated = bool(word["negated"])
    return Term(
        word.start(), negated, key, typed, quoted is not None,
        _when_known(test, operator.not_) if negated else test,
    )  # fmt: skip


def _when_known(read: Callable[[ProcessRow], Any], fits: Callable[[Any], bool]) -> Test:
    def test(row: ProcessRow) -> bool | None:
        value = read(row)
        return None if value is None else fits(value)

    return test


def _plain(text: str, position: int, value: str) -> tuple[str, Test]:
    if value == "idle":
        return value, idle
    if match := _GPU_WORD.fullmatch(value):
        return "gpu", _on_gpu(text, position, match[1])
    if match := _COMPARISON.fullmatch(value):
        return match["name"], _comparison(text, position, match)
    if advice := _slip(value):
        raise FilterError(text, position, f"{advice}, or quote it")
    return "", _anywhere(value)


def _slip(value: str) -> str | None:
    """Return what to write in place of a word that nobody searches for; None for others."""
    if value in _SLIPS:
        return _SLIPS[value]
    if "|" in value:
        return "for either write " + " or ".join(filter(None, printable(value, 60).split("|")))
    match = _NAMED.fullmatch(value)
    if match is None or not match["value"]:
        return None
    name, amount = match["name"], printable(match["value"], 60)
    if name in _FIELDS:
        return f"compare: {name}>{amount} or {name}<{amount}"
    if name in (*_KEYS, "gpu"):  # with a colon it is no plain word
        return f"write {name}:{amount}"
    if match["sign"] != ":":
        return None
    from difflib import get_close_matches  # slow to import

    near = get_close_matches(name, (*_KEYS, "gpu"), 1, _LIKE)
    return f"there is no {name}: but {near[0]}:{amount}" if near else None


def _comparison(text: str, position: int, match: re.Match[str]) -> Test:
    if match["name"] not in _FIELDS:
        raise FilterError(text, position, f"compare one of {', '.join(_FIELDS)}, or quote it")
    metric_id, units, units_text = _FIELDS[match["name"]]
    # Case folding may make a text longer than what was typed.
    at = min(position + match.start("value"), len(text))
    number = _NUMBER.fullmatch(match["value"])
    if number is None:
        raise FilterError(text, at, f"a number is missing, with a unit of {units_text}")
    amount = float(number["number"])
    if number["unit"] not in units and (amount or number["unit"]):
        raise FilterError(text, at, f"a unit is missing: {units_text}")
    limit, holds = amount * units.get(number["unit"], 1.0), _SIGNS[match["sign"]]
    limit = limit / 100 if units is _PERCENT else limit  # as samples are: 0.57 is not 57 * 0.01
    return _when_known(COLUMNS[metric_id].read, lambda value: holds(value, limit))


def _anywhere(value: str) -> Test:
    def test(row: ProcessRow) -> bool | None:
        process = row.process
        texts = (str(process.pid), process.user, process.command)
        if row.host is not None and value in row.host.casefold():
            return True
        if any(text is not None and value in text.casefold() for text in texts):
            return True
        if value in (_container_of(row) or ""):
            return True
        if row.gpu is not None and value == str(row.gpu.index):
            return True
        return None if None in texts else False

    return test


def _container_of(row: ProcessRow) -> str | None:
    """Return the names of a process's container: empty without one, None if not known yet."""
    origin = row.process.origin
    if origin is None:
        return None
    container = origin.container
    if container is None:
        return ""
    return f"{container.label}\n{container.id}\n{container.image or ''}".casefold()


def _pid(value: str) -> Test:
    pid = value.lstrip("0") or "0"
    return lambda row: str(row.process.pid) == pid


def _on_gpu(text: str, position: int, value: str) -> Test:
    """Return the test for GPUs with commas between them. FilterError for one without a name."""
    words = value.split(",")
    if not all(words):
        raise FilterError(text, position, "a GPU is missing beside a comma")
    tests = list(map(_on_one_gpu, words))

    def is_on(row: ProcessRow) -> bool | None:
        gpu = row.gpu
        return None if gpu is None else any(test(row, gpu) for test in tests)

    return is_on


def _on_one_gpu(word: str) -> Callable[[ProcessRow, Gpu], bool]:
    if match := _RANGE.fullmatch(word):
        first, last = sorted((int(match[1]), int(match[2])))
        return lambda _, gpu: first <= gpu.index <= last
    names = [word] if word.isdecimal() else [word, f"gpu-{word}"]
    return lambda row, gpu: (
        PROCESS["gpu"].text(row) == word or any(is_named(gpu, name) for name in names)
    )


def absent_gpus(text: str, gpus: Iterable[Gpu]) -> str | None:
    """Return the first `gpu:` of a valid filter that no GPU fits; None without one."""
    rows = [ProcessRow(Process(pid=0, gpu_uuid=gpu.uuid), gpu, None) for gpu in gpus]
    for term in (term for words in terms(text) for term in words if term.key == "gpu"):
        is_instance = ":" in term.value
        if not (term.negated or is_instance or any(term.test(row) for row in rows)):
            return term.value
    return None


def names_host(text: str) -> Callable[[str], bool]:
    """Return a test of whether a filter fits a host by its name alone, whatever runs there.
    FilterError."""
    alternatives = terms(text) or [[]]
    return lambda host: any(all(_fits_name(term, host) for term in words) for words in alternatives)


def _fits_name(term: Term, host: str) -> bool:
    value = term.value.casefold()
    if term.key == "host":
        return (value in _names_of(host)) != term.negated
    return not term.key and (value in host.casefold()) != term.negated


@lru_cache(maxsize=1024)
def _names_of(host: str) -> frozenset[str]:
    """Return the names of a host: as given, without user and port, and without its domain (an
    address has none)."""
    given = host.casefold()
    bare = _PORT.sub("", given.rpartition("@")[2])
    short = bare.partition(".")[0]
    return frozenset((given, bare, bare if short.isdecimal() else short))


def _called(value: str) -> Test:
    names = {value, f"{value}?", f"cuda:{value}", f"cuda:{value}?"}
    return _when_known(attrgetter("cuda"), names.__contains__)


_KEYS: dict[str, Callable[[str], Test]] = {
    "user": lambda value: _when_known(
        attrgetter("process.user"), lambda user: user.casefold() == value
    ),
    "pid": _pid,
    "cuda": _called,
    "host": lambda value: _when_known(attrgetter("host"), lambda host: value in _names_of(host)),
    "container": lambda value: _when_known(_container_of, lambda names: value in names),
}


def idle(row: ProcessRow) -> bool | None:
    """Whether no work of a process is seen on the SMs now. If it has no sample of its own, a GPU
    without work shows the same."""
    if row.process.idle_for:
        return True
    own = row.process.sm_utilization
    if own is not None:
        return own == 0
    silent = row.gpu is not None and row.gpu.utilization == 0 and row.gpu.state == "answers"
    return True if silent else None
