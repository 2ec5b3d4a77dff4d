"""The recent past of each GPU, for the graphs."""

from __future__ import annotations

from collections import deque

from gputop.model.frame import Frame, Gpu

LENGTH = 120
"""Samples that are kept of each GPU."""


class History:
    """Utilization of each GPU, oldest first; None where there was no value: a gap stays a gap."""

    def __init__(self) -> None:
        self._utilization: dict[str, deque[float | None]] = {}

    def append(self, frame: Frame) -> None:
        """Take in a frame. GPUs that are gone are forgotten."""
        kept = self._utilization
        self._utilization = {
            gpu.key: kept.get(gpu.key) or deque(maxlen=LENGTH) for gpu in frame.gpus
        }
        for gpu in frame.gpus:
            live = gpu.stale_for is None
            self._utilization[gpu.key].append(gpu.utilization if live else None)

    def utilization(self, gpu: Gpu) -> list[float | None]:
        """Ratios, oldest first."""
        return list(self._utilization.get(gpu.key, ()))
