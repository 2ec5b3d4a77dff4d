"""`gputop --json`: ECC, health, NVLinks are the scenario's; what is refused costs only itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gputop.agent.gpu.sections import ALL_LINKS, scoped
from gputop.agent.gpu.traffic import NvlinkSection
from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory
from tests.patience import until
from tests.test_json import SECOND, at, look, number

pytestmark = pytest.mark.system

ACTIONS = [
    "none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain",
    "bus_reset", "system_reboot",
]  # fmt: skip
STATES = ["not_supported", "not_started", "in_progress", "completed"]

# Field, where the scenario has it, since which driver, and the most that can be true.
ECC: list[tuple[str, str, int, int]] = [
    ("enabled", "ecc.mode", 390, 1),
    ("pending", "ecc.pending", 390, 1),
    ("corrected", "ecc.corrected", 390, 2**63 - 1),
    ("corrected_dram", "ecc.corrected", 390, 2**63 - 1),
    ("uncorrected_dram", "ecc.uncorrected", 390, 2**63 - 1),
    ("aggregate_corrected", "ecc.aggregate_corrected", 390, 2**63 - 1),
    ("aggregate_uncorrected", "ecc.aggregate_uncorrected", 390, 2**63 - 1),
    ("sram_threshold_exceeded", "ecc.sram_threshold", 580, 1),
    ("retired_single", "retired.single", 390, 10**6),
    ("retired_double", "retired.double", 390, 10**6),
    ("retired_pending", "retired.pending", 390, 1),
    ("remapped_correctable", "remapped.correctable", 450, 10**6),
    ("remapped_uncorrectable", "remapped.uncorrectable", 450, 10**6),
    ("remap_pending", "remapped.pending", 450, 1),
    ("remap_failure", "remapped.failure", 450, 1),
]
FLAGS = {"enabled", "pending", "sram_threshold_exceeded", "retired_pending", "remap_pending",
         "remap_failure"}  # fmt: skip


def unless_empty(section: Json) -> Json | None:
    """A section of which nothing is known is none."""
    return section if any(value is not None for value in section.values()) else None


def expected_ecc(gpu: Json, era: int) -> Json | None:
    fields: Json = {}
    for field, path, since, most in ECC:
        told = at(gpu, path) if era >= since else None
        value = told if told is not None and told <= most else None
        fields[field] = bool(value) if field in FLAGS and value is not None else value
    for kind in ("corrected", "uncorrected"):  # the simulated errors are all in device memory
        fields[f"{kind}_sram"] = None if at(gpu, f"ecc.{kind}") is None else 0
    return unless_empty(fields)


def expected_health(gpu: Json, era: int) -> Json | None:
    def new(path: str, most: int) -> int | None:
        told = at(gpu, path) if era >= 580 else None
        return told if told is not None and told <= most else None

    action, state = number((gpu.get("fields") or {}).get("230")), new("fabric.state", 3)
    repairs = [new("repair.channel", 1), new("repair.tpc", 1)]
    unrepairable = new("unrepairable", 1)
    has_fabric = state is not None and STATES[state] != "not_supported"
    return unless_empty(
        {
            "xids": None,
            "recovery_action": ACTIONS[action] if action is not None and action < 8 else None,
            "fabric_state": None if state is None else STATES[state],
            "fabric_health": None,
            "fabric_cluster": False if has_fabric else None,
            "repair_pending": True if 1 in repairs else None if None in repairs else False,
            "unrepairable_memory": None if unrepairable is None else bool(unrepairable),
        }
    )


def expected_nvlink(gpu: Json) -> Json | None:
    links = gpu.get("links")
    if not links:
        return None
    up = sum(count for end, count in links.items() if end not in ("total", "rest"))
    counts = [number((gpu.get("fields") or {}).get(id_)) for id_ in ("38", "45", "52", "59")]
    known = [count for count in counts if count is not None and count < 2**63]
    rates: dict[str, Any] = {"tx": None, "rx": None}  # a single look has none
    errors = sum(known) if known else None
    down = links.get("total", 18) - up
    return {"up": up, "down": down, "asleep": 0, **rates, "errors": errors}


def expected_parts(gpu: Json, era: int) -> Json:
    """By section; tests/test_json_sections.py looks at each scenario, and compares them, too."""
    return {
        "ecc": expected_ecc(gpu, era),
        "health": expected_health(gpu, era),
        "nvlink": expected_nvlink(gpu),
    }


def alike(machine: MachineFactory, field: str, values: Iterable[object]) -> list[Json]:
    """GPUs that differ in this alone, as one look shows them."""
    gpus = [{"uuid": f"GPU-{index}", field: value} for index, value in enumerate(values)]
    told: list[Json] = look(machine({"gpus": gpus}))["gpus"]
    return told


def test_cards_before_ampere_retire_pages(machine: MachineFactory) -> None:
    """One GPU written out, so that an error made both above and in gputop is seen."""
    retired = {"single": 3, "double": 1, "pending": 1}
    here = machine({"gpu": {"name": "Tesla V100", "uuid": "GPU-0", "retired": retired}})
    [gpu] = look(here)["gpus"]
    ecc = gpu["ecc"]
    assert (ecc["retired_single"], ecc["retired_double"], ecc["retired_pending"]) == (3, 1, True)
    assert (gpu["health"], gpu["nvlink"]) == (None, None)


def test_the_sick_machine_in_figures(machine: MachineFactory) -> None:
    gpus = look(machine({"base": "sick", "frozen_at": SECOND, "processes": None}))["gpus"]
    assert gpus[2]["ecc"]["remap_pending"] is True
    assert gpus[2]["health"]["recovery_action"] == "gpu_reset"
    assert (gpus[3]["ecc_uncorrected"], gpus[3]["ecc"]["aggregate_corrected"]) == (2, 977)
    assert gpus[3]["ecc"]["sram_threshold_exceeded"] is True
    links = {"up": 17, "down": 1, "asleep": 0, "tx": None, "rx": None, "errors": 42}
    assert gpus[4]["nvlink"] == links
    assert gpus[4]["health"]["fabric_state"] == "completed"


def test_the_fabrics_state(machine: MachineFactory) -> None:
    """Its status counts once the state is complete."""
    fabrics = [{"state": 0}, {"state": 1}, {"state": 2}, {"state": 2, "status": 23},
               {"state": 3, "status": 23}]  # fmt: skip
    told = [gpu["health"]["fabric_state"] for gpu in alike(machine, "fabric", fabrics)]
    assert told == ["not_supported", "not_started", "in_progress", "in_progress", "failed"]


MASKS: list[tuple[int, list[str] | None]] = [
    (0, None),
    (0b10_10_10_10, []),
    (0b01, ["degraded_bandwidth"]),
    (0b01_00, ["route_recovery"]),
    (0b01_00_00, ["route_unhealthy"]),
    (0b01_00_00_00, ["access_timeout_recovery"]),
    (1 << 8, []),
    (2 << 8, ["incorrect_system_guid"]),
    (3 << 8, ["incorrect_chassis_serial"]),
    (4 << 8, ["no_partition"]),
    (4 << 8 | 2 << 12, ["no_partition"]),
    (5 << 8, ["insufficient_nvlinks"]),
    (6 << 8, ["incompatible_firmware"]),
    (7 << 8, ["invalid_location"]),
    (8 << 8, ["gpu_state_invalid"]),
    (9 << 8, ["incorrect_configuration"]),
    (1 << 12, []),
    (2 << 12, ["no_partition"]),
    (2 << 14, ["manager_disconnected"]),
    (0b01_00_01, ["degraded_bandwidth", "route_unhealthy"]),
    (0xFFFFFFFF, []),
]


def test_the_fabrics_health(machine: MachineFactory) -> None:
    """By NVML_GPU_FABRIC_HEALTH_MASK_*; bits that mean nothing say nothing."""
    gpus = alike(machine, "fabric", [{"state": 3, "mask": mask} for mask, _ in MASKS])
    for gpu, (mask, told) in zip(gpus, MASKS, strict=True):
        assert gpu["health"]["fabric_health"] == told, bin(mask)


def test_a_gpu_on_no_fabric_has_no_health_of_it(machine: MachineFactory) -> None:
    fabric = {"state": 0, "mask": 1, "cluster": 1}
    [gpu] = look(machine({"gpu": {"uuid": "GPU-0", "fabric": fabric}}))["gpus"]
    assert (gpu["health"]["fabric_health"], gpu["health"]["fabric_cluster"]) == (None, None)


def test_a_fabric_of_several_machines(machine: MachineFactory) -> None:
    fabric = {"state": 3, "cluster": 1}
    [gpu] = look(machine({"gpu": {"uuid": "GPU-0", "fabric": fabric}}))["gpus"]
    assert gpu["health"]["fabric_cluster"] is True


def test_a_link_that_carries_no_traffic_is_not_up(machine: MachineFactory) -> None:
    """NVML_NVLINK_STATE_*: active is 1, sleep 2, active with its traffic disabled 3."""
    states = {0: (2, 0), 1: (0, 0), 2: (0, 2), 3: (2, 0), 9: (2, 0)}
    links = [{"switch": 16, "total": 18, "rest": state} for state in states]
    for gpu, (state, (down, asleep)) in zip(
        alike(machine, "links", links), states.items(), strict=True
    ):
        told = gpu["nvlink"]
        assert (told["up"], told["down"], told["asleep"]) == (18 - down - asleep, down, asleep), (
            state
        )


def test_one_repair_is_enough(machine: MachineFactory) -> None:
    repairs = [{"channel": channel, "tpc": 1 - channel} for channel in (0, 1)]
    told = [gpu["health"]["repair_pending"] for gpu in alike(machine, "repair", repairs)]
    assert told == [True, True]


INTERVAL = 2.2
"""Seconds, in which rates are looked at once."""


def nothing(call: object, *arguments: object) -> None:
    """A driver that answers no call."""


def test_nvlink_rates_are_bytes_per_second_of_counters_of_kib() -> None:
    """A counter that falls was reset: no rate then, and the next from there."""
    section, told = NvlinkSection(), []
    tx, rx = (scoped(field, ALL_LINKS) for field in (138, 139))
    looks = [(1000, 10, 10.0), (3000, 510, 12.0), (40, 1010, 14.0), (140, None, 16.0)]
    for sent, received, now in looks:
        told.append(section.read(nothing, {tx: sent, rx: received}, now))
    assert [link and (link.tx, link.rx) for link in told] == [
        None, (1024000.0, 256000.0), (None, 256000.0), (51200.0, None),
    ]  # fmt: skip


def test_the_counters_of_all_links_are_asked_for(machine: MachineFactory) -> None:
    counters = {"138:all": {"steps": [[0, 7000], [1, 9200]]}, "139:all": 500, "138": 1, "139": 1}
    here = machine({"gpu": {"uuid": "GPU-0", "fields": counters}, "frozen_at": 0})
    with Agent(here, interval=INTERVAL) as agent:
        agent.line()
        here.freeze(1)
        link: Json = {}
        while not link.get("tx"):  # it is late on a busy machine
            link = agent.line()["gpus"][0]["nvlink"] or {}
    # Of all links: a single one counts nothing, and all of them 2,200 KiB in some seconds.
    assert (link["tx"] > 100_000, link["rx"]) == (True, 0)


OPTIONAL: dict[str, dict[str, set[str]]] = {
    "nvmlDeviceGetEccMode": {"ecc": {"enabled", "pending"}},
    "nvmlDeviceGetTotalEccErrors": {
        "ecc": {"corrected", "aggregate_corrected", "aggregate_uncorrected"}
    },
    "nvmlDeviceGetMemoryErrorCounter": {
        "ecc": {"corrected_dram", "corrected_sram", "uncorrected_dram", "uncorrected_sram"}
    },
    "nvmlDeviceGetSramEccErrorStatus": {"ecc": {"sram_threshold_exceeded"}},
    "nvmlDeviceGetRetiredPages": {"ecc": {"retired_single", "retired_double"}},
    "nvmlDeviceGetRetiredPagesPendingStatus": {"ecc": {"retired_pending"}},
    "nvmlDeviceGetRemappedRows": {
        "ecc": {"remapped_correctable", "remapped_uncorrectable", "remap_pending", "remap_failure"}
    },
    "nvmlDeviceGetGpuFabricInfoV": {"health": {"fabric_state", "fabric_cluster"}},
    "nvmlDeviceGetRepairStatus": {"health": {"repair_pending"}},
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": {"health": {"unrepairable_memory"}},
    "nvmlDeviceGetFieldValues": {"health": {"recovery_action"}, "nvlink": {"tx", "rx", "errors"}},
    "nvmlDeviceGetNvLinkState": {"nvlink": {"up", "down", "asleep", "errors"}},
}
"""Function -> what becomes null when it has no answer."""
RICH: Json = {
    "base": "h200x8",
    "processes": None,
    "gpu": {"retired": {"single": 0, "double": 0, "pending": 0}, "links": {"switch": 17}},
    "gpus": len(OPTIONAL) + 1,
    "frozen_at": SECOND,
}


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "UNKNOWN", "TIMEOUT"])
def test_a_call_that_is_refused_costs_only_its_own_fields(
    error: str, machine: MachineFactory
) -> None:
    """As many GPUs as calls: on each another one fails. Rates come with the second reading."""
    here = machine(RICH)
    for index, function in enumerate(OPTIONAL, start=1):
        here.fail(function, error, gpu=index)
    with Agent(here, interval=INTERVAL) as agent:
        until(lambda: wrong_without(agent.line()["gpus"]) == [], within=10)


def wrong_without(gpus: list[Json]) -> list[str]:
    """The functions without which a GPU says something else than it should."""
    whole, *broken = gpus
    wrong = ["nothing"] * (None in {**(whole["ecc"] or {}), **(whole["nvlink"] or {})}.values())
    for gpu, (function, costs) in zip(broken, OPTIONAL.items(), strict=True):
        for section in ("ecc", "health", "nvlink"):
            seen, expected = gpu[section] or {}, whole[section] or {}
            lost = dict.fromkeys(costs.get(section, ()))
            if {**seen, "xids": 0} != {**expected, **lost, "xids": 0}:
                wrong.append(function)
    return wrong


def test_a_slow_driver_is_not_asked_for_everything_at_once(machine: MachineFactory) -> None:
    """What it would delay comes with the next frame, before what is due again."""
    here = machine({**RICH, "gpus": 1})
    here.slow("nvmlDeviceGetEccMode", 300)
    with Agent(here) as agent:
        first, second = agent.line()["gpus"][0], agent.refresh()["gpus"][0]
        while second["nvlink"] is None:  # on a busy machine it may take one more
            second = agent.refresh()["gpus"][0]
    assert first["ecc"] == second["ecc"]
    assert ((first["health"] or {}).get("fabric_state"), first["nvlink"]) == (None, None)
    assert (second["health"]["fabric_state"], second["nvlink"]["up"]) == ("completed", 17)
