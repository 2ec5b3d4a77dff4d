"""`gputop --json`: ECC, health, NVLinks are the scenario's; what is refused costs only itself."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.agent.gpu.nvlink import NvlinkSection
from gputop.agent.gpu.section import ALL_LINKS, scoped
from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory
from tests.driver import names
from tests.test_json import SECOND, WITHOUT_DRIVER, at, look, number

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
    return unless_empty(
        {
            "xids": None,
            "recovery_action": ACTIONS[action] if action is not None and action < 8 else None,
            "fabric_state": None if state is None else STATES[state],
            "repair_pending": True if 1 in repairs else None if None in repairs else False,
            "unrepairable_memory": None if unrepairable is None else bool(unrepairable),
        }
    )


def expected_nvlink(gpu: Json) -> Json | None:
    links = gpu.get("links")
    if not links:
        return None
    up = sum(count for end, count in links.items() if end != "total")
    counts = [number((gpu.get("fields") or {}).get(id_)) for id_ in ("38", "45", "52", "59")]
    known = [count for count in counts if count is not None and count < 2**63]
    rates: dict[str, Any] = {"tx": None, "rx": None}  # a single look has none
    errors = sum(known) if known else None
    return {"up": up, "down": links.get("total", 18) - up, **rates, "errors": errors}


@pytest.mark.parametrize("name", sorted(set(names()) - WITHOUT_DRIVER))
def test_every_value_is_the_scenarios(name: str, machine: MachineFactory) -> None:
    here = machine({"base": name, "frozen_at": SECOND, "processes": None})
    era = here.scenario["era"]
    for gpu, told in zip(here.scenario["gpus"], look(here)["gpus"], strict=True):
        assert told["ecc"] == expected_ecc(gpu, era)
        assert told["health"] == expected_health(gpu, era)
        assert told["nvlink"] == expected_nvlink(gpu)


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
    assert gpus[4]["nvlink"] == {"up": 17, "down": 1, "tx": None, "rx": None, "errors": 42}
    assert gpus[4]["health"]["fabric_state"] == "completed"


@pytest.mark.parametrize(
    ("fabric", "told"),
    [({"state": 0}, "not_supported"), ({"state": 1}, "not_started"), ({"state": 2}, "in_progress"),
     ({"state": 2, "status": 23}, "in_progress"), ({"state": 3, "status": 23}, "failed")],
)  # fmt: skip
def test_the_fabrics_state(fabric: Json, told: str, machine: MachineFactory) -> None:
    """Its status counts once the state is complete."""
    [gpu] = look(machine({"gpu": {"uuid": "GPU-0", "fabric": fabric}}))["gpus"]
    assert gpu["health"]["fabric_state"] == told


@pytest.mark.parametrize("which", ["channel", "tpc"])
def test_one_repair_is_enough(which: str, machine: MachineFactory) -> None:
    repair = {"channel": 0, "tpc": 0, which: 1}
    [gpu] = look(machine({"gpu": {"uuid": "GPU-0", "repair": repair}}))["gpus"]
    assert gpu["health"]["repair_pending"] is True


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
    assert [one and (one.tx, one.rx) for one in told] == [
        None, (1024000.0, 256000.0), (None, 256000.0), (51200.0, None),
    ]  # fmt: skip


def test_the_counters_of_all_links_are_asked_for(machine: MachineFactory) -> None:
    counters = {"138:all": {"steps": [[0, 7000], [1, 9200]]}, "139:all": 500, "138": 1, "139": 1}
    here = machine({"gpu": {"uuid": "GPU-0", "fields": counters}, "frozen_at": 0})
    with Agent(here, interval=INTERVAL) as agent:
        agent.line()
        here.freeze(1)
        [gpu] = agent.line()["gpus"]
    assert (gpu["nvlink"]["tx"] > 900000, gpu["nvlink"]["rx"]) == (True, 0)


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
    "nvmlDeviceGetGpuFabricInfoV": {"health": {"fabric_state"}},
    "nvmlDeviceGetRepairStatus": {"health": {"repair_pending"}},
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": {"health": {"unrepairable_memory"}},
    "nvmlDeviceGetFieldValues": {"health": {"recovery_action"}, "nvlink": {"tx", "rx", "errors"}},
    "nvmlDeviceGetNvLinkState": {"nvlink": {"up", "down", "errors"}},
}
"""Function -> what becomes null when it has no answer."""
RICH: Json = {
    "base": "h200x8",
    "processes": None,
    "gpu": {"retired": {"single": 0, "double": 0, "pending": 0}},
    "gpus": len(OPTIONAL) + 1,
    "frozen_at": SECOND,
}


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "UNKNOWN", "TIMEOUT"])
def test_a_call_that_is_refused_costs_only_its_own_fields(
    error: str, machine: MachineFactory
) -> None:
    """As many GPUs as calls: on each another one fails."""
    here = machine(RICH)
    for index, function in enumerate(OPTIONAL, start=1):
        here.fail(function, error, gpu=index)
    with Agent(here, interval=INTERVAL) as agent:
        agent.line()
        whole, *broken = agent.line()["gpus"]
    assert None not in {**whole["ecc"], **whole["nvlink"]}.values()
    for gpu, (function, costs) in zip(broken, OPTIONAL.items(), strict=True):
        for section in ("ecc", "health", "nvlink"):
            assert gpu[section] == {
                **whole[section],
                **dict.fromkeys(costs.get(section, ())),
                **({"xids": gpu["health"]["xids"]} if section == "health" else {}),
            }, function


def test_a_slow_driver_is_not_asked_for_everything_at_once(machine: MachineFactory) -> None:
    """What it would delay comes with the next frame, before what is due again."""
    here = machine({**RICH, "gpus": 1})
    here.slow("nvmlDeviceGetEccMode", 300)
    with Agent(here) as agent:
        first, second = agent.line()["gpus"][0], agent.refresh()["gpus"][0]
    assert first["ecc"] == second["ecc"]
    assert ((first["health"] or {}).get("fabric_state"), first["nvlink"]) == (None, None)
    assert (second["health"]["fabric_state"], second["nvlink"]["up"]) == ("completed", 18)
