"""`nvidia-smi --query-gpu` and `--query-compute-apps` on a simulated machine, as CSV, and `-q -x`;
without them the line of its table that has versions.

`install(folder)` puts it there; its output is that of nvidia-smi 580 in form: "a, b", units left
out with `nounits`, `[N/A]` for what there is not, errors on standard output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pynvml as nvml

from tests.driver.nvidia_smi_xml import document, field_value

MIB = 1 << 20
_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_OFF_ON = ("Disabled", "Enabled")
_UNKNOWN = 'Field "{}" is not a valid field to query.'

Query = Callable[[Any], object]


def _ecc(kind: int, counter: int) -> dict[str, Query]:
    """Return the queries of one kind of errors (1: uncorrected), since when (1: ever), by place."""
    device_memory = 2
    return {
        "total": lambda gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter),
        "dram": lambda gpu: nvml.nvmlDeviceGetMemoryErrorCounter(gpu, kind, counter, device_memory),
        "sram": lambda gpu: (
            nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter)
            - nvml.nvmlDeviceGetMemoryErrorCounter(gpu, kind, counter, device_memory)
        ),
    }


GPU: dict[str, Query] = {
    "index": nvml.nvmlDeviceGetIndex,
    "count": lambda gpu: nvml.nvmlDeviceGetCount(),
    "driver_version": lambda gpu: nvml.nvmlSystemGetDriverVersion(),
    "uuid": nvml.nvmlDeviceGetUUID,
    "name": nvml.nvmlDeviceGetName,
    "pci.bus_id": lambda gpu: nvml.nvmlDeviceGetPciInfo(gpu).busId,
    "pstate": lambda gpu: f"P{nvml.nvmlDeviceGetPerformanceState(gpu)}",
    "compute_mode": lambda gpu: _MODES[nvml.nvmlDeviceGetComputeMode(gpu)],
    # Rounded up: 615.06 MiB were 616 on an H200 with 580.159.04.
    "memory.total": lambda gpu: -(-_memory(gpu).total // MIB),
    "memory.used": lambda gpu: -(-_memory(gpu).used // MIB),
    "memory.free": lambda gpu: -(-_memory(gpu).free // MIB),
    "memory.reserved": lambda gpu: -(-_memory(gpu).reserved // MIB),
    "utilization.gpu": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "utilization.memory": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory,
    "utilization.encoder": lambda gpu: nvml.nvmlDeviceGetEncoderUtilization(gpu)[0],
    "utilization.decoder": lambda gpu: nvml.nvmlDeviceGetDecoderUtilization(gpu)[0],
    "utilization.jpeg": lambda gpu: nvml.nvmlDeviceGetJpgUtilization(gpu)[0],
    "utilization.ofa": lambda gpu: nvml.nvmlDeviceGetOfaUtilization(gpu)[0],
    "temperature.gpu": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, 0),
    "temperature.gpu.tlimit": nvml.nvmlDeviceGetMarginTemperature,
    "temperature.memory": lambda gpu: field_value(gpu, nvml.NVML_FI_DEV_MEMORY_TEMP),
    "power.draw": lambda gpu: _watts(nvml.nvmlDeviceGetPowerUsage(gpu)),
    "power.draw.average": lambda gpu: _watts(field_value(gpu, nvml.NVML_FI_DEV_POWER_AVERAGE)),
    "power.draw.instant": lambda gpu: _watts(field_value(gpu, nvml.NVML_FI_DEV_POWER_INSTANT)),
    "power.limit": lambda gpu: _watts(nvml.nvmlDeviceGetPowerManagementLimit(gpu)),
    "enforced.power.limit": lambda gpu: _watts(nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)),
    "power.default_limit": lambda gpu: _watts(nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu)),
    "power.min_limit": lambda gpu: _watts(
        nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)[0]
    ),
    "power.max_limit": lambda gpu: _watts(
        nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)[1]
    ),
    "clocks.gr": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_GRAPHICS),
    "clocks.video": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_VIDEO),
    "clocks.max.gr": lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_GRAPHICS),
    "clocks.max.mem": lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "clocks.sm": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clocks.max.sm": lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clocks.mem": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "fan.speed": nvml.nvmlDeviceGetFanSpeed,
    **{
        f"ecc.errors.{corrected}.{counted}.{place}": query
        for kind, corrected in enumerate(("corrected", "uncorrected"))
        for counter, counted in enumerate(("volatile", "aggregate"))
        for place, query in _ecc(kind, counter).items()
    },
    "ecc.mode.current": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetEccMode(gpu)[0]],
    "ecc.mode.pending": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetEccMode(gpu)[1]],
    "accounting.mode": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetAccountingMode(gpu)],
    "serial": nvml.nvmlDeviceGetSerial,
    "vbios_version": nvml.nvmlDeviceGetVbiosVersion,
    "compute_cap": lambda gpu: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(gpu)),
    "pcie.link.gen.current": nvml.nvmlDeviceGetCurrPcieLinkGeneration,
    "pcie.link.gen.max": nvml.nvmlDeviceGetMaxPcieLinkGeneration,
    "pcie.link.width.current": nvml.nvmlDeviceGetCurrPcieLinkWidth,
    "pcie.link.width.max": nvml.nvmlDeviceGetMaxPcieLinkWidth,
    "persistence_mode": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetPersistenceMode(gpu)],
    "display_active": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetDisplayActive(gpu)],
    "mig.mode.current": lambda gpu: _OFF_ON[nvml.nvmlDeviceGetMigMode(gpu)[0]],
}


def install(folder: Path, without: str = "", lies: Mapping[str, str] | None = None) -> None:
    """Make an executable `nvidia-smi` in a folder; it does not know the field `without`, and says
    `lies` of fields instead of what the driver does."""
    program = folder / "nvidia-smi"
    root = Path(__file__).parents[2]
    program.write_text(
        f"#!{sys.executable} -B\nimport sys\nsys.path.append({str(root)!r})\n"
        "from tests.driver.nvidia_smi import main\n"
        f"sys.exit(main(sys.argv[1:], {without!r}, {dict(lies or {})!r}))\n"
    )
    program.chmod(0o755)


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:.2f}"


def _memory(gpu: Any) -> Any:
    return nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)


def _cell(query: Query, gpu: Any) -> str:
    try:
        return str(query(gpu))
    except nvml.NVMLError:
        return "[N/A]"


def _gpus() -> Iterator[Any]:
    return map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))


def _app_rows() -> Iterator[str]:
    for gpu in _gpus():
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
            held = process.usedGpuMemory
            used = "[N/A]" if held is None else held // MIB
            yield f"{nvml.nvmlDeviceGetUUID(gpu)}, {process.pid}, {used}"


def main(words: list[str], without: str = "", lies: Mapping[str, str] | None = None) -> int:
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
    queries = GPU | {field: (lambda gpu, lie=lie: lie) for field, lie in (lies or {}).items()}
    if words == ["-L"]:
        print(*(_gpu_line(gpu) for gpu in _gpus()), sep="\n")
    elif "-x" in words:
        print(document(list(_gpus()), lambda field, gpu: _cell(queries[field], gpu)))
    elif not words:
        version = nvml.nvmlSystemGetCudaDriverVersion()
        print(f"| NVIDIA-SMI 580 | CUDA Version: {version // 1000}.{version % 1000 // 10}     |")
    else:
        pause = int(words[words.index("-lms") + 1]) / 1000 if "-lms" in words else None
        _print_rows({field: queries[field] for field in fields}, pause)
    return 0


def _gpu_line(gpu: Any) -> str:
    said = (_cell(GPU[field], gpu) for field in ("index", "name", "uuid"))
    return "GPU {}: {} (UUID: {})".format(*said)


def _print_rows(queries: Mapping[str, Query], pause: float | None) -> None:
    """Print a row for each GPU, or without queries each program, again after so many seconds."""
    while True:
        rows = (", ".join(_cell(query, gpu) for query in queries.values()) for gpu in _gpus())
        for row in rows if queries else _app_rows():
            print(row, flush=True)
        if pause is None:
            return
        time.sleep(pause)
