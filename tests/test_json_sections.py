"""`gputop --json` of every scenario: each value is the scenario's, in its unit; the sections here.

What is expected is worked out here from the scenario alone, by the tables below.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tests.agent.driving import Json
from tests.conftest import NESTED, MachineFactory, rest_long
from tests.driver import names
from tests.test_json import (
    SECOND,
    WITHOUT_DRIVER,
    Range,
    at,
    check_values,
    complete_look,
    look,
)
from tests.test_json_health import expected_parts

pytestmark = pytest.mark.system

CLOCK, HIGHEST = (0, 20_000), (1, 20_000)
BUSY: Range = (0, 100)
DRAWN, LIMIT = (0, 20_000_000), (1, 20_000_000)
DEGREES: Range = (1, 250)
BYTES: Range = (0, 2**63 - 1)
SHARE, WATT, MEGA = Fraction(1, 100), Fraction(1, 1000), 10**6

# Field, where the scenario has it, what can be true, its unit, and since which drivers it is told.
TABLE: list[tuple[str, str, Range, Fraction | int, int]] = [
    ("bar1.total", "bar1.total", (1, 2**63 - 1), 1, 390),
    ("bar1.used", "bar1.used", BYTES, 1, 390),
    ("engines.encoder", "utilization.encoder", BUSY, SHARE, 390),
    ("engines.decoder", "utilization.decoder", BUSY, SHARE, 390),
    ("engines.jpeg", "utilization.jpeg", BUSY, SHARE, 535),
    ("engines.ofa", "utilization.ofa", BUSY, SHARE, 535),
    ("clocks.graphics", "clocks.graphics", CLOCK, MEGA, 390),
    ("clocks.graphics_max", "max_clocks.graphics", HIGHEST, MEGA, 390),
    ("clocks.video", "clocks.video", CLOCK, MEGA, 390),
    ("clocks.video_max", "max_clocks.video", HIGHEST, MEGA, 390),
    ("clocks.memory_max", "max_clocks.memory", HIGHEST, MEGA, 390),
    ("power_more.average", "fields.185", DRAWN, WATT, 390),
    ("power_more.instant", "fields.186", DRAWN, WATT, 390),
    ("power_more.limit_default", "power.default", LIMIT, WATT, 390),
    ("power_more.limit_min", "power.min", LIMIT, WATT, 390),
    ("power_more.limit_max", "power.max", LIMIT, WATT, 390),
    ("power_more.energy", "energy", BYTES, 0, 390),  # nothing yet, at the first look
    ("thermal.memory", "fields.82", DEGREES, 1, 390),
    ("thermal.margin", "margin", (-50, 250), 1, 580),
    ("thermal.slowdown", "threshold.slowdown", DEGREES, 1, 390),
    ("thermal.shutdown", "threshold.shutdown", DEGREES, 1, 390),
    ("pcie.generation", "pcie.generation", (1, 9), 1, 390),
    ("pcie.generation_max", "pcie.max_generation", (1, 9), 1, 390),
    ("pcie.width", "pcie.width", (1, 32), 1, 390),
    ("pcie.width_max", "pcie.max_width", (1, 32), 1, 390),
    ("pcie.replays", "pcie.replays", BYTES, 1, 390),
]
NOT_IN_ONE_LOOK = {"pcie": {"tx": None, "rx": None}}
ARCHITECTURES = {
    6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell"
}  # fmt: skip
VIRTUALIZATION = {0: "none", 2: "vgpu"}
REASONS = {
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x04: "sw_power_cap",
    0x10: "sync_boost",
}


def expected_sections(gpu: Json, era: int) -> Json:
    """Of the board; a section of which nothing is known is null."""
    found: Json = {name: dict(values) for name, values in NOT_IN_ONE_LOOK.items()}
    for field, path, (low, high), unit, since in TABLE:
        section, name = field.split(".")
        told = at(gpu, path) if era >= since else None
        known = told is not None and low <= told <= high
        value = float(told * unit) if told is not None and known else None
        found.setdefault(section, {})[name] = value
    found["identity"] = expected_identity(gpu, era)
    thermal, temperature = found["thermal"], at(gpu, "temperature")
    if thermal["margin"] is None and None not in (thermal["slowdown"], temperature):
        thermal["margin"] = thermal["slowdown"] - temperature
    some: Json = {name: set(values.values()) - {None} and values for name, values in found.items()}
    bits = at(gpu, "clock_reasons")
    if bits is not None:
        reasons = [name for bit, name in REASONS.items() if bits & bit]
        some["throttle"] = {"reasons": reasons, "lasting": [], "shares": {}}
    return {"throttle": None, **{name: values or None for name, values in some.items()}}


def expected_identity(gpu: Json, era: int) -> Json:
    capability: Any = gpu.get("compute_capability")
    numbers = (gpu.get("architecture"), gpu.get("virtualization")) if era >= 450 else (None, None)
    return {
        "serial": gpu.get("serial"),
        "vbios": gpu.get("vbios"),
        "architecture": ARCHITECTURES.get(numbers[0] or 0),
        "compute_capability": capability and ".".join(map(str, capability)),
        "virtualization": None if numbers[1] is None else VIRTUALIZATION[numbers[1]],
    }


@rest_long("name", "h200x8", *sorted(set(names()) - WITHOUT_DRIVER - {"h200x8"}))
def test_every_value_is_the_scenarios(name: str, machine: MachineFactory) -> None:
    newest = {"driver_version": "580.95.05"} if NESTED else {}
    here = machine({"base": name, "frozen_at": SECOND, **newest})
    frame, era = complete_look(here), here.scenario["era"]
    check_values(frame, here)
    for gpu, told in zip(here.scenario["gpus"], frame["gpus"], strict=True):
        expected = {**expected_sections(gpu, era), **expected_parts(gpu, era)}
        for section, value in expected.items():
            assert told[section] == value, section


def test_units_in_figures(machine: MachineFactory) -> None:
    """One GPU written out, so that a unit wrong both above and in gputop is seen."""
    gpu = look(machine({"base": "h200x8", "frozen_at": SECOND}))["gpus"][0]
    assert gpu["identity"] == {
        "serial": "1653024000000",
        "vbios": "96.00.C8.00.01",
        "architecture": "Hopper",
        "compute_capability": "9.0",
        "virtualization": "none",
    }
    assert gpu["bar1"] == {"total": 256 * 2**30, "used": 26869760}
    assert gpu["engines"] == dict.fromkeys(("encoder", "decoder", "jpeg", "ofa"), 0.0)
    assert gpu["clocks"] == {
        "graphics": 1_980_000_000,
        "graphics_max": 1_980_000_000,
        "video": 1_545_000_000,
        "video_max": 1_545_000_000,
        "memory_max": 3_201_000_000,
    }
    assert gpu["power_more"] == {
        "average": 208.695,
        "instant": 208.956,
        "limit_default": 700.0,
        "limit_min": 200.0,
        "limit_max": 700.0,
        "energy": 0.0,
    }
    assert gpu["thermal"] == {"memory": 43.0, "margin": 50.0, "slowdown": None, "shutdown": None}
    assert gpu["throttle"] == {"reasons": ["sw_power_cap"], "lasting": [], "shares": {}}
    assert gpu["pcie"]["generation_max"] == 5
    assert gpu["pcie"]["width"] == 16


@pytest.mark.parametrize(
    ("scenario", "nothing"),
    [
        ("rtx4080s", "identity.serial thermal.memory"),
        ("l40s", "thermal.memory thermal.slowdown thermal.shutdown"),
        ("m60x4", "identity.architecture engines.jpeg power_more.average power_more.energy"),
        ("gb10", "bar1 clocks.memory_max power_more.limit_default thermal.slowdown pcie.replays"),
        ("wsl", "throttle power_more thermal pcie.replays"),
        ("vgpu", "thermal clocks power_more throttle pcie engines.ofa identity.serial"),
    ],
)
def test_what_a_card_does_not_tell(scenario: str, nothing: str, machine: MachineFactory) -> None:
    gpu = look(machine(scenario))["gpus"][0]
    for path in nothing.split():
        value: Any = gpu
        for name in path.split("."):
            value = value[name]
        assert value is None, path
