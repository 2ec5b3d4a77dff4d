"""Reads the columns of Samples. Most are, byte for byte, as in the Sample before: they are not read
again, and what was made of them stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from gputop.protocol.codec import UNREADABLE, decoder, encode, fail, reason
from gputop.protocol.harmless import harmless, is_harmless


class DeclaredColumn(NamedTuple):
    at: int
    """Its place among all."""
    decode: Callable[[bytes | msgspec.Raw], Any]
    """Returns its value. A MsgspecError for one of another type."""
    default: Any
    """What its rows have without it."""


def declared(columns: Iterable[tuple[str, FieldInfo, bool]]) -> dict[str, DeclaredColumn]:
    """Return columns by their names, the ids last. Each is given with its name, its field, and
    whether some rows may have no such value."""
    by_name: dict[str, DeclaredColumn] = {}
    for name, field, may_lack in columns:
        decode = decoder(_column_type(field.type, may_lack)).decode
        is_made = field.default is msgspec.NODEFAULT
        default = field.default_factory() if is_made else field.default
        by_name[name] = DeclaredColumn(len(by_name), decode, default)
    by_name["id"] = DeclaredColumn(len(by_name), decoder(Any).decode, ())
    return by_name


def _is_array(kind: Any) -> bool:
    return get_origin(kind) is tuple or any(map(_is_array, get_args(kind)))


@lru_cache(maxsize=64)
def _column_of(kind: Any, value: Any) -> Any:
    return list[kind] if _is_array(value) else list[kind] | value


def _column_type(kind: Any, may_lack: bool) -> Any:
    """Return the type of a column of such values: a list, or one value for all rows. Values that
    are arrays themselves are always in a list. `may_lack`: some rows may have no such value."""
    value = kind.__origin__ if get_origin(kind) is Annotated else kind
    return _column_of(value | None if may_lack else value, value)


class Columns:
    """The columns of the GPUs or of the processes, as the newest Sample has them."""

    def __init__(self, declared: Mapping[str, DeclaredColumn]) -> None:
        self.declared = declared
        self._raw: dict[str, msgspec.Raw] = {}
        """Those of the newest Sample, if they are declared."""
        self.values: list[Any] = [column.default for column in declared.values()]
        """A list or the one value of all rows, for each that is declared, in their order."""

    def read(self, columns: Mapping[str, msgspec.Raw]) -> set[int]:
        """Take in another Sample; return the places of the columns that have changed."""
        before = self._raw
        changed = [
            name
            for name, raw in columns.items()
            if raw != before.get(name) and name in self.declared
        ]
        is_clean = is_harmless(b",".join([columns[name] for name in changed]))
        for name in changed:
            column, raw = self.declared[name], columns[name]
            try:
                clean = raw if is_clean else encode(harmless(msgspec.json.decode(raw)))
                self.values[column.at] = column.decode(clean)
            except UNREADABLE as error:
                fail(f"sent numbers that are none: {name}: {reason(error)}")
            before[name] = raw.copy()  # or it would keep the whole line
        gone = before.keys() - columns.keys()
        for name in gone:
            self.values[self.declared[name].at] = self.declared[name].default
            del before[name]
        return {self.declared[name].at for name in (*changed, *gone)}
