"""The simulated driver through the unmodified pynvml: values, eras, processes.

Errors, delays and hangs are in driver/test_faults.py.
"""

import ctypes
import os
import signal
from pathlib import Path

import pytest

from tests.driver import Machine, build
from tests.driver.client import Client, ask

pytestmark = pytest.mark.system

MIB = 2**20
NOT_AVAILABLE = 2**64 - 1
CLOCKS = ("graphics", "sm", "memory", "video")

# Values


def test_every_value_is_the_scenarios(tmp_path: Path) -> None:
    with Machine({"base": "h200x8", "frozen_at": 4}, tmp_path) as machine:
        told = ask(
            machine,
            """
            say([{
                "index": nvmlDeviceGetIndex(h),
                "minor": nvmlDeviceGetMinorNumber(h),
                "name": nvmlDeviceGetName(h),
                "uuid": nvmlDeviceGetUUID(h),
                "serial": nvmlDeviceGetSerial(h),
                "vbios": nvmlDeviceGetVbiosVersion(h),
                "bus_id": nvmlDeviceGetPciInfo(h).busId,
                "device_id": nvmlDeviceGetPciInfo(h).pciDeviceId,
                "enforced": nvmlDeviceGetEnforcedPowerLimit(h),
                "limits": nvmlDeviceGetPowerManagementLimitConstraints(h),
                "clocks": [nvmlDeviceGetClockInfo(h, kind) for kind in range(4)],
                "capability": nvmlDeviceGetCudaComputeCapability(h),
                "cores": nvmlDeviceGetNumGpuCores(h),
                "pstate": nvmlDeviceGetPerformanceState(h),
                "ecc": nvmlDeviceGetEccMode(h) + [nvmlDeviceGetTotalEccErrors(h, 1, 0)],
                "mig": nvmlDeviceGetMigMode(h),
                "pcie": [nvmlDeviceGetCurrPcieLinkGeneration(h), nvmlDeviceGetCurrPcieLinkWidth(h)],
                "encoder": nvmlDeviceGetEncoderUtilization(h),
            } for h in gpus()])
            """,
        )
        for i, gpu in enumerate(told):
            wanted = machine.gpu(i)
            assert gpu == {
                "index": i,
                "minor": i,
                "name": wanted["name"],
                "uuid": wanted["uuid"],
                "serial": wanted["serial"],
                "vbios": wanted["vbios"],
                "bus_id": wanted["pci"]["bus_id"],
                "device_id": wanted["pci"]["device_id"],
                "enforced": wanted["power"]["enforced"],
                "limits": [wanted["power"]["min"], wanted["power"]["max"]],
                "clocks": [
                    wanted["clocks"][kind] for kind in ("graphics", "sm", "memory", "video")
                ],
                "capability": wanted["compute_capability"],
                "cores": wanted["cores"],
                "pstate": 0,
                "ecc": [1, 1, 0],
                "mig": [0, 0],
                "pcie": [5, 16],
                "encoder": [0, 167000],
            }


def test_versions_and_finding_a_gpu(tmp_path: Path) -> None:
    with Machine("h200x8", tmp_path) as machine:
        uuid, bus_id = machine.gpu(5)["uuid"], machine.gpu(6)["pci"]["bus_id"]
        assert ask(
            machine,
            f"""
            say([
                nvmlSystemGetDriverVersion(), nvmlSystemGetNVMLVersion(),
                nvmlSystemGetCudaDriverVersion_v2(), nvmlDeviceGetCount(),
                nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID({uuid!r})),
                nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId({bus_id!r}.encode())),
                answer(nvmlDeviceGetHandleByUUID, "GPU-0"),
                answer(nvmlDeviceGetHandleByIndex, 8),
                nvmlSystemGetProcessName({machine.pids["train"]}),
            ])
            """,
        ) == [
            "580.95.05",
            "13.580.95.05",
            13000,
            8,
            5,
            6,
            "NVMLError_NotFound",
            "NVMLError_InvalidArgument",
            "python",
        ]


def test_memory_v1_counts_reserved_as_used_and_v2_apart(tmp_path: Path) -> None:
    memory = {"total": 1000 * MIB, "used": 600 * MIB, "reserved": 14 * MIB}
    with Machine({"gpu": {"memory": memory}}, tmp_path) as machine:
        v1, v2, wrong = ask(
            machine,
            """
            h = nvmlDeviceGetHandleByIndex(0)
            v1, v2 = nvmlDeviceGetMemoryInfo(h), nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2)
            say([
                [v1.total, v1.used, v1.free],
                [v2.total, v2.used, v2.reserved, v2.free],
                answer(nvmlDeviceGetMemoryInfo, h, 0x03000028),
            ])
            """,
        )
    assert v1 == [1000 * MIB, 614 * MIB, 386 * MIB]
    assert v2 == [1000 * MIB, 600 * MIB, 14 * MIB, 386 * MIB]
    assert wrong == "NVMLError_ArgumentVersionMismatch"


