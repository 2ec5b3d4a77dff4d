"""`nvidia-smi -q -x` on a simulated machine: the tags of driver 580 (nvsmi_device_v13.dtd) that the
simulated NVML has an answer for, in the words of nvidia-smi."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import pynvml as nvml

MIB = 1 << 20
_REASONS = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8,
    "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80, "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20, "display_clocks_setting": 0x100,
}  # fmt: skip
_RECOVERY = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")
_FABRIC = ("N/A", "Not Started", "In Progress", "Completed")
_BRANDS = {14: "NVIDIA"}
_ARCHITECTURES = {2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere",
                  8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell"}  # fmt: skip
_VIRTUALIZATION = ("None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA")

# By path: a field of --query-gpu with its unit, or a query.
_FIELDS: dict[str, tuple[str, str]] = {
    "product_name": ("name", ""),
    "display_active": ("display_active", ""),
    "persistence_mode": ("persistence_mode", ""),
    "mig_mode/current_mig": ("mig.mode.current", ""),
    "accounting_mode": ("accounting.mode", ""),
    "serial": ("serial", ""),
    "uuid": ("uuid", ""),
    "vbios_version": ("vbios_version", ""),
    "pci/pci_bus_id": ("pci.bus_id", ""),
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": ("pcie.link.gen.max", ""),
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": ("pcie.link.gen.current", ""),
    "pci/pci_gpu_link_info/link_widths/max_link_width": ("pcie.link.width.max", "x"),
    "pci/pci_gpu_link_info/link_widths/current_link_width": ("pcie.link.width.current", "x"),
    "fan_speed": ("fan.speed", " %"),
    "performance_state": ("pstate", ""),
    "fb_memory_usage/total": ("memory.total", " MiB"),
    "fb_memory_usage/reserved": ("memory.reserved", " MiB"),
    "fb_memory_usage/used": ("memory.used", " MiB"),
    "fb_memory_usage/free": ("memory.free", " MiB"),
    "compute_mode": ("compute_mode", ""),
    "utilization/gpu_util": ("utilization.gpu", " %"),
    "utilization/memory_util": ("utilization.memory", " %"),
    "utilization/encoder_util": ("utilization.encoder", " %"),
    "utilization/decoder_util": ("utilization.decoder", " %"),
    "utilization/jpeg_util": ("utilization.jpeg", " %"),
    "utilization/ofa_util": ("utilization.ofa", " %"),
    "ecc_mode/current_ecc": ("ecc.mode.current", ""),
    "ecc_mode/pending_ecc": ("ecc.mode.pending", ""),
    "ecc_errors/volatile/dram_correctable": ("ecc.errors.corrected.volatile.dram", ""),
    "ecc_errors/volatile/sram_correctable": ("ecc.errors.corrected.volatile.sram", ""),
    "ecc_errors/volatile/dram_uncorrectable": ("ecc.errors.uncorrected.volatile.dram", ""),
    "ecc_errors/volatile/sram_uncorrectable": ("ecc.errors.uncorrected.volatile.sram", ""),
    "temperature/gpu_temp": ("temperature.gpu", " C"),
    "temperature/gpu_temp_tlimit": ("temperature.gpu.tlimit", " C"),
    "temperature/memory_temp": ("temperature.memory", " C"),
    "gpu_power_readings/average_power_draw": ("power.draw.average", " W"),
    "gpu_power_readings/instant_power_draw": ("power.draw.instant", " W"),
    "gpu_power_readings/current_power_limit": ("enforced.power.limit", " W"),
    "gpu_power_readings/requested_power_limit": ("power.limit", " W"),
    "gpu_power_readings/default_power_limit": ("power.default_limit", " W"),
    "gpu_power_readings/min_power_limit": ("power.min_limit", " W"),
    "gpu_power_readings/max_power_limit": ("power.max_limit", " W"),
    "clocks/graphics_clock": ("clocks.gr", " MHz"),
    "clocks/sm_clock": ("clocks.sm", " MHz"),
    "clocks/mem_clock": ("clocks.mem", " MHz"),
    "clocks/video_clock": ("clocks.video", " MHz"),
    "max_clocks/graphics_clock": ("clocks.max.gr", " MHz"),
    "max_clocks/sm_clock": ("clocks.max.sm", " MHz"),
    "max_clocks/mem_clock": ("clocks.max.mem", " MHz"),
}

Query = Callable[[Any], object]


def _yes(flag: object) -> str:
    return "Yes" if flag else "No"


def _threshold(kind: int) -> Query:
    return lambda gpu: f"{nvml.nvmlDeviceGetTemperatureThreshold(gpu, kind)} C"


_QUERIES: dict[str, Query] = {
    "product_brand": lambda gpu: _BRANDS[nvml.nvmlDeviceGetBrand(gpu)],
    "product_architecture": lambda gpu: _ARCHITECTURES[nvml.nvmlDeviceGetArchitecture(gpu)],
    "minor_number": nvml.nvmlDeviceGetMinorNumber,
    "gpu_virtualization_mode/virtualization_mode": lambda gpu: _VIRTUALIZATION[
        nvml.nvmlDeviceGetVirtualizationMode(gpu)
    ],
    "gpu_recovery_action": lambda gpu: _RECOVERY[
        field_value(gpu, nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    ],
    "pci/pci_device_id": lambda gpu: f"{nvml.nvmlDeviceGetPciInfo(gpu).pciDeviceId:08X}",
    "pci/replay_counter": nvml.nvmlDeviceGetPcieReplayCounter,
    "bar1_memory_usage/total": lambda gpu: (
        f"{nvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Total // MIB} MiB"
    ),
    "bar1_memory_usage/used": lambda gpu: (
        f"{nvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Used // MIB} MiB"
    ),
    "ecc_errors/channel_repair_pending": lambda gpu: _yes(nvml.nvmlDeviceGetRepairStatus(gpu)[0]),
    "temperature/gpu_temp_max_threshold": _threshold(0),
    "temperature/gpu_temp_slow_threshold": _threshold(1),
    "remapped_rows/remapped_row_corr": lambda gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[0],
    "remapped_rows/remapped_row_unc": lambda gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[1],
    "remapped_rows/remapped_row_pending": lambda gpu: _yes(nvml.nvmlDeviceGetRemappedRows(gpu)[2]),
    "remapped_rows/remapped_row_failure": lambda gpu: _yes(nvml.nvmlDeviceGetRemappedRows(gpu)[3]),
    "retired_pages/multiple_single_bit_retirement/retired_count": lambda gpu: len(
        nvml.nvmlDeviceGetRetiredPages(gpu, 0)
    ),
    "retired_pages/double_bit_retirement/retired_count": lambda gpu: len(
        nvml.nvmlDeviceGetRetiredPages(gpu, 1)
    ),
    "max_clocks/video_clock": lambda gpu: f"{nvml.nvmlDeviceGetMaxClockInfo(gpu, 3)} MHz",
    "fabric/state": lambda gpu: _FABRIC[_fabric(gpu).state],
}


def field_value(gpu: Any, number: int) -> int:
    """Return a value of nvmlDeviceGetFieldValues. NVMLError."""
    value = nvml.nvmlDeviceGetFieldValues(gpu, [number])[0]
    if value.nvmlReturn:
        raise nvml.NVMLError(value.nvmlReturn)
    return int(value.value.ullVal)


def _fabric(gpu: Any) -> Any:
    info = nvml.c_nvmlGpuFabricInfoV_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(gpu, nvml.byref(info))
    return info


def document(gpus: list[Any], cell: Callable[[str, Any], str]) -> str:
    """Return the log of all GPUs; cell: what --query-gpu says of a field of a GPU."""
    log = ElementTree.Element("nvidia_smi_log")
    _put(log, "driver_version", nvml.nvmlSystemGetDriverVersion())
    version = nvml.nvmlSystemGetCudaDriverVersion()
    _put(log, "cuda_version", f"{version // 1000}.{version % 1000 // 10}")
    _put(log, "attached_gpus", str(len(gpus)))
    for gpu in gpus:
        of_gpu = ElementTree.SubElement(log, "gpu", id=cell("pci.bus_id", gpu))
        for path, (field, unit) in _FIELDS.items():
            said = cell(field, gpu)
            _put(of_gpu, path, "N/A" if said == "[N/A]" else said + unit)
        for path, query in _QUERIES.items():
            _put(of_gpu, path, _answer(query, gpu))
        for reason, bit in _REASONS.items():
            path = f"clocks_event_reasons/clocks_event_reason_{reason}"
            _put(of_gpu, path, _answer(_is_active(bit), gpu))
        _put_mig_devices(of_gpu, gpu)
        _put_processes(of_gpu, gpu)
    ElementTree.indent(log, "\t")
    return '<?xml version="1.0" ?>\n' + ElementTree.tostring(log, "unicode")


def _answer(query: Query, gpu: Any) -> str:
    try:
        return str(query(gpu))
    except (nvml.NVMLError, LookupError):
        return "N/A"


def _is_active(bit: int) -> Query:
    words = "Not Active", "Active"
    return lambda gpu: words[bool(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) & bit)]


def _put(above: ElementTree.Element, path: str, text: str) -> None:
    for tag in path.split("/"):
        parent, found = above, above.find(tag)
        above = ElementTree.SubElement(parent, tag) if found is None else found
    above.text = text


def _put_mig_devices(of_gpu: ElementTree.Element, gpu: Any) -> None:
    devices = ElementTree.SubElement(of_gpu, "mig_devices")
    for device in _mig_devices(gpu):
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
        element = ElementTree.SubElement(devices, "mig_device")
        _put(element, "gpu_instance_id", str(nvml.nvmlDeviceGetGpuInstanceId(device)))
        _put(element, "compute_instance_id", str(nvml.nvmlDeviceGetComputeInstanceId(device)))
        _put(element, "fb_memory_usage/total", f"{memory.total // MIB} MiB")
        _put(element, "fb_memory_usage/used", f"{memory.used // MIB} MiB")


def _mig_devices(gpu: Any) -> Iterator[Any]:
    try:
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except nvml.NVMLError:
        return
    for slot in range(count):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
        except nvml.NVMLError:
            continue


def _put_processes(of_gpu: ElementTree.Element, gpu: Any) -> None:
    lists = {
        "C": nvml.nvmlDeviceGetComputeRunningProcesses,
        "G": nvml.nvmlDeviceGetGraphicsRunningProcesses,
    }
    kinds: dict[tuple[int, int | None], list[str]] = {}
    for kind, running in lists.items():
        for process in running(gpu):
            kinds.setdefault((process.pid, process.usedGpuMemory), []).append(kind)
    processes = ElementTree.SubElement(of_gpu, "processes")
    for (pid, held), listed in kinds.items():
        element = ElementTree.SubElement(processes, "process_info")
        _put(element, "pid", str(pid))
        _put(element, "type", "+".join(listed))
        _put(element, "used_memory", "N/A" if held is None else f"{held // MIB} MiB")
