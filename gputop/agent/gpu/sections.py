"""Sections: values of one GPU beyond the main screen, each section read at a pace of its own.

A section is one field of `model.machine.gpu.Gpu`. One call asks for the field values (NVML_FI_*) of
all sections that are due.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import pynvml

from gputop.model.machine.sections import BRIEF, marked

T = TypeVar("T")
S = TypeVar("S")

NEVER = float("inf")
"""Seconds between two readings of what never changes."""
QUICK, OFTEN, SELDOM, RARELY = 2.0, 5.0, 10.0, 30.0
"""Seconds between two readings: what a person waits for; what moves; what only an admin changes;
what an error changes, and an event of the driver makes all due (`Sections.refresh`)."""

Fields = Mapping[int, int | float | None]
"""Values by NVML_FI id (`scoped` if it has a scope); None if the driver does not answer."""
ALL_LINKS = 0xFFFFFFFF
"""The scope that asks for a field of all NVLinks together."""


class Ask(Protocol):
    """Makes one call on the GPU; None if it has no answer. Raises if the GPU itself is gone."""

    def __call__(self, call: Callable[..., T], *arguments: int | None) -> T | None: ...


Calls = Mapping[Any, tuple[Any, ...]]
"""For each value by name, or for several by a tuple of names: a function that converts an answer
(None, too), the call, and its arguments. If there are several calls, the first one with an answer
counts."""
FieldIds = Mapping[str, tuple[int, ...]]
"""The NVML_FI ids (`scoped` if they have a scope) that each value needs, by name."""
FieldValues = Mapping[str, tuple[Callable[[Any], Any], int]]
"""For each value by name: a function that converts a field (None, too), and the field's id."""


def values_of(ask: Ask, calls: Calls) -> dict[str, Any]:
    """Return the converted answers of calls, by name."""
    values: dict[str, Any] = {}
    for names, (convert, call, *rest) in calls.items():
        value = convert(first_of(ask, call, *rest) if isinstance(call, tuple) else ask(call, *rest))
        if isinstance(names, str):
            values[names] = value
        else:
            values.update(zip(names, value, strict=True))
    return values


def only(table: Mapping[Any, T], wanted: Collection[str]) -> dict[Any, T]:
    """Return the entries of a table for values that are wanted."""
    return {
        names: entry
        for names, entry in table.items()
        if any(name in wanted for name in ((names,) if isinstance(names, str) else names))
    }


def first_of(ask: Ask, calls: Iterable[Callable[..., T]], *arguments: int | None) -> T | None:
    """Return the first answer of several calls, which have the newest first; None without one."""
    answers = (ask(call, *arguments) for call in calls)
    return next((answer for answer in answers if answer is not None), None)


class Section:
    """One subject of one GPU, which may remember counters."""

    name: ClassVar[str]
    """The name of its field in Gpu."""
    kind: ClassVar[Callable[..., Any]]
    every: ClassVar[float]
    """Seconds between two readings."""
    fields: FieldValues = {}
    """Fields that it needs at every reading."""
    calls: Calls = {}
    """Calls made at every reading."""
    fixed: Calls = {}
    """Calls made until they have an answer, which does not change; each for one value."""
    slow: ClassVar[float] = NEVER
    """Seconds between two readings of the slow values."""
    slow_fields: FieldIds = {}
    """Fields that they need."""
    slow_calls: Calls = {}
    """Calls made for them."""
    only_at_work = False
    """Whether it is read only while the GPU is at work."""
    wakes_up: ClassVar[bool] = False
    """Whether it is another at work than at rest: all is due when work begins."""

    def __init__(self) -> None:
        self._fixed: dict[str, Any] = dict.fromkeys(self.fixed)
        self._slow: dict[str, Any] = {}
        self._slow_due = 0.0
        self.due = 0.0
        """When it is due again, in monotonic seconds."""

    def shorten(self) -> bool:
        """Leave out from now on what is not BRIEF; return whether anything is left."""
        names = marked(self.kind, BRIEF)
        self.fields, self.slow_fields = only(self.fields, names), only(self.slow_fields, names)
        self.calls, self.slow_calls = only(self.calls, names), only(self.slow_calls, names)
        self.fixed = only(self.fixed, names)
        return bool(names)

    def expire(self) -> None:
        self.due = self._slow_due = 0.0

    def needed_fields(self, now: float) -> Iterator[int]:
        """Yield the fields for a reading at `now`."""
        yield from (id_ for _, id_ in self.fields.values())
        for ids in self.slow_fields.values() if now >= self._slow_due else ():
            yield from ids

    def read(self, ask: Ask, fields: Fields, now: float) -> Any:
        """Return the section at `now` (monotonic seconds); None if it has no values."""
        if None in self._fixed.values():
            unknown = [name for name, value in self._fixed.items() if value is None]
            self._fixed.update(values_of(ask, only(self.fixed, unknown)))
        if now >= self._slow_due:
            self._slow, self._slow_due = self.slow_values(ask, fields), now + self.slow
        values = self._fixed | values_of(ask, self.calls)
        values |= {name: convert(fields.get(id_)) for name, (convert, id_) in self.fields.items()}
        values |= self.other_values(ask, fields, now) | self._slow
        return None if all(value is None for value in values.values()) else self.kind(**values)

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        """Return the values that take more than one call each."""
        return {}

    def slow_values(self, ask: Ask, fields: Fields) -> dict[str, Any]:
        """Return the values that are read less often than the rest."""
        return values_of(ask, self.slow_calls)


