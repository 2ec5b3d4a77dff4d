"""Sections: what one GPU is asked beyond the main screen, each part at a pace of its own.

A section is one field of `model.gpu.Gpu`. Field values (NVML_FI_*) of all sections that are due
are asked for in one call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def read_fields(ask: Ask, ids: Sequence[int]) -> tuple[Fields, set[int]]:
    """Field values in one call, and which of them this driver or card will never have."""
    records = ask(_field_values, *ids) if ids else None
    if records is None:
        return dict.fromkeys(ids), set()
    pairs = list(zip(ids, records, strict=True))
    absent = {id_ for id_, record in pairs if record.nvmlReturn in _NEVER}
    return {id_: _value(record) for id_, record in pairs}, absent


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
        """Read those that are due; the values of all."""
        due = [one for one in self._sections if now >= self._due[one.name]]
        fields = self._fields(ask, [field for one in due for field in one.fields])
        for one in due:
            self.values[one.name] = one.read(ask, fields, now)
            self._due[one.name] = now + one.every - _EARLY
        return self.values

    def _fields(self, ask: Ask, wanted: Iterable[int]) -> Fields:
        found, absent = read_fields(
            ask, [field for field in dict.fromkeys(wanted) if field not in self._absent]
        )
        self._absent |= absent
        return {**dict.fromkeys(self._absent), **found}


_EARLY = 0.05
"""Seconds that a look may be early: ticks are not exact, and one later would be a tick late."""
_NEVER = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT}
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of nvmlValue_t, by nvmlValueType_t."""


def _field_values(handle: Any, *ids: int) -> Any:
    records = (pynvml.c_nvmlFieldValue_t * len(ids))()
    for record, field in zip(records, ids, strict=True):
        record.fieldId, record.scopeId = field & 0xFFFFFFFF, field >> 32
    function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
    pynvml._nvmlCheckReturn(function(handle, ctypes.c_int(len(ids)), records))
    return records


def _value(record: Any) -> int | float | None:
    known = record.nvmlReturn == pynvml.NVML_SUCCESS and record.valueType < len(_MEMBERS)
    return getattr(record.value, _MEMBERS[record.valueType]) if known else None
