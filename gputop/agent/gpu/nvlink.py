"""The NVLinks of a GPU: how many are up, how much they carry, and their errors."""

from __future__ import annotations

from typing import Any

import pynvml

from gputop.agent.gpu import validate
from gputop.agent.gpu.links import ASLEEP, UP, link_states
from gputop.agent.gpu.sections import (
    ALL_LINKS,
    QUICK,
    Ask,
    CounterRate,
    Fields,
    Section,
    SlowValues,
    scoped,
)
from gputop.model.machine.sections import Nvlink

_TX = scoped(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS)
_RX = scoped(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS)
_KIB = 1024
"""What these two count."""
_ERRORS = [
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
]
_SLOWLY = 30.0
"""Seconds between two readings of states and errors: a call for each link."""


class NvlinkSection(Section):
    """Rates each time, the rest now and then; None on a card without NVLinks."""

    name, kind, every = "nvlink", Nvlink, QUICK
    fields = (_TX, _RX)

    def __init__(self) -> None:
        super().__init__()
        self._tx, self._rx = CounterRate(), CounterRate()
        self._slow = SlowValues(_SLOWLY, _states_and_errors)

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        return {
            "tx": _bytes(self._tx.per_second(validate.counter(fields.get(_TX)), now)),
            "rx": _bytes(self._rx.per_second(validate.counter(fields.get(_RX)), now)),
            **self._slow.read(ask, now),
        }


def _bytes(kibibytes: float | None) -> float | None:
    return None if kibibytes is None else kibibytes * _KIB


def _states_and_errors(ask: Ask) -> dict[str, int | None]:
    states = link_states(ask)
    if not states:
        return {}
    up, asleep = states.count(UP), states.count(ASLEEP)
    return {"up": up, "down": len(states) - up - asleep, "asleep": asleep, "errors": ask(_errors)}


def _errors(handle: Any) -> int | None:
    """Not with the rates, which are asked for more often: it is a sum over the links."""
    records = pynvml.nvmlDeviceGetFieldValues(handle, _ERRORS)
    values = [rec.value.ullVal for rec in records if rec.nvmlReturn == pynvml.NVML_SUCCESS]
    counts = [count for count in map(validate.counter, values) if count is not None]
    return sum(counts) if counts else None