def test_absent_values_are_not_supported(tmp_path: Path) -> None:
    with Machine("nothing-supported", tmp_path) as machine:
        told = ask(
            machine,
            """
            h = nvmlDeviceGetHandleByIndex(1)
            fields = nvmlDeviceGetFieldValues(h, [82, 91])
            say(sorted({answer(f, h) for f in (
                nvmlDeviceGetSerial, nvmlDeviceGetMemoryInfo, nvmlDeviceGetUtilizationRates,
                nvmlDeviceGetPowerUsage, nvmlDeviceGetFanSpeed, nvmlDeviceGetEccMode,
                nvmlDeviceGetMigMode, nvmlDeviceGetCudaComputeCapability,
                nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses,
            )} | {answer(nvmlDeviceGetProcessUtilization, h, 0),
                  answer(nvmlDeviceGetTemperature, h, 0)})
                + [field.nvmlReturn for field in fields])
            """,
        )
    assert told == ["NVMLError_NotSupported", 3, 3]


def test_values_move_with_time_and_stand_still_when_frozen(tmp_path: Path) -> None:
    moving = {"wave": [40, 80, 10, 0]}
    stepping = {"steps": [[0, 8], [5, 2], [20, 0]]}
    scenario = {"gpu": {"temperature": moving, "pstate": stepping}, "frozen_at": 0}
    both = "[nvmlDeviceGetTemperature(gpus()[0], 0), nvmlDeviceGetPerformanceState(gpus()[0])]"
    with Machine(scenario, tmp_path) as machine:
        client = Client(machine)
        told = []
        for second in (0, 2.5, 5, 20):
            machine.freeze(second)
            told.append(client.ask(both))
    assert told == [[40, 8], [60, 8], [80, 2], [40, 0]]


# Eras


_SINCE = {
    "GetComputeRunningProcesses": 390,
    "GetMigMode": 450,
    "GetComputeRunningProcesses_v2": 535,
    "GetMPSComputeRunningProcesses": 535,
    "GetMemoryInfo_v2": 535,
    "GetTemperatureV": 580,
}


@pytest.mark.parametrize("era", build.ERAS)
def test_an_old_driver_lacks_newer_symbols(era: int) -> None:
    symbols = ctypes.CDLL(str(build.library(era=era)))
    present = {name for name in _SINCE if hasattr(symbols, f"nvmlDevice{name}")}
    assert present == {name for name, since in _SINCE.items() if since <= era}


def test_pynvml_says_that_a_function_is_not_found(tmp_path: Path) -> None:
    with Machine("old-390", tmp_path) as machine:
        told = ask(
            machine,
            """
            h = nvmlDeviceGetHandleByIndex(0)
            say([answer(nvmlDeviceGetComputeRunningProcesses_v3, h),
                 answer(nvmlDeviceGetMemoryInfo, h, nvmlMemory_v2)])
            """,
        )
    assert told == ["NVMLError_FunctionNotFound"] * 2


# Processes


def test_process_lists_of_every_version(tmp_path: Path) -> None:
    listed = [
        {"pid": 11, "used": 5 * MIB},
        {"pid": 12, "used": None, "gi": 1, "ci": 2},
        {"pid": "train", "used": 7 * MIB},
    ]
    scenario = {
        "gpu": {"compute": listed, "mps": [{"pid": 14, "used": 1}]},
        "processes": {"train": {"command": ["python", "train.py"]}},
    }
    with Machine(scenario, tmp_path) as machine:
        v1, v3, sizes, mps = ask(
            machine,
            """
            class V1(ctypes.Structure):
                _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong)]
            h = nvmlDeviceGetHandleByIndex(0)
            f = ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetComputeRunningProcesses
            def call(size, array):
                count = ctypes.c_uint(size)
                return [f(h, ctypes.byref(count), array), count.value]
            array = (V1 * 8)()
            sizes = [call(0, None), call(2, array), call(8, array)]
            say([
                [[p.pid, p.used] for p in array[:3]],
                [[p.pid, p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId]
                    for p in nvmlDeviceGetComputeRunningProcesses(h)],
                sizes,
                [p.pid for p in nvmlDeviceGetMPSComputeRunningProcesses(h)],
            ])
            """,
        )
        train = machine.pids["train"]
    assert v1 == [[11, 5 * MIB], [12, NOT_AVAILABLE], [train, 7 * MIB]]
    none = 0xFFFFFFFF
    assert v3 == [[11, 5 * MIB, none, none], [12, None, 1, 2], [train, 7 * MIB, none, none]]
    assert sizes == [[7, 3], [7, 3], [0, 3]]
    assert mps == [14]


