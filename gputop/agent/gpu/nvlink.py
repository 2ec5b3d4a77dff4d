"""The NVLinks of a GPU: how many are up, how much they carry, and their errors."""

from __future__ import annotations

from typing import Any, ClassVar

import pynvml

from gputop.agent.gpu import sanity
from gputop.agent.gpu.links import link_states
from gputop.agent.gpu.section import ALL_LINKS, Ask, Fields, scoped
from gputop.model.sections import Nvlink

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
"""Seconds between two looks at states and errors: a call for each link."""


class NvlinkSection:
    """Rates at each look, the rest now and then."""

    name: ClassVar[str] = "nvlink"
    every: ClassVar[float] = 2.0
    fields: ClassVar[tuple[int, ...]] = (_TX, _RX)

    def __init__(self) -> None:
        self._tx, self._rx = _Rate(), _Rate()
        self._slow = Nvlink()
        self._due = 0.0

    def read(self, ask: Ask, fields: Fields, now: float) -> Nvlink | None:
        """As of now; None on a card without NVLinks."""
        if now >= self._due:
            self._slow, self._due = _read_slow(ask), now + _SLOWLY
        found = Nvlink(
            up=self._slow.up,
            down=self._slow.down,
            tx=self._tx.of(fields.get(_TX), now),
            rx=self._rx.of(fields.get(_RX), now),
            errors=self._slow.errors,
        )
        return None if found == Nvlink() else found


def _read_slow(ask: Ask) -> Nvlink:
    states = link_states(ask)
    if not states:
        return Nvlink()
    up = sum(states)
    return Nvlink(up=up, down=len(states) - up, errors=ask(_errors))


def _errors(handle: Any) -> int | None:
    """Not with the rates, which are asked for more often: it is a sum over the links."""
    records = pynvml.nvmlDeviceGetFieldValues(handle, _ERRORS)
    told = [one.value.ullVal for one in records if one.nvmlReturn == pynvml.NVML_SUCCESS]
    known = [count for count in map(sanity.counter, told) if count is not None]
    return sum(known) if known else None


class _Rate:
    """Bytes per second of a counter of KiB; none across a reset."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def of(self, told: float | None, now: float) -> float | None:
        """Since the look before."""
        count = sanity.counter(told)
        last, self._last = self._last, None if count is None else (count, now)
        if count is None or last is None or count < last[0] or now <= last[1]:
            return None
        return (count - last[0]) * _KIB / (now - last[1])
