"""MIG devices of the simulated driver through the unmodified pynvml."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.driver import Machine, build
from tests.driver.client import Client, ask

pytestmark = pytest.mark.system


def test_a_mig_device_has_a_handle_of_its_own(tmp_path: Path) -> None:
    with Machine({"base": "mig", "frozen_at": 1}, tmp_path) as machine:
        devices = machine.gpu(0)["mig"]["devices"]
        vllm = machine.pids["vllm"]
        told, uuid, slots = ask(
            machine,
            f"""
            parent = nvmlDeviceGetHandleByIndex(0)
            def of(h):
                attributes, gpu = nvmlDeviceGetAttributes(h), \
                    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(h)
                return [
                    nvmlDeviceGetName(h), nvmlDeviceGetUUID(h),
                    nvmlDeviceGetGpuInstanceId(h), nvmlDeviceGetComputeInstanceId(h),
                    nvmlDeviceGetIndex(h), nvmlDeviceIsMigDeviceHandle(h).value,
                    nvmlDeviceGetMemoryInfo(h).total, attributes.multiprocessorCount,
                    attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount,
                    [p.pid for p in nvmlDeviceGetComputeRunningProcesses(h)],
                    nvmlDeviceGetUUID(gpu), answer(nvmlDeviceGetUtilizationRates, h),
                ]
            say([
                of(nvmlDeviceGetMigDeviceHandleByIndex(parent, 2)),
                of(nvmlDeviceGetHandleByUUID({devices[3]["uuid"]!r}))[1],
                [nvmlDeviceGetMaxMigDeviceCount(parent),
                 answer(nvmlDeviceGetMigDeviceHandleByIndex, parent, 4),
                 answer(nvmlDeviceGetMigDeviceHandleByIndex, parent, 7),
                 answer(nvmlDeviceGetGpuInstanceId, parent),
                 answer(nvmlDeviceGetAttributes, parent),
                 answer(nvmlDeviceGetNumGpuCores, parent)],
            ])
            """,
        )
        assert told == [
            "NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb",
            devices[2]["uuid"],
            *(3, 1, 2, 1, 20937965568, 16, 2, 1),
            [vllm],
            machine.gpu(0)["uuid"],
            "NVMLError_NotSupported",
        ]
        assert uuid == devices[3]["uuid"]
        assert slots == [
            *(7, "NVMLError_NotFound", "NVMLError_InvalidArgument"),
            *["NVMLError_NotSupported"] * 3,
        ]


def test_a_handle_of_a_device_that_is_gone_is_none(tmp_path: Path) -> None:
    with Machine({"base": "mig", "processes": None}, tmp_path) as machine:
        client = Client(machine)
        handle = "globals().setdefault('h', nvmlDeviceGetMigDeviceHandleByIndex(gpus()[0], 0))"
        assert client.ask(f"nvmlDeviceGetGpuInstanceId({handle})") == 2
        machine.change(gpu=0, mig={"devices": []})
        asked = "answer(nvmlDeviceGetGpuInstanceId, h)"
        assert client.ask(asked) == "NVMLError_InvalidArgument"
        machine.change(gpu=0, mig={"mode": 0})
        assert client.ask("nvmlDeviceGetMaxMigDeviceCount(gpus()[0])") == 0


@pytest.mark.parametrize("era", build.ERAS)
def test_eras(era: int) -> None:
    symbols = ctypes.CDLL(str(build.library(era=era)))
    since = {"GetMigDeviceHandleByIndex": 450, "GetNumGpuCores": 535, "GetAttributes_v2": 535}
    present = {name for name in since if hasattr(symbols, f"nvmlDevice{name}")}
    assert present == {name for name in since if since[name] <= era}
