"""Pasted text that the terminal does not mark as such: it comes as keys, all at once.

A slow line, a screen reader or a key that is held down deliver several keys at once, too. Those are
few different keys, each of which does something; a text has many, with blanks and line ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from textual import events

BURST = 0.01
"""Keys that come closer together, in seconds, come at once."""
_AFTER = 0.3
"""Seconds without a key after which a text has ended: a slow line may deliver it in parts."""
_FEW, _MANY = 3, 6
"""So many different keys are a text: with a blank, a line end or a key that does nothing, and even
without."""
_MAX_BURST_KEYS = 64
"""Keys that are looked at."""
_ENDS = ("enter", "ctrl+j")
_BLANKS = (*_ENDS, "space", "tab")
_MOVES = frozenset("jk0123456789")
"""Keys that lead to a row: they are typed in any number before another key."""


class UnmarkedPaste:
    """Tells text that was pasted over a screen from keys that were typed."""

    def __init__(self) -> None:
        self._last = -inf
        """When the key before was typed."""
        self.is_under_way = False
        """Whether that key was part of a text."""

    def has(
        self,
        key: events.Key,
        following: Iterable[events.Event],
        actions: Callable[[], Mapping[str, bool]],
    ) -> bool:
        """Return whether a key is part of a text. `following`: the events that came after it so
        far; `actions` returns for each key that does something whether it opens a field."""
        since, self._last = key.time - self._last, key.time
        if not _is_typed(key):
            self.is_under_way = False
        elif not self.is_under_way or since >= _AFTER:
            self.is_under_way = _is_text(_burst(key, following), actions)
        return self.is_under_way


def _burst(key: events.Key, following: Iterable[events.Event]) -> list[str]:
    """Return the keys that came at once, as far as they could be text."""
    keys, last = [key.key], key.time
    for event in following:
        if not isinstance(event, events.Key) or event.time - last >= BURST:
            break
        if not _is_typed(event) or len(keys) == _MAX_BURST_KEYS:
            break
        keys.append(event.key)
        last = event.time
    return keys


def _is_typed(key: events.Key) -> bool:
    return key.key in _BLANKS or (key.is_printable and "+" not in key.key)  # as in alt+t


def _is_text(keys: list[str], actions: Callable[[], Mapping[str, bool]]) -> bool:
    """Return whether the first line of the keys is text."""
    ends = [index for index, key in enumerate(keys) if key in _ENDS]
    line = keys[: ends[0] + 1] if ends else keys
    different = _commands(line)
    if len(different) < _FEW:
        return False
    here = actions()
    field = next((index for index, key in enumerate(line) if here.get(key)), len(line))
    if field < len(line):  # what follows goes to the field, if this is a command
        return not _commands(line[:field]) <= here.keys()
    has_other = not different <= here.keys() or not {*_BLANKS}.isdisjoint(line)
    return has_other or len(different) >= _MANY


def _commands(keys: Iterable[str]) -> set[str]:
    return {*keys} - _MOVES - {*_BLANKS}
