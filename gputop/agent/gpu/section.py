"""Sections: what one GPU is asked beyond the main screen, each part at a pace of its own.

A section is one field of `model.gpu.Gpu`. Field values (NVML_FI_*) of all sections that are due
are asked for in one call.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import pynvml

T = TypeVar("T")

Fields = Mapping[int, int | float | None]
"""By NVML_FI id (`scoped` where it has a scope); None where the driver does not answer."""
ALL_LINKS = 0xFFFFFFFF
"""The scope of a field that is wanted of all NVLinks together."""


class Ask(Protocol):
    """One call on the GPU; None where it has no answer. Raises if the GPU itself is gone."""

    def __call__(self, call: Callable[..., T], *arguments: int | None) -> T | None: ...


class Section(Protocol):
    """One of these per GPU, so that it may remember counters."""

    name: ClassVar[str]
    """The field of Gpu."""
    every: ClassVar[float]
    """Seconds between two looks; 0: each cycle."""
    fields: ClassVar[tuple[int, ...]]
    """NVML_FI ids that it wants."""

    def read(self, ask: Ask, fields: Fields, now: float) -> object | None:
        """The section as of `now` (monotonic seconds); None where the driver has nothing of it."""
        ...


def scoped(field: int, scope: int) -> int:
    """A NVML_FI id of a certain link or sensor: `Section.fields` has both in one number."""
    return field | scope << 32


def plain_call(name: str, version: int, words: int) -> Callable[..., list[int]]:
    """A call that fills a struct of so many 32-bit words after its version.

    Whatever the age of nvidia-ml-py; a driver refuses a size that it does not know.
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
        self._due = dict.fromkeys((one.name for one in self._sections), 0.0)
        self._absent: set[int] = set()
        self._buffers: dict[tuple[int, ...], Any] = {}
        self.values: dict[str, object | None] = {}
        """Keyword arguments of Gpu, as of the last look at each."""

    def hurry(self) -> None:
        """All are due."""
        self._due = dict.fromkeys(self._due, 0.0)

    def forget(self) -> None:
        """A card that was switched to another mode answers otherwise: all are due."""
        self.hurry()
        self._absent.clear()

    def read(self, ask: Ask, now: float) -> dict[str, object | None]:
        """Read those that are due, if the driver is slow not all at once; the values of all."""
        due = [one for one in self._sections if now >= self._due[one.name]]
        due.sort(key=lambda one: self._due[one.name])  # who had to wait comes first
        fields = self._fields(ask, [field for one in due for field in one.fields])
        end = time.monotonic() + _PATIENCE
        for one in due:
            self.values[one.name] = one.read(ask, fields, now)
            self._due[one.name] = now + one.every - _EARLY
            if time.monotonic() >= end:
                break
        return self.values

    def _fields(self, ask: Ask, wanted: Iterable[int]) -> Fields:
        ids = tuple(field for field in dict.fromkeys(wanted) if field not in self._absent)
        if not ids:
            return {}
        records = ask(self._field_values, *ids)
        found: dict[int, int | float | None] = dict.fromkeys(ids)
        for id_, scope, _, _, kind, code, value in () if records is None else records:
            field = scoped(id_, scope)
            if code == pynvml.NVML_SUCCESS and kind < len(_VALUES):
                found[field] = _VALUES[kind].unpack_from(value)[0]
            elif code in _NEVER:
                self._absent.add(field)
        return found

    def _field_values(self, handle: Any, *ids: int) -> Iterator[tuple[Any, ...]]:
        """The records; their buffer is kept, since the same ids are asked for again and again.

        Not by nvidia-ml-py's structs, of which each member costs as much as a call.
        """
        if ids not in self._buffers:
            blank = b"".join(_RECORD.pack(*_place(field), 0, 0, 0, 0, b"") for field in ids)
            self._buffers[ids] = ctypes.create_string_buffer(blank, len(blank))
        buffer = self._buffers[ids]
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        pynvml._nvmlCheckReturn(function(handle, ctypes.c_int(len(ids)), buffer))
        return _RECORD.iter_unpack(buffer)


def _place(field: int) -> tuple[int, int]:
    """Id and scope."""
    return field & 0xFFFFFFFF, field >> 32


_PATIENCE = 0.25
"""Seconds of a cycle after which sections that are due wait for the next."""
_EARLY = 0.05
"""Seconds that a look may be early: ticks are not exact, and one later would be a tick late."""
_NEVER = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT}
_RECORD = struct.Struct("=IIqqIi8s")
"""nvmlFieldValue_t: id, scope, time, latency, type, answer, value."""
_VALUES = tuple(struct.Struct(f"={letter}") for letter in "dIQQqiH")
"""By nvmlValueType_t; long has 64 bits."""
