"""Which driver calls the agent makes, and what becomes of those that are not answered."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from tests.agent.driving import Agent, Json, plain
from tests.conftest import NESTED, MachineFactory, rest_long
from tests.patience import until

pytestmark = pytest.mark.system

MIG_DEVICE: Json = {"uuid": "MIG-0", "gi": 2, "ci": 0, "profile": "3g.71gb"}
RICH: Json = {
    "gpu": {
        "name": "NVIDIA H200",
        "uuid": "GPU-{i}",
        "pci": {"bus_id": "00000000:{i:02X}:00.0"},
        "memory": {"total": 1000, "used": 600, "reserved": 14},
        "utilization": {"gpu": 70, "memory": 20},
        "temperature": 50,
        "power": {"usage": 300000, "limit": 650000, "enforced": 700000},
        "clocks": {"sm": 1980, "memory": 3201},
        "max_clocks": {"sm": 1990},
        "fan": 30,
        "pstate": 2,
        "persistence_mode": 1,
        "accounting_mode": 0,
        "display_active": 0,
        "compute_mode": 0,
        "ecc": {"uncorrected": 3},
        "mig": {"mode": 1, "pending": 1, "max": 2, "devices": [MIG_DEVICE]},
        "cores": 16896,
        "sm": 132,
        "compute_capability": [9, 0],
        "compute": [{"pid": 4194305, "used": 100, "sm": 5}],
    },
    "gpus": 2,
}
"""GPUs that answer every call gputop makes. No process has that number."""
UNDIVIDED: Json = {**RICH, "gpu": {**RICH["gpu"], "mig": {"mode": 0, "pending": 0, "max": 2}}}

STATIC = {
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetNumGpuCores",
}
SELDOM = {
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetAccountingMode",
    "nvmlDeviceGetDisplayActive",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetMigMode",
}

MIG_CALLS = {
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
}

OPTIONAL: dict[str, set[str]] = {
    "nvmlDeviceGetUUID": {"uuid"},
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetPciInfo*": {"pci_bus_id"},
    "nvmlDeviceGetMinorNumber": {"minor"},
    "nvmlDeviceGetMaxClockInfo": {"sm_clock_max"},
    "nvmlDeviceGetMemoryInfo*": {
        "memory_total",
        "memory_used",
        "memory_free",
        "memory_reserved",
        "memory_unaccounted",
    },
    "nvmlDeviceGetUtilizationRates": {"utilization", "memory_utilization", "idle_for"},
    "nvmlDeviceGetTemperature*": {"temperature"},
    "nvmlDeviceGetPowerUsage": {"power"},
    "nvmlDeviceGet[EP]*Limit": {"power_limit"},
    "nvmlDeviceGetPowerManagementLimit": set(),
    "nvmlDeviceGetClockInfo": {"sm_clock", "memory_clock"},
    "nvmlDeviceGetPerformanceState": {"pstate"},
    "nvmlDeviceGetFanSpeed": {"fan"},
    "nvmlDeviceGetPersistenceMode": {"persistence_mode"},
    "nvmlDeviceGetAccountingMode": {"accounting_mode"},
    "nvmlDeviceGetDisplayActive": {"display_active"},
    "nvmlDeviceGetComputeMode": {"compute_mode"},
    "nvmlDeviceGetTotalEccErrors": {"ecc_uncorrected"},
    "nvmlDeviceGetMigMode": {"mig_mode", "mig"},
    "nvmlDeviceGetMaxMigDeviceCount": {"mig"},
    "nvmlDeviceGetMigDeviceHandleByIndex": {"mig"},
    "nvmlDeviceGetGpuInstanceId": {"mig"},
    "nvmlDeviceGetComputeInstanceId": {"mig"},
    "nvmlDeviceGetNumGpuCores": {"cores"},
    "nvmlDeviceGetAttributes_v2": set(),
    "nvmlDeviceGetCudaComputeCapability": set(),
    "nvmlDeviceGetProcessUtilization": set(),
    "nvmlDeviceGetComputeRunningProcesses*": {"memory_unaccounted"},
    "nvmlDeviceGetGraphicsRunningProcesses*": set(),
    "nvmlDeviceGetMPSComputeRunningProcesses*": set(),
}
"""Function pattern -> the fields that become null when it has no answer."""


def told(gpu: Json) -> Json:
    """What one look tells, of the driver alone: who has a node open is found on the machine, where
    other tests are, and that all processes were looked through may come later."""
    found = ("holders", "holders_known")
    return {field: value for field, value in plain(gpu).items() if field not in found}


def without(function: str, index: int, whole: Json) -> Json:
    """GPU `index` where that function has no answer, otherwise like the GPU that is whole."""
    bus_id = f"00000000:{index:02X}:00.0"
    own = {"index": index, "uuid": f"GPU-{index}", "minor": index, "pci_bus_id": bus_id}
    listed = not function.startswith("nvmlDeviceGetComputeRunning")
    listing = "none" if not listed else "ours" if NESTED else "all"
    fields = {**whole, **own, "listed": listing, **dict.fromkeys(OPTIONAL[function])}
    if untold := {"nvmlDeviceGetUUID": "uuid", "nvmlDeviceGetName": "profile"}.get(function):
        fields["mig"] = [{**device, untold: None} for device in whole["mig"]]
    return fields


@pytest.mark.parametrize("function", OPTIONAL)
def test_a_call_that_is_not_supported_costs_only_its_own_fields(
    function: str, machine: MachineFactory
) -> None:
    here = machine(RICH)
    here.fail(function, "NOT_SUPPORTED", gpu=1)
    with Agent(here) as agent:
        for frame in (agent.line(), agent.refresh()):
            whole, broken = map(told, frame["gpus"])
            unset = {field for field in whole if whole[field] is None}
            # No card of its own has a node, and Slurm is not here.
            assert unset == {"stale_for", "error", "numa_node", "slurm_job"}
            assert broken == without(function, 1, whole)


@rest_long("error", "UNKNOWN", "INVALID_ARGUMENT", "NO_PERMISSION", "TIMEOUT")
def test_a_call_that_fails_costs_only_its_own_fields(error: str, machine: MachineFactory) -> None:
    """As many GPUs as calls: on each another one fails."""
    here = machine({**RICH, "gpus": len(OPTIONAL) + 1})
    for index, function in enumerate(OPTIONAL, start=1):
        here.fail(function, error, gpu=index)
    with Agent(here) as agent:
        for frame in (agent.line(), agent.refresh()):
            whole, *broken = map(told, frame["gpus"])
            for index, function in enumerate(OPTIONAL, start=1):
                assert broken[index - 1] == without(function, index, whole)


def test_what_does_not_change_is_asked_once(machine: MachineFactory) -> None:
    here = machine(UNDIVIDED, log=True)
    with Agent(here) as agent:
        agent.line()
        for _ in range(5):
            agent.refresh()
    calls = Counter(here.calls())
    for gpu in (0, 1):
        assert calls.pop(("nvmlDeviceGetMaxClockInfo", gpu)) == 4  # of SM, graphics, memory, video
        assert {calls[function, gpu] for function in STATIC | SELDOM} == {1}
        assert calls["nvmlDeviceGetMemoryInfo_v2", gpu] == 6
        assert calls["nvmlDeviceGetUtilizationRates", gpu] == 6
        assert calls["nvmlDeviceGetMemoryInfo", gpu] == 0
        assert not any(calls[function, gpu] for function in MIG_CALLS)
    assert calls["nvmlInitWithFlags", None] == 1
    assert calls["nvmlSystemGetDriverVersion", None] == 1


def test_what_an_administrator_changes_is_asked_now_and_then(machine: MachineFactory) -> None:
    here = machine(RICH)
    with Agent(here) as agent:
        assert agent.line()["gpus"][0]["power_limit"] == 700.0
        here.change(gpu=0, power={"enforced": 300000}, persistence_mode=0, compute_mode=2)
        for _ in range(12):
            gpu = agent.refresh()["gpus"][0]
    assert gpu["power_limit"] == 300.0
    assert gpu["persistence_mode"] is False
    assert gpu["compute_mode"] == "prohibited"


def test_not_supported_is_remembered(machine: MachineFactory) -> None:
    """A slow thread may make its first calls after some frames; then nobody makes any."""
    here = machine("nothing-supported", log=True)
    here.slow("nvmlDeviceGetP2PStatus", 5)

    def is_quiet() -> bool:
        here.forget_calls()
        for _ in range(3):  # some calls are made in every second cycle
            agent.refresh()
        return here.calls() == []

    with Agent(here) as agent:
        agent.line()
        with suppress(TimeoutError):
            until(is_quiet, within=20)
    assert here.calls() == []


def test_not_found_is_remembered(machine: MachineFactory) -> None:
    """Symbols that an old driver lacks are no calls at all; their older kin are made."""
    here = machine("old-390", log=True)
    with Agent(here) as agent:
        agent.line()
        agent.refresh()
    called = Counter(function for function, _ in here.calls())
    assert called["nvmlDeviceGetMemoryInfo"] == 4
    assert called["nvmlDeviceGetTemperature"] == 4
    assert called["nvmlDeviceGetComputeRunningProcesses"] == 4


def test_other_errors_are_asked_again(machine: MachineFactory) -> None:
    """NO_PERMISSION, a timeout, an unknown error may pass."""
    here = machine(RICH)
    here.fail("nvmlDeviceGetTemperature*", "TIMEOUT", gpu=0)
    with Agent(here) as agent:
        assert agent.line()["gpus"][0]["temperature"] is None
        here.heal()
        assert agent.refresh()["gpus"][0]["temperature"] is not None


@pytest.mark.parametrize(
    ("function", "field", "value"),
    [
        ("nvmlDeviceGetTemperatureV", "temperature", 50.0),
        ("nvmlDeviceGetEnforcedPowerLimit", "power_limit", 650.0),
        ("nvmlDeviceGetPciInfo_v3", "pci_bus_id", "00000000:00:00.0"),
    ],
)
def test_the_older_call_is_made_where_the_newer_has_no_answer(
    function: str, field: str, value: Any, machine: MachineFactory
) -> None:
    here = machine(RICH)
    here.fail(function, "NOT_SUPPORTED")
    with Agent(here) as agent:
        assert agent.line()["gpus"][0][field] == value


def test_memory_v1_counts_reserved_as_used(machine: MachineFactory) -> None:
    here = machine(RICH)
    here.fail("nvmlDeviceGetMemoryInfo_v2", "FUNCTION_NOT_FOUND", gpu=1)
    with Agent(here) as agent:
        new, old = agent.line()["gpus"]
    memory = here.gpu(0)["memory"]
    assert (new["memory_used"], new["memory_reserved"]) == (memory["used"], memory["reserved"])
    memory = here.gpu(1)["memory"]
    assert old["memory_used"] == memory["used"] + memory["reserved"]
    assert old["memory_reserved"] is None
    assert old["memory_total"] == old["memory_used"] + old["memory_free"]


def test_gpus_are_shown_where_nvml_is_told_to_list_those_of_mps(machine: MachineFactory) -> None:
    """NVML_MPS_DEVICE_ENUMERATION=1 (R615) is for programs, and hides processes and health."""
    here = machine({**RICH, "gpus": 1})
    pid = here.spawn("job", ["job"], used=2**30)
    here.env["NVML_MPS_DEVICE_ENUMERATION"] = "1"
    with Agent(here) as agent:
        frame = agent.line()
    [gpu] = frame["gpus"]
    assert (gpu["listed"], gpu["utilization"]) == ("ours" if NESTED else "all", 0.7)
    assert pid in [process["pid"] for process in frame["processes"]]


def test_a_wrong_handle_is_asked_for_again(machine: MachineFactory) -> None:
    """INVALID_ARGUMENT of every call is about the handle."""
    here = machine(RICH)
    with Agent(here) as agent:
        agent.line()
        here.fail("*", "INVALID_ARGUMENT", gpu=0)
        wrong, good = agent.refresh()["gpus"]
        assert wrong["error"]
        assert wrong["temperature"] is None
        assert good["error"] is None
        assert good["temperature"] is not None
        here.heal()
        back = agent.refresh()["gpus"][0]
    assert back["error"] is None
    assert back["temperature"] is not None
