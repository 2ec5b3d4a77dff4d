"""The link of a GPU to its host."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pynvml

from gputop.agent.gpu import sanity
from gputop.agent.gpu.board import OFTEN, QUICK, SELDOM, Fixed, known
from gputop.agent.gpu.counters import Rate
from gputop.agent.gpu.section import Ask, Fields
from gputop.agent.trouble import told
from gputop.model import sections

_NEWEST, _WIDEST = 9, 32
_WRAPS = 2**32
"""NVML does not say how wide its byte counters are: one that never passes this may wrap several
times a second."""
_MOST_RATE = 10**12
_KIB = 1024


class Pcie:
    """Byte counters where there are any; elsewhere `Throughput`."""

    name: ClassVar[str] = "pcie"
    every: ClassVar[float] = QUICK
    fields: ClassVar[tuple[int, ...]] = (
        pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
    )

    def __init__(self) -> None:
        self._best = Fixed(generation_max=_generation_max, width_max=_width_max)
        self._rates = (Rate(), Rate())
        self._throughput = Throughput()
        self._link: dict[str, int | None] = {}
        self._link_due = 0.0

    def read(self, ask: Ask, fields: Fields, now: float) -> sections.Pcie | None:
        """As `Section.read`; the link itself is looked at less often than its traffic."""
        if now >= self._link_due:
            self._link, self._link_due = _link(ask), now + OFTEN
        tx, rx = self._traffic(ask, [fields.get(field) for field in self.fields], now)
        return known(sections.Pcie, tx=tx, rx=rx, **self._link, **self._best.read(ask))

    def _traffic(
        self, ask: Ask, counts: list[int | float | None], now: float
    ) -> tuple[float | None, float | None]:
        wide = [sanity.counter(count) for count in counts]
        if any(count is None or count < _WRAPS for count in wide):
            return self._throughput.read(ask, now)
        tx, rx = (rate.per_second(c, now) for rate, c in zip(self._rates, wide, strict=True))
        return tx, rx


class Throughput:
    """nvmlDeviceGetPcieThroughput measures for 20 ms: in a thread, so that no look waits for it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._found: tuple[float | None, float | None] = (None, None)
        self._due: float | None = None
        self._absent = False

    def read(self, ask: Ask, now: float) -> tuple[float | None, float | None]:
        """What was measured last; nothing while it is overdue. The first look may be the only one,
        and measures nothing."""
        if self._due is None:
            self._due = now
        elif now >= self._due and not self._absent:
            if self._thread is not None and self._thread.is_alive():
                return None, None
            handle, self._due = ask(_handle), now + SELDOM
            self._thread = threading.Thread(target=self._measure, args=(handle,), daemon=True)
            self._thread.start()
        return self._found

    def _measure(self, handle: Any) -> None:
        counters = (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        try:
            rates = [pynvml.nvmlDeviceGetPcieThroughput(handle, one) * _KIB for one in counters]
        except pynvml.NVMLError as error:
            self._absent = error.value == pynvml.NVML_ERROR_NOT_SUPPORTED
            self._found = (None, None)
            return
        except Exception as error:  # noqa: BLE001 - the next measurement may do better
            told("pcie", error)
            self._found = (None, None)
            return
        tx, rx = (float(rate) if rate < _MOST_RATE else None for rate in rates)
        self._found = (tx, rx)


def _link(ask: Ask) -> dict[str, int | None]:
    return {
        "generation": sanity.few(ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration), _NEWEST),
        "width": sanity.few(ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth), _WIDEST),
        "replays": sanity.counter(ask(pynvml.nvmlDeviceGetPcieReplayCounter)),
    }


def _generation_max(ask: Ask) -> int | None:
    return sanity.few(ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration), _NEWEST)


def _width_max(ask: Ask) -> int | None:
    return sanity.few(ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth), _WIDEST)


def _handle(handle: Any) -> Any:
    return handle