def test_processes_that_come_between_the_size_query_and_the_list(tmp_path: Path) -> None:
    listed = [{"pid": pid, "used": 1} for pid in range(1, 8)]
    pids = "answer(lambda: [p.pid for p in nvmlDeviceGetComputeRunningProcesses(gpus()[0])])"
    with Machine({"gpu": {"compute": listed, "newcomers": 2}}, tmp_path) as machine:
        client = Client(machine)
        assert client.ask(pids) == list(range(1, 8))
        # All of them new: a size of 0 is the answer of an idle GPU.
        machine.change(gpu=0, newcomers=7)
        assert client.ask(pids) == []
        # 1 seen, 7 asked room for, 9 there.
        machine.change(gpu=0, newcomers=8, compute=[{"pid": p, "used": 1} for p in range(1, 10)])
        assert client.ask(pids) == "NVMLError_InsufficientSize"


def test_utilization_samples_are_newer_than_asked(tmp_path: Path) -> None:
    listed = [
        {"pid": 1, "used": 1, "sm": 90, "mem": 40, "sample_time": 1_000},
        {"pid": 2, "used": 1, "sm": 300, "dec": 7, "sample_time": 2_000},
        {"pid": 3, "used": 1},
        {"pid": 4, "used": 1, "sm": 5},
    ]
    with Machine({"gpu": {"compute": listed[:3]}}, tmp_path) as machine:
        client = Client(machine)
        samples = (
            "answer(lambda: [[s.pid, s.timeStamp, s.smUtil, s.memUtil, s.encUtil, s.decUtil]"
            " for s in nvmlDeviceGetProcessUtilization(gpus()[0], {})])"
        )
        first, second = [1, 1000, 90, 40, 0, 0], [2, 2000, 300, 0, 0, 7]
        assert client.ask(samples.format(0)) == [first, second]
        assert client.ask(samples.format(1000)) == [second]
        assert client.ask(samples.format(2000)) == "NVMLError_NotFound"
        machine.change(gpu=0, compute=listed[3:])
        [[_, now, *_]] = client.ask(samples.format(2000))
        assert now > 1_600_000_000_000_000


def test_real_processes_show_what_the_scenario_says(tmp_path: Path) -> None:
    with Machine("hostile", tmp_path) as machine:
        for name, process in machine.scenario["processes"].items():
            words = b"".join(os.fsencode(word) + b"\0" for word in process["command"])
            assert Path(f"/proc/{machine.pids[name]}/cmdline").read_bytes() == words
        environ = Path(f"/proc/{machine.pids['environment']}/environ").read_bytes()
        assert b"CUDA_VISIBLE_DEVICES=0,\x1b[31m,[/]\0" in environ
        pids = list(machine.pids.values())
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_processes_come_and_go(tmp_path: Path) -> None:
    pids = "[p.pid for p in nvmlDeviceGetComputeRunningProcesses(gpus()[1])]"
    with Machine({"gpus": 2}, tmp_path) as machine:
        client = Client(machine)
        assert client.ask(pids) == []
        late = machine.spawn("late", ["python", "late.py"], gpu=1, used=MIB)
        assert client.ask(pids) == [late]
        machine.kill("late")
        assert client.ask(pids) == []
        assert not Path(f"/proc/{late}").exists()


def test_a_process_that_is_killed_leaves_the_gpu_with_its_memory(tmp_path: Path) -> None:
    scenario = {
        "gpu": {"memory": {"total": 100 * MIB, "used": 30 * MIB}},
        "processes": {"train": {"command": ["train"], "on": {"used": 20 * MIB}}},
    }
    with Machine(scenario, tmp_path) as machine:
        client = Client(machine)
        assert client.ask("nvmlDeviceGetMemoryInfo(gpus()[0]).used") == 30 * MIB
        os.kill(machine.pids["train"], signal.SIGKILL)
        while client.ask("len(nvmlDeviceGetComputeRunningProcesses(gpus()[0]))"):
            pass
        assert client.ask("nvmlDeviceGetMemoryInfo(gpus()[0]).used") == 10 * MIB
        assert machine.pids == {}


def test_a_stubborn_process_and_a_zombie(tmp_path: Path) -> None:
    process = {"command": ["train"], "manner": "stubborn", "on": {"used": MIB}}
    with Machine({"processes": {"train": process}}, tmp_path, reap=False) as machine:
        pid = machine.pids["train"]
        status = Path(f"/proc/{pid}/status")
        ignored = int(status.read_text().partition("SigIgn:")[2].split()[0], 16)
        assert ignored >> (signal.SIGTERM - 1) & 1
        os.kill(pid, signal.SIGKILL)
        while "State:\tZ" not in status.read_text():
            pass
        listed = "say([p.pid for p in nvmlDeviceGetComputeRunningProcesses(gpus()[0])])"
        assert ask(machine, listed) == [pid]
