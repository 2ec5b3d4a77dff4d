"""What the words of `gputop kill` and `gputop wait` name.

No word stands for everything. A word that is empty, or lacks its value because a shell variable is
not set, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from gputop.errors import UsageError
from gputop.model.machine.text import is_blank, printable
from gputop.model.processes.filter import Term, terms

_KEYWORDS = ("user", "pid", "gpu", "cuda", "container", "mem", "rss", "age", "sm", "cpu")
"""Words of the filter that mean nothing without a value after them."""
_EVERYTHING = re.compile(r">=?0*\.?0*[a-z%]*", re.IGNORECASE)
"""The value of a comparison that is true of every process."""
_EQUALS = re.compile(rf"-*(?:{'|'.join(_KEYWORDS)}|idle)=.*", re.IGNORECASE | re.DOTALL)
"""A mistake for `user:bob`, or an option in the wrong place."""
_LEAST = 3
"""Letters and digits that a word to search for must have."""
_MOST_PID = 2**31 - 1

Alternatives = list[list[Term]]


def pids_of(words: Sequence[str]) -> tuple[int, ...]:
    """Return the PIDs if the words are PIDs, with blanks around them or not; if not, nothing.

    UsageError for an empty word, and for PIDs among other words.
    """
    for number, word in enumerate(words, 1):
        if is_blank(word):
            raise UsageError(f"word {number} is empty (an unset variable?): name what to end")
    parts = [part for word in words for part in word.split()]
    numbers = [part for part in parts if _is_number(part)]
    if len(numbers) == len(parts):
        return tuple(dict.fromkeys(map(_pid, numbers)))
    if any(_is_number(word.strip()) for word in words):
        raise UsageError("PIDs or words of the filter, not both; in a filter a PID is pid:4242")
    return ()


def _is_number(word: str) -> bool:
    return word.isascii() and word.removeprefix("-").isdecimal()


def _pid(number: str) -> int:
    if len(number) > 20 or int(number) > _MOST_PID:
        raise UsageError(f"{printable(number, 40)} is not a PID")
    if int(number) <= 0:
        raise UsageError(f"{number} is a process group, not a PID: give each PID")
    return int(number)


def filter_of(words: Sequence[str], narrowed: bool) -> Alternatives:
    """Return the words of the filter. UsageError if they name nothing, unless a user or GPUs narrow
    the choice (`narrowed`)."""
    text = " ".join(words)
    alternatives = terms(text)
    for all_of in alternatives:
        for term in all_of:
            _check(term)
        if not narrowed and all(_is_open(term) for term in all_of):
            raise UsageError(f"{printable(text, 60)!r} only excludes processes: add --user, --gpu "
                             "or a word that names some")  # fmt: skip
    return alternatives


def _is_open(term: Term) -> bool:
    """Return whether a word names nothing: a negation, or a test true of all, as mem>=0."""
    return term.negated or bool(_EVERYTHING.fullmatch(term.value) and term.key)


def _check(term: Term) -> None:
    """Refuse a word that may mean more than its user intended. UsageError."""
    if term.key == "host":
        raise UsageError("host: is a word of the screen: here -H names the hosts, as -H node3")
    count = sum(character.isalnum() for character in term.value)
    if term.key == "container" and count < _LEAST:
        _refuse(term, f"is too short: give {_LEAST} letters or digits of its name or id")
    if term.key == "gpu" and "gpu-".startswith(term.value.casefold()):
        _refuse(term, "is every GPU: give an index or more of its UUID")
    if not term.key:
        _check_text(term, count)


def _check_text(term: Term, count: int) -> None:
    """Check a text to search for, which has `count` letters and digits. UsageError."""
    if term.quoted:
        if not count:
            _refuse(term, "has no letter and no digit")
        return
    if not term.value.isprintable():
        _refuse(term, "has characters that cannot be seen")
    if _is_numeric(term.value):
        _refuse(term, "is neither a PID nor a word: give PIDs with blanks between, in a filter"
                ' pid:4242, or a text in quotes of the filter: \'"4242"\'')  # fmt: skip
    if term.value.casefold() in _KEYWORDS:
        _refuse(term, "needs a value, as mem>10G")
    if _EQUALS.fullmatch(term.value):
        _refuse(term, "looks like a typo: write user:bob, or quote it to search for the text")
    if count < _LEAST:
        _refuse(term, f"is too short to search for: give {_LEAST} letters or digits, or quote it")


def _refuse(term: Term, why: str) -> NoReturn:
    raise UsageError(f"{printable(term.value, 60)!r} {why}")


def _is_numeric(word: str) -> bool:
    """Return whether a word is a number in any notation, or has no letter at all."""
    if not any(character.isalpha() for character in word):
        return True
    for read in (float, lambda text: int(text, 0)):
        with suppress(ValueError):
            read(word)
            return any(character.isdigit() for character in word)
    return False
