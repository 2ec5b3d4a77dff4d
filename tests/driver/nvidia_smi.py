"""`nvidia-smi --query-gpu` and `--query-compute-apps` on a simulated machine, as CSV.

`install(folder)` puts it there; its output is that of nvidia-smi 580 in form: "a, b", units left
out with `nounits`, `[N/A]` for what there is not, errors on standard output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml as nvml

MIB = 1 << 20
_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_OFF_ON = ("Disabled", "Enabled")
_UNKNOWN = 'Field "{}" is not a valid field to query.'

Query = Callable[[Any], object]
GPU: dict[str, Query] = {
    "index": nvml.nvmlDeviceGetIndex,
    "count": lambda gpu: nvml.nvmlDeviceGetCount(),
    "driver_version": lambda gpu: nvml.nvmlSystemGetDriverVersion(),
    "uuid": nvml.nvmlDeviceGetUUID,
    "name": nvml.nvmlDeviceGetName,
    "pci.bus_id": lambda gpu: nvml.nvmlDeviceGetPciInfo(gpu).busId,
    "pstate": lambda gpu: f"P{nvml.nvmlDeviceGetPerformanceState(gpu)}",
    "compute_mode": lambda gpu: _MODES[nvml.nvmlDeviceGetComputeMode(gpu)],
    "memory.total": lambda gpu: _memory(gpu).total // MIB,
    "memory.used": lambda gpu: _memory(gpu).used // MIB,
    "memory.free": lambda gpu: _memory(gpu).free // MIB,
    "utilization.gpu": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "utilization.memory": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory,
    "temperature.gpu": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, 0),
    "power.draw": lambda gpu: f"{nvml.nvmlDeviceGetPowerUsage(gpu) / 1000:.2f}",
    "power.limit": lambda gpu: f"{nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000:.2f}",
    "clocks.sm": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clocks.max.sm": lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clocks.mem": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "fan.speed": nvml.nvmlDeviceGetFanSpeed,
    "ecc.errors.uncorrected.volatile.total": lambda gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, 1, 0
    ),
    "persistence_mode": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetPersistenceMode(gpu)],
    "display_active": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetDisplayActive(gpu)],
    "mig.mode.current": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetMigMode(gpu)[0]],
}


def install(folder: Path, without: str = "") -> None:
    """Make an executable `nvidia-smi` in a folder; it does not know the field `without`."""
    program = folder / "nvidia-smi"
    root = Path(__file__).parents[2]
    program.write_text(
        f"#!{sys.executable} -B\nimport sys\nsys.path.append({str(root)!r})\n"
        f"from tests.driver.nvidia_smi import main\nsys.exit(main(sys.argv[1:], {without!r}))\n"
    )
    program.chmod(0o755)


def _memory(gpu: Any) -> Any:
    return nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)


def _cell(query: Query, gpu: Any) -> str:
    try:
        return str(query(gpu))
    except nvml.NVMLError:
        return "[N/A]"


def _gpus() -> Iterator[Any]:
    return map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))


def _gpu_rows(fields: list[str]) -> Iterator[str]:
    for gpu in _gpus():
        yield ", ".join(_cell(GPU[field], gpu) for field in fields)


def _app_rows() -> Iterator[str]:
    for gpu in _gpus():
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
            held = process.usedGpuMemory
            used = "[N/A]" if held is None else held // MIB
            yield f"{nvml.nvmlDeviceGetUUID(gpu)}, {process.pid}, {used}"


def main(words: list[str], without: str = "") -> int:
    """Print what is asked for, again and again with -lms."""
    options = dict(word.partition("=")[::2] for word in words)
    fields = [field for field in options.get("--query-gpu", "").split(",") if field]
    for field in fields:
        if field not in GPU or field == without:
            print(_UNKNOWN.format(field))
            return 2
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        print(f"Failed to initialize NVML: {error}")
        return 9
    while True:
        for row in _gpu_rows(fields) if fields else _app_rows():
            print(row, flush=True)
        if "-lms" not in words:
            return 0
        time.sleep(int(words[words.index("-lms") + 1]) / 1000)
