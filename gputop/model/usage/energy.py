"""The energy that GPUs used, from frame to frame."""

from __future__ import annotations

from gputop.model.machine.gpu import Gpu


class EnergyMeter:
    """The counters of all GPUs as they were in the frame before."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], float] = {}

    def joules(self, host: str, gpu: Gpu, seconds: float) -> float | None:
        """Return what a GPU used in the last `seconds`; None where that is not known.

        By its energy counter, or where that is missing or began anew by what it draws now.
        """
        key = host, gpu.key
        before = self._counters.pop(key, None)
        counter = gpu.power_more.energy if gpu.power_more else None
        if counter is not None and gpu.stale_for is None:
            self._counters[key] = counter
            if before is not None and counter >= before:
                return counter - before
        return None if gpu.power is None else gpu.power * seconds
