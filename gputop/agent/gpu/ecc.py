"""Errors of the memory: counted, and what the card did about them."""

from __future__ import annotations

from typing import Any, ClassVar

import pynvml

from gputop.agent.gpu import sanity
from gputop.agent.gpu.section import Ask, Fields, plain_call
from gputop.model.sections import Ecc

_CORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_LOCATIONS = {"dram": pynvml.NVML_MEMORY_LOCATION_DRAM, "sram": pynvml.NVML_MEMORY_LOCATION_SRAM}
_sram = plain_call("nvmlDeviceGetSramEccErrorStatus", version=1, words=25)
_EXCEEDED = 23
"""The word of nvmlEccSramErrorStatus_v1_t that is bThresholdExceeded, padding counted."""


class EccSection:
    """ECC, retired pages (before Ampere) and remapped rows (since)."""

    name: ClassVar[str] = "ecc"
    every: ClassVar[float] = 10.0  # an error makes an event, and that a look
    fields: ClassVar[tuple[int, ...]] = ()

    def read(self, ask: Ask, fields: Fields, now: float) -> Ecc | None:
        """As of now; None where the card has nothing of it."""
        sram = ask(_sram)
        known = {
            **_counted(ask),
            **_retired(ask),
            **_remapped(ask),
            "sram_threshold_exceeded": None if sram is None else sanity.flag(sram[_EXCEEDED]),
        }
        return Ecc(**known) if any(value is not None for value in known.values()) else None


def _counted(ask: Ask) -> dict[str, Any]:
    now, next_ = ask(pynvml.nvmlDeviceGetEccMode) or (None, None)
    totals = {
        "corrected": (_CORRECTED, pynvml.NVML_VOLATILE_ECC),
        "aggregate_corrected": (_CORRECTED, pynvml.NVML_AGGREGATE_ECC),
        "aggregate_uncorrected": (_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),
    }
    places = {
        f"{kind}_{name}": (type_, pynvml.NVML_VOLATILE_ECC, location)
        for kind, type_ in (("corrected", _CORRECTED), ("uncorrected", _UNCORRECTED))
        for name, location in _LOCATIONS.items()
    }
    return {
        **{
            name: sanity.counter(ask(pynvml.nvmlDeviceGetMemoryErrorCounter, *which))
            for name, which in places.items()
        },
        "enabled": sanity.flag(now),
        "pending": sanity.flag(next_),
        **{
            name: sanity.counter(ask(pynvml.nvmlDeviceGetTotalEccErrors, *which))
            for name, which in totals.items()
        },
    }


def _retired(ask: Ask) -> dict[str, Any]:
    causes = {
        "retired_single": pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        "retired_double": pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    }
    pages = {name: ask(pynvml.nvmlDeviceGetRetiredPages, cause) for name, cause in causes.items()}
    return {
        **{name: None if found is None else len(found) for name, found in pages.items()},
        "retired_pending": sanity.flag(ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus)),
    }


def _remapped(ask: Ask) -> dict[str, Any]:
    correctable, uncorrectable, pending, failure = (
        ask(pynvml.nvmlDeviceGetRemappedRows) or (None,) * 4
    )
    return {
        "remapped_correctable": sanity.rows(correctable),
        "remapped_uncorrectable": sanity.rows(uncorrectable),
        "remap_pending": sanity.flag(pending),
        "remap_failure": sanity.flag(failure),
    }
