"""Sections about PCIe and NVLink: traffic, state and errors."""

from __future__ import annotations

import threading
from typing import Any

import pynvml

from gputop.agent.errors import log_once
from gputop.agent.gpu import validate
from gputop.agent.gpu.sections import (
    ALL_LINKS,
    OFTEN,
    QUICK,
    SELDOM,
    Ask,
    CounterRate,
    Fields,
    Section,
    scoped,
    values_of,
)
from gputop.agent.gpu.topology import ASLEEP, UP, link_states
from gputop.model.machine import sections

_KIB = 1024
"""Bytes in NVML's unit of NVLink counters and of PCIe throughput."""
_WRAPS = 2**32
"""NVML does not say how wide its byte counters are: one that never passes this may wrap several
times a second."""
_MOST_RATE = 10**12
_LINK = {
    "generation": (validate.pcie_generation, pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
    "width": (validate.pcie_width, pynvml.nvmlDeviceGetCurrPcieLinkWidth),
    "replays": (validate.counter, pynvml.nvmlDeviceGetPcieReplayCounter),
}


class PcieSection(Section):
    """PCIe traffic by byte counters, or by `PcieThroughput` without them. The link itself is read
    less often than its traffic."""

    name, kind, every, slow = "pcie", sections.Pcie, QUICK, OFTEN
    fields = (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES)
    fixed = {
        "generation_max": (validate.pcie_generation, pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        "width_max": (validate.pcie_width, pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    }

    def __init__(self) -> None:
        super().__init__()
        self._rates = (CounterRate(), CounterRate())
        self._throughput = PcieThroughput()

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        tx, rx = self._traffic(ask, [fields.get(field) for field in self.fields], now)
        return {"tx": tx, "rx": rx}

    def slow_values(self, ask: Ask) -> dict[str, Any]:
        return values_of(ask, _LINK)

    def _traffic(
        self, ask: Ask, counts: list[int | float | None], now: float
    ) -> tuple[float | None, float | None]:
        wide = [validate.counter(count) for count in counts]
        if any(count is None or count < _WRAPS for count in wide):
            return self._throughput.read(ask, now)
        tx, rx = (rate.per_second(c, now) for rate, c in zip(self._rates, wide, strict=True))
        return tx, rx


class PcieThroughput:
    """Calls nvmlDeviceGetPcieThroughput in a thread: it takes 20 ms, which no tick waits for."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._measured: tuple[float | None, float | None] = (None, None)
        self._due: float | None = None
        self._absent = False

    def read(self, ask: Ask, now: float) -> tuple[float | None, float | None]:
        """Return the last rates, tx and rx in bytes per second; None while a measurement is
        overdue. The first call measures nothing, since it may be the only one."""
        if self._due is None:
            self._due = now
        elif now >= self._due and not self._absent:
            if self._thread is not None and self._thread.is_alive():
                return None, None
            handle, self._due = ask(lambda handle: handle), now + SELDOM
            self._thread = threading.Thread(target=self._measure, args=(handle,), daemon=True)
            self._thread.start()
        return self._measured

    def _measure(self, handle: Any) -> None:
        counters = (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        try:
            rates = [pynvml.nvmlDeviceGetPcieThroughput(handle, end) * _KIB for end in counters]
            tx, rx = (float(rate) if rate < _MOST_RATE else None for rate in rates)
            self._measured = (tx, rx)
        except Exception as error:  # noqa: BLE001 - the next measurement may do better
            self._measured = (None, None)
            if not isinstance(error, pynvml.NVMLError):
                log_once("pcie", error)
            elif error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                self._absent = True


_TX = scoped(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS)
_RX = scoped(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS)
_ERRORS = [
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
]


class NvlinkSection(Section):
    """NVLink rates each time, the rest now and then; None on a card without NVLinks."""

    name, kind, every, slow = "nvlink", sections.Nvlink, QUICK, 30.0
    fields = (_TX, _RX)

    def __init__(self) -> None:
        super().__init__()
        self._tx, self._rx = CounterRate(_KIB), CounterRate(_KIB)

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        return {
            "tx": self._tx.per_second(validate.counter(fields.get(_TX)), now),
            "rx": self._rx.per_second(validate.counter(fields.get(_RX)), now),
        }

    def slow_values(self, ask: Ask) -> dict[str, Any]:
        """Return the links' states and errors, which take a call for each link."""
        states = link_states(ask)
        up, asleep = states.count(UP), states.count(ASLEEP)
        down = len(states) - up - asleep
        return {"up": up, "down": down, "asleep": asleep, "errors": ask(_errors)} if states else {}


def _errors(handle: Any) -> int | None:
    """Return the errors of all links. NVML sums them up, so they are read less often than rates."""
    records = pynvml.nvmlDeviceGetFieldValues(handle, _ERRORS)
    values = [rec.value.ullVal for rec in records if rec.nvmlReturn == pynvml.NVML_SUCCESS]
    counts = [count for count in map(validate.counter, values) if count is not None]
    return sum(counts) if counts else None
