"""What needs a person: which state of a GPU is told, how badly, and that all else is quiet."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.health.findings import blocking, findings, in_alarm
from gputop.model.machine.finding import Finding
from gputop.model.machine.gpu import UNREADABLE
from gputop.model.machine.sections import Ecc, Health, Nvlink, Pcie, Throttle, Xid
from gputop.sources.demo.source import demo_frame
from tests.builders import GIB, frame, gpu

NOW = 2000.0


def told(**fields: Any) -> list[tuple[str, str]]:
    """Level and code of what is found on a GPU alone."""
    card = gpu(0, **fields)
    return [(found.level, found.code) for found in findings(frame([card], time=NOW), card)]


def only(**fields: Any) -> Finding:
    """The one thing that is found on GPU 3."""
    card = gpu(3, **fields)
    [found] = findings(frame([card], time=NOW), card)
    return found


def xids(*pairs: tuple[int, float]) -> Health:
    """Numbers, and how many seconds ago."""
    return Health(xids=tuple(Xid(number, NOW - ago) for number, ago in pairs))


@pytest.mark.parametrize(
    ("fields", "level", "code"),
    [
        ({"error": "GPU is lost"}, "error", "LOST"),
        ({"error": f"{UNREADABLE}: a reset"}, "error", "UNREAD"),
        ({"stale_for": 4.0}, "error", "HUNG"),
        ({"memory_unaccounted": 40 * GIB}, "info", "UNACCOUNTED"),
        ({"health": Health(recovery_action="gpu_reset")}, "error", "RECOVERY"),
        ({"health": Health(recovery_action="drain_p2p")}, "error", "RECOVERY"),
        ({"health": Health(recovery_action="bus_reset")}, "error", "RECOVERY"),
        ({"ecc_uncorrected": 1}, "error", "ECC"),
        ({"ecc": Ecc(remap_failure=True)}, "error", "REMAP"),
        ({"ecc": Ecc(remap_pending=True)}, "warning", "REMAP"),
        ({"ecc": Ecc(sram_threshold_exceeded=True)}, "error", "SRAM"),
        ({"ecc": Ecc(retired_pending=True)}, "error", "PAGES"),
        ({"health": Health(repair_pending=True)}, "error", "REPAIR"),
        ({"health": Health(repair_pending=True, recovery_action="none")}, "warning", "REPAIR"),
        ({"health": Health(unrepairable_memory=True)}, "error", "MEMORY"),
        ({"health": Health(fabric_state="not_started")}, "error", "FABRIC"),
        ({"health": Health(fabric_state="in_progress")}, "error", "FABRIC"),
        ({"health": Health(fabric_state="failed")}, "error", "FABRIC"),
        ({"nvlink": Nvlink(up=3, down=1)}, "warning", "NVLINK"),
        ({"throttle": Throttle(reasons=("hw_thermal_slowdown",))}, "error", "HOT"),
        ({"throttle": Throttle(reasons=("hw_power_brake_slowdown",))}, "error", "POWER BRAKE"),
        ({"throttle": Throttle(reasons=("hw_slowdown",))}, "warning", "SLOWDOWN"),
        (
            {"throttle": Throttle(reasons=("hw_slowdown",), lasting=("hw_slowdown",))},
            "error",
            "SLOWDOWN",
        ),
        ({"throttle": Throttle(reasons=("sw_thermal_slowdown",))}, "warning", "HOT"),
        ({"utilization": 0.9, "pcie": Pcie(width=8, width_max=16)}, "error", "PCIE x8"),
        (
            {"utilization": 0.9, "pcie": Pcie(generation=3, generation_max=5)},
            "warning",
            "PCIE gen3",
        ),
        ({"persistence_mode": False, "display_active": False}, "warning", "PERS"),
        ({"persistence_mode": False}, "warning", "PERS"),
        ({"compute_mode": "prohibited"}, "warning", "MODE"),
        ({"compute_mode": "exclusive_process"}, "warning", "MODE"),
    ],
)
def test_what_is_told(fields: dict[str, Any], level: str, code: str) -> None:
    assert told(**fields) == [(level, code)]
    found = only(**fields)
    assert found.text
    assert found.advice
    assert "{" not in found.text + found.advice


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"health": Health(), "ecc": Ecc(), "nvlink": Nvlink(), "pcie": Pcie()},
        {"health": Health(xids=(), recovery_action="none", fabric_state="completed")},
        {"health": Health(fabric_state="not_supported")},
        {"ecc_uncorrected": 0, "ecc": Ecc(corrected=9, aggregate_uncorrected=3, retired_double=2)},
        {"ecc": Ecc(remap_pending=False, remap_failure=False, remapped_uncorrectable=1)},
        {"nvlink": Nvlink(up=18, down=0, errors=5)},
        {"nvlink": Nvlink(up=0, down=4)},  # nobody bridged it
        {"mig_mode": True, "nvlink": Nvlink(up=2, down=16),
         "health": Health(fabric_state="in_progress")},
        {"throttle": Throttle(reasons=("sw_power_cap", "sync_boost"))},
        {"throttle": Throttle(reasons=("board_limit", "reliability"), lasting=("board_limit",))},
        {"nvlink": Nvlink(up=16, down=0, asleep=2), "health": Health(fabric_state="completed")},
        {"health": Health(fabric_state="completed", fabric_health=())},
        {"health": Health(fabric_health=("a_name_of_the_future",))},
        {"utilization": 0.3, "pcie": Pcie(generation=1, generation_max=5, width=8, width_max=16)},
        {"utilization": None, "pcie": Pcie(width=8, width_max=16)},
        {"utilization": 1.0, "pcie": Pcie(generation=5, generation_max=5, width=16, width_max=16)},
        {"persistence_mode": False, "display_active": True},
        {"persistence_mode": True, "compute_mode": "default"},
        {"stale_for": 3.9},
    ],
)  # fmt: skip
def test_what_is_no_trouble(fields: dict[str, Any]) -> None:
    assert told(**fields) == []


@pytest.mark.parametrize(
    "number",
    [46, 48, 54, 61, 62, 64, 74, 78, 79, 94, 95, 109, 110, 119, 120, 136, 140, 143, 144, 150, 151,
     155, 156, 158, 167, 171, 172, 173, 174, 175, 176, 7777],
)  # fmt: skip
def test_xids_of_the_card_stay_alarms(number: int) -> None:
    assert told(health=xids((number, 50000.0))) == [("error", f"XID {number}")]


@pytest.mark.parametrize(
    "number", [13, 31, 32, 38, 43, 45, 63, 69, 92, 121, 137, 154, 157, 160, 161]
)
def test_xids_of_programs_are_notices_for_a_while(number: int) -> None:
    assert told(health=xids((number, 599.0))) == [("warning", f"XID {number}")]
    assert told(health=xids((number, 601.0))) == []


def test_each_xid_is_told_once_with_its_count_the_newest_first() -> None:
    health = xids((31, 90.0), (79, 60.0), (31, 30.0), (48, 20.0))
    card = gpu(3, health=health)
    found = findings(frame([card], time=NOW), card)
    assert [finding.code for finding in found] == ["XID 48", "XID 79", "XID 31"]
    assert found[1].text == "XID 79, 1m00s ago: the GPU has fallen off the bus"
    assert found[1].advice.startswith("reboot the machine")
    assert found[2].text == "XID 31 (2 times), 30s ago: a program accessed an invalid address"


def test_xids_are_told_by_those_beside_them() -> None:
    card = gpu(3, health=xids((48, 30.0), (63, 20.0)))
    last, first = findings(frame([card], time=NOW), card)
    assert (last.level, first.level) == ("error", "warning")
    assert "start nothing new on it, let its programs finish, then reset it" in last.advice
    assert last.advice.endswith("nvidia-smi --gpu-reset -i 3")


def test_work_cleared_away_alone_on_an_hgx_board() -> None:
    """There NVIDIA says to restart the fabric manager; not where there is none on the machine."""
    alone = xids((45, 10.0), (45, 9.0))
    for state, name, restart in (
        ("completed", "NVIDIA H200", True),
        ("completed", "NVIDIA GB200", False),
        ("not_supported", "NVIDIA H200", False),
    ):
        health = replace(alone, fabric_state=state)
        card = gpu(3, name=name, health=health)
        [found] = findings(frame([card], time=NOW), card)
        assert found.level == "warning"
        assert ("nvidia-fabricmanager" in found.advice) is restart


def test_the_advice_of_a_drain_lets_work_finish() -> None:
    drained = only(health=Health(recovery_action="drain_and_reset")).advice
    assert drained == (
        "start nothing new on it, let its programs finish, then reset it: "
        "nvidia-smi --gpu-reset -i 3"
    )
    peers = only(health=Health(recovery_action="drain_p2p")).advice
    assert "UVM persistence" in peers
    assert "asks for something else" in peers


@pytest.mark.parametrize(
    ("problem", "level"),
    [
        ("degraded_bandwidth", "error"),
        ("route_unhealthy", "error"),
        ("no_partition", "error"),
        ("insufficient_nvlinks", "error"),
        ("incompatible_firmware", "error"),
        ("incorrect_system_guid", "error"),
        ("incorrect_chassis_serial", "error"),
        ("invalid_location", "error"),
        ("gpu_state_invalid", "error"),
        ("incorrect_configuration", "error"),
        ("route_recovery", "warning"),
        ("access_timeout_recovery", "warning"),
        ("manager_disconnected", "warning"),
    ],
)
def test_the_fabrics_health_is_told(problem: str, level: str) -> None:
    health = Health(fabric_state="completed", fabric_health=(problem,))
    found = only(health=health)
    assert (found.level, found.code) == (level, "FABRIC")
    assert "nvidia-smi -q" in found.advice
    assert told(health=health, mig_mode=True) == []  # NVLinks are not in use


@pytest.mark.parametrize("name", ["NVIDIA GB200", "NVIDIA GH200 480GB", "NVIDIA GB300"])
def test_a_fabric_manager_is_advised_on_single_machines_alone(name: str) -> None:
    """A domain of several machines is run from its switches."""
    for health in (
        Health(fabric_state="in_progress"),
        Health(fabric_state="completed", fabric_health=("route_unhealthy",)),
    ):
        assert "fabric" not in only(name=name, health=health).advice.lower().replace(
            "under fabric", ""
        )
        cluster = replace(health, fabric_cluster=True)
        assert "manager" not in only(health=cluster).advice
        assert "manager" in only(name="NVIDIA B200", health=health).advice


def test_a_pending_remap_keeps_no_work_off_the_gpu() -> None:
    """NVIDIA: new workloads can be launched."""
    card = gpu(3, ecc=Ecc(remap_pending=True))
    assert blocking(frame([card]), card) is None
    failed = gpu(3, ecc=Ecc(remap_pending=True, remap_failure=True))
    assert (worst := blocking(frame([failed]), failed)) is not None
    assert worst.code == "REMAP"


def test_heat_may_be_the_memorys() -> None:
    assert "or its memory" in only(throttle=Throttle(reasons=("sw_thermal_slowdown",))).text


def test_commands_name_the_gpu() -> None:
    assert "nvidia-smi --gpu-reset -i 3" in only(ecc=Ecc(remap_pending=True)).advice
    assert "nvidia-smi --gpu-reset -i 3" in only(health=xids((95, 1.0))).advice
    assert "nvidia-smi -pm 1 -i 3" in only(persistence_mode=False).advice
    assert "--gpu-reset" in only(error="GPU requires reset").advice
    assert "reboot" in only(error="GPU is lost").advice
    ours = only(error=f"{UNREADABLE}: GPU requires reset")
    assert "reset" not in ours.advice
    assert "driver" not in ours.text


def test_figures_are_in_the_words() -> None:
    assert only(ecc_uncorrected=1).text == "1 uncorrected memory error since the driver loaded"
    assert only(nvlink=Nvlink(up=16, down=2)).text == "2 of 18 NVLinks are down"
    half = only(utilization=0.97, pcie=Pcie(width=8, width_max=16))
    assert half.text == "PCIe has 8 of 16 lanes at 97 % utilization"


def test_a_link_is_down_where_others_have_it() -> None:
    """On an NVSwitch machine each link counts, elsewhere what a like card has."""
    on_switches = Health(fabric_state="completed")
    assert told(nvlink=Nvlink(up=17, down=1), health=on_switches) == [("error", "NVLINK")]
    whole, half, none = (
        gpu(i, nvlink=Nvlink(up=up, down=4 - up)) for i, up in enumerate((4, 2, 0))
    )
    other = gpu(3, name="another", nvlink=Nvlink(up=0, down=6))
    machine = frame([whole, half, none, other])
    levels = [[found.level for found in findings(machine, gpu)] for gpu in machine.gpus]
    assert levels == [[], ["error"], ["error"], []]


def test_a_slowdown_is_told_by_its_cause() -> None:
    reasons = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_power_cap")
    codes = [code for _, code in told(throttle=Throttle(reasons=reasons))]
    assert codes == ["HOT", "POWER BRAKE"]


def test_persistence_matters_where_no_gpu_has_a_display() -> None:
    off = gpu(0, persistence_mode=False, display_active=False)
    assert not findings(frame([off, gpu(1, display_active=True)]), off)


def test_the_worst_comes_first() -> None:
    codes = told(
        persistence_mode=False, ecc_uncorrected=1, error="GPU is lost",
        health=xids((31, 5.0), (79, 9.0)),
    )  # fmt: skip
    assert codes == [
        ("error", "XID 79"), ("error", "LOST"), ("error", "ECC"), ("warning", "XID 31"),
        ("warning", "PERS"),
    ]  # fmt: skip


def test_a_hung_gpu_keeps_what_was_known_of_it() -> None:
    hung = gpu(3, stale_for=12.0, health=xids((79, 60.0)))
    found = findings(frame([hung], time=NOW), hung)
    assert [finding.code for finding in found] == ["XID 79", "HUNG"]
    assert found[1].text.startswith("it has not answered for 12s")


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("hw_thermal_slowdown", "HOT"),
        ("sw_thermal_slowdown", "HOT"),
        ("hw_power_brake_slowdown", "POWER BRAKE"),
        ("hw_slowdown", "SLOWDOWN"),
    ],
)
def test_a_slow_clock_is_said_as_it_is(reason: str, code: str) -> None:
    """ "Half its clock or less" was said of a GPU at 1886 of 1980 MHz."""
    throttle = Throttle(reasons=(reason,), lasting=(reason,))
    found = only(throttle=throttle, sm_clock=1886e6, sm_clock_max=1980e6)
    assert found.code == code
    assert found.text.endswith(": 1886 of 1980 MHz")
    assert "half" not in found.text
    assert "MHz" not in only(throttle=throttle).text


def test_gpus_in_alarm() -> None:
    gpus = [gpu(0), gpu(1, ecc_uncorrected=1, error="x"), gpu(2, compute_mode="prohibited")]
    assert [gpu.index for gpu in in_alarm(frame(gpus))] == [1]


def test_the_demo_is_well() -> None:
    machine = demo_frame(NOW)
    assert [findings(machine, gpu) for gpu in machine.gpus] == [()] * 8
