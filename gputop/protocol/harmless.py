"""Makes what an agent sent harmless: the machine may belong to an attacker.

The agent cleans what users of its machine wrote; the reader does not rely on that. Texts are made
printable and short, and numbers small enough to be drawn.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from types import NoneType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gputop.model.machine.environment import Environ
from gputop.model.machine.probed import Probed
from gputop.model.machine.text import printable
from gputop.model.machine.topology import Topology

MAX_NUMBER = 1 << 53
"""Larger numbers are cut: no quantity of ours comes near, and no clock and no format takes them. Up
to it integers are exact in every reader of JSON (RFC 7493, 2.2)."""
MAX_TEXT = 4096
_VERBATIM: dict[type, tuple[str, ...]] = {
    Environ: ("variables",),
    Probed: ("value", "order"),
}
"""Fields in which every character of a value counts, as in CUDA_VISIBLE_DEVICES: they are made
printable where they are drawn. Names of variables are not among them."""
_MAX_NAME = 64

_CPUS = re.compile(r"[0-9][0-9,:-]*", re.ASCII)
_NUMBERS = {int, float, bool, NoneType}

_SHAPE = bytes.maketrans(b"012345678E", b"999999999e")
"""Makes one digit and one exponent of all."""
_LARGE = b"9" * len(str(MAX_NUMBER))

T = TypeVar("T")


def is_harmless(line: bytes) -> bool:
    """Return whether the bytes of a line of JSON alone show that no text and no number in it is to
    be changed: a hundred times a second, with a hundred hosts, that is faster than to look at each.
    """
    if not line.isascii() or b"\\" in line or b"\x7f" in line:  # JSON has no other controls
        return False
    shape = line.translate(_SHAPE)
    longest = max(map(len, line.split(b'"')[1::2]), default=0)  # nothing is escaped in it
    return _LARGE not in shape and b"9e" not in shape and longest <= MAX_TEXT


def harmless(value: T) -> T:
    """Return a decoded message, or a part of one, without what could do harm.

    ValueError for a text that may not be changed and is too long.
    """
    return _harmless(value)  # type: ignore[no-any-return]


def _harmless(value: Any) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return printable(value, MAX_TEXT)
    if isinstance(value, int | float):
        if -MAX_NUMBER <= value <= MAX_NUMBER:
            return value
        return type(value)(MAX_NUMBER if value > 0 else -MAX_NUMBER)
    if isinstance(value, msgspec.Struct):
        return _harmless_struct(value)
    if isinstance(value, dict):
        return {_harmless(key): _harmless(inner) for key, inner in value.items()}
    return _harmless_items(value)


def _harmless_items(items: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
    """Return harmless items. Columns of numbers come every second, and are checked as a whole."""
    if _NUMBERS.issuperset(map(type, items)):
        numbers = list(filter(None, items))
        if not numbers or (min(numbers) >= -MAX_NUMBER and max(numbers) <= MAX_NUMBER):
            return items
    clean = [_harmless(item) for item in items]
    if all(map(operator.is_, clean, items)):
        return items
    return clean if isinstance(items, list) else tuple(clean)


def _harmless_struct(struct: msgspec.Struct) -> msgspec.Struct:
    verbatim = _VERBATIM.get(type(struct), ())
    changed = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if value is None:
            continue
        clean = _of_bounded_length(value) if name in verbatim else _harmless(value)
        if clean is not value:
            changed[name] = clean
    return replace(struct, **changed) if changed else struct


def _of_bounded_length(value: Any) -> Any:
    texts = (*value.keys(), *value.values()) if isinstance(value, dict) else (value,)
    if sum(map(len, texts)) > 2 * MAX_TEXT:
        raise ValueError(f"a text of more than {2 * MAX_TEXT} characters")
    if isinstance(value, dict):
        clean = {printable(name, _MAX_NAME): text for name, text in value.items()}
        return value if clean.keys() == value.keys() else clean
    return value


def check_topology(links: Sequence[Sequence[Any]] | None, topology: Topology | None) -> None:
    """Raise ValueError for tables that are not square, and for CPU lists that taskset would not
    take: they are shown in lines for a shell."""
    topology = topology or Topology()
    for table in (links or (), topology.p2p):
        if any(len(row) != len(table) for row in table):
            raise ValueError("a table of GPUs that is not square")
    for cpus in (*topology.cpus, *topology.usable_cpus):
        if cpus is not None and not _CPUS.fullmatch(cpus):
            raise ValueError("CPUs that are no list of numbers")
