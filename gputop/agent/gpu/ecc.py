"""Errors of the memory: counted, and what the card did about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pynvml

from gputop.agent.gpu.sections import SELDOM, Ask, Fields, Section, plain_call
from gputop.agent.gpu.validate import counter, flag, rows
from gputop.model.machine.sections import Ecc

_CORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_VOLATILE = pynvml.NVML_VOLATILE_ECC
_DRAM, _SRAM = pynvml.NVML_MEMORY_LOCATION_DRAM, pynvml.NVML_MEMORY_LOCATION_SRAM
_total, _by_location = pynvml.nvmlDeviceGetTotalEccErrors, pynvml.nvmlDeviceGetMemoryErrorCounter
_pages = pynvml.nvmlDeviceGetRetiredPages
_sram_status = plain_call("nvmlDeviceGetSramEccErrorStatus", version=1, words=25)
_EXCEEDED = 23
"""The word of nvmlEccSramErrorStatus_v1_t that is bThresholdExceeded, padding counted."""


def _count(pages: Sequence[object] | None) -> int | None:
    return None if pages is None else len(pages)


class EccSection(Section):
    """ECC, retired pages (before Ampere) and remapped rows (since). Errors make an event, and that
    a reading."""

    name, kind, every = "ecc", Ecc, SELDOM
    calls = {
        "corrected_dram": (counter, _by_location, _CORRECTED, _VOLATILE, _DRAM),
        "corrected_sram": (counter, _by_location, _CORRECTED, _VOLATILE, _SRAM),
        "uncorrected_dram": (counter, _by_location, _UNCORRECTED, _VOLATILE, _DRAM),
        "uncorrected_sram": (counter, _by_location, _UNCORRECTED, _VOLATILE, _SRAM),
        "corrected": (counter, _total, _CORRECTED, _VOLATILE),
        "aggregate_corrected": (counter, _total, _CORRECTED, pynvml.NVML_AGGREGATE_ECC),
        "aggregate_uncorrected": (counter, _total, _UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),
        "retired_single": (
            _count, _pages, pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
        ),
        "retired_double": (
            _count, _pages, pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
        ),
        "retired_pending": (flag, pynvml.nvmlDeviceGetRetiredPagesPendingStatus),
    }  # fmt: skip

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        sram = ask(_sram_status)
        enabled, pending = ask(pynvml.nvmlDeviceGetEccMode) or (None, None)
        remapped = ask(pynvml.nvmlDeviceGetRemappedRows) or (None,) * 4
        return {
            "enabled": flag(enabled),
            "pending": flag(pending),
            "sram_threshold_exceeded": None if sram is None else flag(sram[_EXCEEDED]),
            "remapped_correctable": rows(remapped[0]),
            "remapped_uncorrectable": rows(remapped[1]),
            "remap_pending": flag(remapped[2]),
            "remap_failure": flag(remapped[3]),
        }
