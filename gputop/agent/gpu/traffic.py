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
    RARELY,
    SELDOM,
    Ask,
    CounterRate,
    Fields,
    Section,
    scoped,
)
from gputop.agent.gpu.topology import ASLEEP, UP, link_states
from gputop.model.machine import sections

_KIB = 1024
"""Bytes in NVML's unit of NVLink counters and of PCIe throughput."""
_WRAPS = 2**32
"""NVML does not say how wide its byte counters are: one that never passes this may wrap several
times a second."""
_MOST_RATE = 10**12


class PcieSection(Section):
    """PCIe traffic by byte counters, or by `PcieThroughput` without them. The link itself is read
    less often than its traffic."""

    name, kind, every, slow = "pcie", sections.Pcie, QUICK, OFTEN
    wakes_up = True
    fields = {
        "tx": (validate.counter, pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES),
        "rx": (validate.counter, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES),
    }
    slow_calls = {
        "generation": (validate.pcie_generation, pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        "width": (validate.pcie_width, pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        "replays": (validate.counter, pynvml.nvmlDeviceGetPcieReplayCounter),
    }
    fixed = {
        "generation_max": (validate.pcie_generation, pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        "width_max": (validate.pcie_width, pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    }

    def __init__(self) -> None:
        super().__init__()
        self._rates = (CounterRate(), CounterRate())
        self._throughput = PcieThroughput()

    def shorten(self) -> bool:
        self.only_at_work = True  # a slow link means nothing while the GPU has nothing to do
        return super().shorten()

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        if not self.fields:
            return {}
        counts = [convert(fields.get(id_)) for convert, id_ in self.fields.values()]
        if any(count is None or count < _WRAPS for count in counts):
            tx, rx = self._throughput.read(ask, now)
        else:
            rates = zip(self._rates, counts, strict=True)
            tx, rx = (rate.per_second(count, now) for rate, count in rates)
        return {"tx": tx, "rx": rx}


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
_LINK_COUNT = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT
_LINK_STATES = tuple(
    scoped(pynvml.NVML_FI_DEV_NVLINK_GET_STATE, link)
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS)
)
_ERRORS = (
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
)


class NvlinkSection(Section):
    """NVLink rates each time, the rest now and then; None on a card without NVLinks."""

    name, kind, every, slow = "nvlink", sections.Nvlink, QUICK, RARELY
    fields = {"tx": (validate.counter, _TX), "rx": (validate.counter, _RX)}
    slow_fields = {"up": (_LINK_COUNT, *_LINK_STATES), "errors": _ERRORS}
    states: list[int] | None = None
    """The states (NVML_NVLINK_STATE_*) of all links; None before the first reading."""

    def __init__(self) -> None:
        super().__init__()
        self._tx, self._rx = CounterRate(_KIB), CounterRate(_KIB)

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        return {
            "tx": self._tx.per_second(validate.counter(fields.get(_TX)), now),
            "rx": self._rx.per_second(validate.counter(fields.get(_RX)), now),
        }

    def slow_values(self, ask: Ask, fields: Fields) -> dict[str, Any]:
        """Return the links' states and errors. NVML sums up the errors of all links, which takes it
        longer than rates."""
        states = self.states = _all_up(fields) or link_states(ask)
        if not states:
            return {}
        up, asleep = states.count(UP), states.count(ASLEEP)
        errors = [
            count for id_ in _ERRORS if (count := validate.counter(fields.get(id_))) is not None
        ]
        return {
            "up": up,
            "down": len(states) - up - asleep,
            "asleep": asleep,
            "errors": sum(errors) if errors else None,
        }


def _all_up(fields: Fields) -> list[int]:
    """Return the states of all links if the fields say that every link is up, otherwise nothing:
    then each link is asked for. NCCL reads the same fields (src/misc/nvmlwrap, graph/xml.cc)."""
    states = [state for id_ in _LINK_STATES if (state := fields.get(id_)) is not None]
    up = states.count(UP)
    return [UP] * up if up == len(states) == fields.get(_LINK_COUNT) else []
