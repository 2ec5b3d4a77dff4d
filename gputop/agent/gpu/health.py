"""Sections about the health of the card as a whole, and errors of its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from gputop.agent.gpu import validate
from gputop.agent.gpu.sections import (
    OFTEN,
    RARELY,
    SELDOM,
    Ask,
    Calls,
    Fields,
    Section,
    only,
    plain_call,
    values_of,
)
from gputop.model.machine.sections import BRIEF, Ecc, Health, marked

_RECOVERY_ACTION = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_ACTIONS: dict[float | None, str] = dict(enumerate((
    "none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain",
    "bus_reset", "system_reboot",
)))  # fmt: skip
"""Keyed by NVML_GPU_RECOVERY_ACTION_*; the oldest nvidia-ml-py has the first five."""
_STATES = ("not_supported", "not_started", "in_progress", "completed")
"""Indexed by NVML_GPU_FABRIC_STATE_*."""
_PROBLEMS = {
    "degraded_bandwidth": (0, 1),
    "route_recovery": (2, 1),
    "route_unhealthy": (4, 1),
    "access_timeout_recovery": (6, 1),
    "no_partition": (12, 2),
    "manager_disconnected": (14, 2),
}
"""From NVML_GPU_FABRIC_HEALTH_MASK_*: the position of two bits in the mask, and their value if
there is the problem; 0 is not supported."""
_CONFIGURATION_AT, _CONFIGURED, _GARBAGE = 8, 1, 15
_CONFIGURATIONS = dict(enumerate((
    "incorrect_system_guid", "incorrect_chassis_serial", "no_partition", "insufficient_nvlinks",
    "incompatible_firmware", "invalid_location", "gpu_state_invalid",
), start=2))  # fmt: skip
"""Keyed by NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_*, a value of four bits."""
_fabric = plain_call("nvmlDeviceGetGpuFabricInfoV", version=2, words=8)
_repair = plain_call("nvmlDeviceGetRepairStatus", version=1, words=2)
_unrepairable = plain_call("nvmlDeviceGetUnrepairableMemoryFlag_v1", version=1, words=1)


def _fabric_values(
    info: list[int] | None,
) -> tuple[str | None, tuple[str, ...] | None, bool | None]:
    """Return Health's fields about the fabric, from the words of nvmlGpuFabricInfo_v2_t.

    The status counts only once the state is complete (nvml.h).
    """
    if info is None:
        return None, None, None
    *uuid, status, _clique, state, mask = info
    name = _STATES[state] if state < len(_STATES) else None
    if name in (None, "not_supported"):
        return name, None, None
    failed = name == "completed" and status != pynvml.NVML_SUCCESS
    return "failed" if failed else name, _problems(mask), any(uuid)


def _problems(mask: int) -> tuple[str, ...] | None:
    """Return names as in `model.health.findings`; None if the driver reports no fabric health."""
    if not mask:
        return None
    problems = [name for name, (shift, when) in _PROBLEMS.items() if mask >> shift & 3 == when]
    configuration = mask >> _CONFIGURATION_AT & 15
    if _CONFIGURED < configuration < _GARBAGE:
        problems.append(_CONFIGURATIONS.get(configuration, "incorrect_configuration"))
    return tuple(dict.fromkeys(problems))


def _pending(repairs: list[int] | None) -> bool | None:
    flags = [validate.flag(repair) for repair in repairs or ()]
    if True in flags:
        return True
    return None if not flags or None in flags else False


def _flag_at(index: int) -> Callable[[Sequence[int] | None], bool | None]:
    return lambda words: None if words is None else validate.flag(words[index])


class HealthSection(Section):
    """Recovery action, fabric, repairs. XIDs are events, and come from `agent.gpu.events`."""

    name, kind, every, slow = "health", Health, OFTEN, SELDOM
    fields = {"recovery_action": (_ACTIONS.get, _RECOVERY_ACTION)}
    slow_calls = {
        "repair_pending": (_pending, _repair),
        "unrepairable_memory": (_flag_at(0), _unrepairable),
        ("fabric_state", "fabric_health", "fabric_cluster"): (_fabric_values, _fabric),
    }


_CORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_VOLATILE = pynvml.NVML_VOLATILE_ECC
_DRAM, _SRAM = pynvml.NVML_MEMORY_LOCATION_DRAM, pynvml.NVML_MEMORY_LOCATION_SRAM
_total, _by_location = pynvml.nvmlDeviceGetTotalEccErrors, pynvml.nvmlDeviceGetMemoryErrorCounter
_pages = pynvml.nvmlDeviceGetRetiredPages
_sram_status = plain_call("nvmlDeviceGetSramEccErrorStatus", version=1, words=25)
_EXCEEDED = 23
"""The index of bThresholdExceeded in nvmlEccSramErrorStatus_v1_t, in words, padding counted."""


def _count(pages: Sequence[object] | None) -> int | None:
    return None if pages is None else len(pages)


def _remapped(answer: Sequence[int] | None) -> tuple[int | None, ...]:
    correctable, uncorrectable, *flags = answer or (None,) * 4
    return validate.rows(correctable), validate.rows(uncorrectable), *map(validate.flag, flags)


class EccSection(Section):
    """ECC, retired pages (before Ampere) and remapped rows (since). An error raises an event, which
    causes a reading."""

    name, kind, every = "ecc", Ecc, RARELY
    calls = {
        "corrected_dram": (validate.counter, _by_location, _CORRECTED, _VOLATILE, _DRAM),
        "corrected_sram": (validate.counter, _by_location, _CORRECTED, _VOLATILE, _SRAM),
        "uncorrected_dram": (validate.counter, _by_location, _UNCORRECTED, _VOLATILE, _DRAM),
        "uncorrected_sram": (validate.counter, _by_location, _UNCORRECTED, _VOLATILE, _SRAM),
        "corrected": (validate.counter, _total, _CORRECTED, _VOLATILE),
        "aggregate_corrected": (validate.counter, _total, _CORRECTED, pynvml.NVML_AGGREGATE_ECC),
        "aggregate_uncorrected": (
            validate.counter, _total, _UNCORRECTED, pynvml.NVML_AGGREGATE_ECC
        ),
        "sram_threshold_exceeded": (_flag_at(_EXCEEDED), _sram_status),
        ("enabled", "pending"): (validate.pair(validate.flag), pynvml.nvmlDeviceGetEccMode),
    }  # fmt: skip
    rows = {
        (
            "remapped_correctable", "remapped_uncorrectable", "remap_pending", "remap_failure"
        ): (_remapped, pynvml.nvmlDeviceGetRemappedRows),
    }  # fmt: skip
    pages: Calls = {
        "retired_single": (
            _count, _pages, pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
        ),
        "retired_double": (
            _count, _pages, pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
        ),
        "retired_pending": (validate.flag, pynvml.nvmlDeviceGetRetiredPagesPendingStatus),
    }  # fmt: skip

    is_short = False

    def shorten(self) -> bool:
        self.pages, self.is_short = only(self.pages, marked(self.kind, BRIEF)), True
        return super().shorten()

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        """Return rows and pages; a card has one or the other, and if it is short, rows suffice."""
        rows = values_of(ask, self.rows)
        suffices = self.is_short and any(row is not None for row in rows.values())
        return rows if suffices else rows | values_of(ask, self.pages)
