"""Reads what a GPU and its GPU instances do, by NVML's GPM (GPU performance monitoring).

GPM needs Hopper or later, and no daemon. It compares two samples: the previous reading's and a new
one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

import pynvml
from msgspec.structs import replace

from gputop.agent.gpu import validate
from gputop.agent.gpu.sections import Ask
from gputop.model.health.activity import ActivityWindow
from gputop.model.machine.sections import Activity

_EVERY, _GRAPHICS_EVERY = 0.95, 4.95
"""Seconds between two readings; samples closer than 0.1 s say little. Graphics alone take an H200
1.2 to 1.9 ms, all other metrics 0.2."""

_GRAPHICS = (("graphics", pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, validate.ratio),)
_METRICS = (
    ("sm", pynvml.NVML_GPM_METRIC_SM_UTIL, validate.ratio),
    ("occupancy", pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, validate.ratio),
    ("tensor", pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, validate.ratio),
    ("fp64", pynvml.NVML_GPM_METRIC_FP64_UTIL, validate.ratio),
    ("fp32", pynvml.NVML_GPM_METRIC_FP32_UTIL, validate.ratio),
    ("fp16", pynvml.NVML_GPM_METRIC_FP16_UTIL, validate.ratio),
    ("dram", pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, validate.ratio),
    ("pcie_tx", pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, validate.bytes_per_second),
    ("pcie_rx", pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, validate.bytes_per_second),
    ("nvlink_tx", pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, validate.bytes_per_second),
    ("nvlink_rx", pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, validate.bytes_per_second),
)

_Metrics = tuple[tuple[str, int, Callable[[float], Any]], ...]
"""For each value its name, its id, and a function that converts it."""


class GpmSection:
    """Measures one GPU and its GPU instances; for one thread at a time."""

    def __init__(self) -> None:
        self._supported: bool | None = None
        self._gpu: Any = None
        self._now = 0.0
        self._meters: dict[int | None, _Meter] = {}

    def begin(self, ask: Ask, gpu: Any, now: float) -> None:
        """Begin a cycle at `now` (monotonic seconds); `gpu` is the handle of the whole GPU."""
        if self._supported is None:
            support = ask(pynvml.nvmlGpmQueryDeviceSupport)
            self._supported = None if support is None else bool(support.isSupportedDevice)
        self._gpu, self._now = gpu if self._supported else None, now

    def read(
        self, instance: int | None = None, utilization: float | None = None
    ) -> Activity | None:
        """Return the activity of the GPU, or of a GPU instance by its id; `utilization` stands in
        for missing GPM. The result is reused until the next reading is due."""
        if instance not in self._meters:
            self._meters[instance] = _Meter(instance)
        return self._meters[instance].read(self._gpu, utilization, self._now)

    def keep(self, instances: Collection[int]) -> None:
        """Keep the samples of these GPU instances, and free all others."""
        for instance in self._meters.keys() - {None, *instances}:
            self._meters.pop(instance).free()

    def reset(self) -> None:
        """Start over, for another handle or another mode."""
        for meter in self._meters.values():
            meter.free()
        self._meters.clear()
        self._supported = None


class _Meter:
    """Measures one GPU or GPU instance. Of a GPU instance, whose utilization the driver does not
    tell, graphics are as fresh as the rest; of a GPU they are means of five seconds."""

    def __init__(self, instance: int | None) -> None:
        is_gpu = instance is None
        self._metrics = _SamplePair(instance, _METRICS if is_gpu else _GRAPHICS + _METRICS)
        self._graphics = _SamplePair(instance, _GRAPHICS) if is_gpu else None
        self._due = self._graphics_due = 0.0
        self._shown: dict[str, Any] = {}
        self._latest: Activity | None = None
        self._window = ActivityWindow()

    def read(self, gpu: Any, utilization: float | None, now: float) -> Activity | None:
        if now >= self._due:
            self._due = now + _EVERY
            graphics = self._read_graphics(gpu, now)
            values = self._metrics.measure(gpu)
            sample = None if values is None else Activity(**values, **graphics)
            self._latest = self._window.add(sample, utilization, now)
            if sample is not None and self._latest is not None:
                self._latest = replace(self._latest, **self._shown)
        return self._latest

    def free(self) -> None:
        for pair in filter(None, (self._metrics, self._graphics)):
            pair.free()

    def _read_graphics(self, gpu: Any, now: float) -> dict[str, Any]:
        """Return the graphics of the last seconds if they are due, which are shown until the next
        time. Without an answer none are shown, and the next reading asks again."""
        if self._graphics is None or now < self._graphics_due:
            return {}
        self._shown = self._graphics.measure(gpu) or {}
        self._graphics_due = now + _GRAPHICS_EVERY if self._shown else 0.0
        return self._shown


class _SamplePair:
    """Compares the last two samples of one GPU or GPU instance."""

    def __init__(self, instance: int | None, metrics: _Metrics) -> None:
        self._instance, self._metrics = instance, metrics
        self._last: Any = None
        self._spare: Any = None
        self._refused = False

    def measure(self, gpu: Any) -> dict[str, Any] | None:
        """Return the values since the last sample by name, or None; `gpu` is None without GPM. The
        next calls report a lost GPU."""
        if gpu is None or self._refused:
            return None
        try:
            self._spare = sample = self._spare or pynvml.nvmlGpmSampleAlloc()
            if self._instance is None:
                pynvml.nvmlGpmSampleGet(gpu, sample)
            else:
                pynvml.nvmlGpmMigSampleGet(gpu, self._instance, sample)
            self._last, self._spare = sample, self._last
            return _between(self._spare, sample, self._metrics) if self._spare else None
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                self._refused = True
                self.free()
            return None

    def free(self) -> None:
        for sample in filter(None, (self._last, self._spare)):
            with contextlib.suppress(pynvml.NVMLError):  # the driver is gone, its samples with it
                pynvml.nvmlGpmSampleFree(sample)
        self._last = self._spare = None


def _between(before: Any, after: Any, metrics: _Metrics) -> dict[str, Any]:
    get = pynvml.c_nvmlGpmMetricsGet_t()
    get.version, get.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(metrics)
    get.sample1, get.sample2 = before, after
    for metric, (_, id_, _) in zip(get.metrics, metrics, strict=False):
        metric.metricId = id_
    pynvml.nvmlGpmMetricsGet(get)
    return {
        name: show(metric.value)
        for metric, (name, _, show) in zip(get.metrics, metrics, strict=False)
        if metric.nvmlReturn == pynvml.NVML_SUCCESS
    }