class CounterTotal:
    """Sums what a driver's counter gains after the first reading. A counter that falls was reset,
    and goes on from there."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._total = 0

    def add(self, count: int | None) -> int | None:
        """Add the current count and return the total; None if there is no count."""
        if count is None:
            return None
        if self._last is not None:
            self._total += max(0, count - self._last)
        self._last = count
        return self._total


class CounterRate:
    """Measures how fast a counter rises; each count stands for `unit`."""

    def __init__(self, unit: int = 1) -> None:
        self._unit = unit
        self._last: tuple[int, float] | None = None

    def per_second(self, count: int | None, now: float) -> float | None:
        """Return the rate since the reading before; None without one, or if the counter fell."""
        last, self._last = self._last, None if count is None else (count, now)
        if count is None or last is None or count < last[0] or now <= last[1]:
            return None
        return (count - last[0]) / (now - last[1]) * self._unit


def scoped(field: int, scope: int) -> int:
    """Return an NVML_FI id and its link or sensor in one number, as for `Section.fields`."""
    return field | scope << 32


def plain_call(name: str, version: int, words: int) -> Callable[..., list[int]]:
    """Return a call that fills a struct of `words` 32-bit words after its version.

    It works with every nvidia-ml-py; a driver refuses a size that it does not know.
    """

    def call(handle: Any) -> list[int]:
        record = (ctypes.c_uint * (words + 1))(version << 24 | 4 * (words + 1))
        pynvml._nvmlCheckReturn(pynvml._nvmlGetFunctionPointer(name)(handle, record))
        return list(record)[1:]

    call.__name__ = name
    return call


class Sections:
    """The sections of one GPU."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._sections = tuple(sections)
        self._is_stale = self._at_work = False
        self._absent: set[int] = set()
        self._buffers: dict[tuple[int, ...], Any] = {}
        self.values: dict[str, object | None] = {}
        """Keyword arguments of Gpu, as last read."""

    def refresh(self) -> None:
        """Make all due, and their slow values: the next reading takes it in, in its own thread."""
        self._is_stale = True

    def reset(self) -> None:
        """Make all due, and forget which fields are missing: another mode may have others."""
        self.refresh()
        self._absent.clear()

    def read(self, ask: Ask, now: float, at_work: bool = True) -> dict[str, object | None]:
        """Read sections that are due, not all at once if the driver is slow. Return all values."""
        # Before the reading: a `refresh` during it asks for another one.
        is_stale, self._is_stale = self._is_stale, False
        wakes_up, self._at_work = at_work and not self._at_work, at_work
        for section in self._sections if is_stale or wakes_up else ():
            if is_stale or section.wakes_up:
                section.expire()
        due = [
            section
            for section in self._sections
            if now >= section.due and (at_work or not section.only_at_work)
        ]
        due.sort(key=lambda section: section.due)  # those that had to wait come first
        since = [section.due for section in due]
        for section in due:
            section.due = now + section.every - _EARLY
        fields = self._fields(ask, [id_ for section in due for id_ in section.needed_fields(now)])
        end = time.monotonic() + _TIMEOUT
        for count, section in enumerate(due, 1):
            self.values[section.name] = section.read(ask, fields, now)
            if time.monotonic() >= end:
                for left, before in zip(due[count:], since[count:], strict=True):
                    left.due = before
                break
        return self.values

    def _fields(self, ask: Ask, wanted: Iterable[int]) -> Fields:
        ids = tuple(field for field in dict.fromkeys(wanted) if field not in self._absent)
        if not ids:
            return {}
        records = ask(self._field_values, *ids)
        values: dict[int, int | float | None] = dict.fromkeys(ids)
        for id_, scope, _, _, kind, code, value in () if records is None else records:
            field = scoped(id_, scope)
            if code == pynvml.NVML_SUCCESS and kind < len(_VALUES):
                values[field] = _VALUES[kind].unpack_from(value)[0]
            elif code in _NEVER:
                self._absent.add(field)
        return values

    def _field_values(self, handle: Any, *ids: int) -> Iterator[tuple[Any, ...]]:
        """Read field values into a buffer that is kept: the same ids come repeatedly. It
        avoids nvidia-ml-py's structs, since each access to a member costs as much as a call."""
        if ids not in self._buffers:
            blank = b"".join(
                _RECORD.pack(field & 0xFFFFFFFF, field >> 32, 0, 0, 0, 0, b"") for field in ids
            )
            self._buffers[ids] = ctypes.create_string_buffer(blank, len(blank))
        buffer = self._buffers[ids]
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        pynvml._nvmlCheckReturn(function(handle, ctypes.c_int(len(ids)), buffer))
        return _RECORD.iter_unpack(buffer)


_TIMEOUT = 0.25
"""Seconds of a cycle after which sections that are due wait for the next cycle."""
_EARLY = 0.05
"""Seconds by which a section may be early: ticks are not exact, and otherwise it could be a tick
late."""
_NEVER = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT}
_RECORD = struct.Struct("=IIqqIi8s")
"""nvmlFieldValue_t: id, scope, time, latency, type, answer, value."""
_VALUES = tuple(struct.Struct(f"={letter}") for letter in "dIQQqiH")
"""Indexed by nvmlValueType_t; long has 64 bits."""
