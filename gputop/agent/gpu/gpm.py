"""Reads what a GPU and its GPU instances do, by NVML's GPM (GPU performance monitoring).

GPM needs Hopper or later, and no daemon. It compares two samples: the previous reading's and a new
one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import pynvml

from gputop.agent.gpu import validate
from gputop.agent.gpu.sections import Ask
from gputop.model.health.activity import ActivityWindow
from gputop.model.machine.sections import Activity

_EVERY = 0.95
"""Seconds between two readings; samples closer than 0.1 s say little."""

_METRICS = (
    ("graphics", pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, validate.ratio),
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
    """Compares two samples of one GPU or GPU instance."""

    def __init__(self, instance: int | None) -> None:
        self._instance = instance
        self._last: Any = None
        self._spare: Any = None
        self._refused = False
        self._due = 0.0
        self._latest: Activity | None = None
        self._window = ActivityWindow()

    def read(self, gpu: Any, utilization: float | None, now: float) -> Activity | None:
        if now >= self._due:
            sample = None if gpu is None or self._refused else self._sample(gpu)
            self._latest = self._window.add(sample, utilization, now)
            self._due = now + _EVERY
        return self._latest

    def free(self) -> None:
        for sample in filter(None, (self._last, self._spare)):
            with contextlib.suppress(pynvml.NVMLError):  # the driver is gone, its samples with it
                pynvml.nvmlGpmSampleFree(sample)
        self._last = self._spare = None

    def _sample(self, gpu: Any) -> Activity | None:
        """Return the activity since the last sample, or None. The next calls report a lost GPU."""
        try:
            self._spare = sample = self._spare or pynvml.nvmlGpmSampleAlloc()
            if self._instance is None:
                pynvml.nvmlGpmSampleGet(gpu, sample)
            else:
                pynvml.nvmlGpmMigSampleGet(gpu, self._instance, sample)
            self._last, self._spare = sample, self._last
            return _between(self._spare, sample) if self._spare else None
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                self._refused = True
                self.free()
            return None


def _between(before: Any, after: Any) -> Activity:
    get = pynvml.c_nvmlGpmMetricsGet_t()
    get.version, get.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
    get.sample1, get.sample2 = before, after
    for metric, (_, id_, _) in zip(get.metrics, _METRICS, strict=False):
        metric.metricId = id_
    pynvml.nvmlGpmMetricsGet(get)
    values: dict[str, Any] = {
        name: show(metric.value)
        for metric, (name, _, show) in zip(get.metrics, _METRICS, strict=False)
        if metric.nvmlReturn == pynvml.NVML_SUCCESS
    }
    return Activity(**values)
