"""Numbers that cannot be true: each is null or brought into its range, never shown as it is."""

from __future__ import annotations

import pytest

from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory

pytestmark = pytest.mark.system

UNKNOWN_32 = 2**32 - 1
UNKNOWN_64 = 2**64 - 1

CASES: list[tuple[Json, Json]] = [
    ({"temperature": UNKNOWN_32}, {"temperature": None}),
    ({"temperature": 300}, {"temperature": None}),
    ({"temperature": 0}, {"temperature": 0.0}),
    ({"temperature": 2**32 - 20}, {"temperature": -20.0}),
    ({"power": {"usage": UNKNOWN_32}}, {"power": None}),
    ({"power": {"usage": 0}}, {"power": 0.0}),
    ({"power": {"enforced": 0}}, {"power_limit": None}),
    ({"power": {"enforced": UNKNOWN_32}}, {"power_limit": None}),
    ({"clocks": {"sm": UNKNOWN_32, "memory": 0}}, {"sm_clock": None, "memory_clock": 0}),
    ({"max_clocks": {"sm": 0}}, {"sm_clock_max": None}),
    ({"max_clocks": {"sm": UNKNOWN_32}}, {"sm_clock_max": None}),
    ({"utilization": {"gpu": 100}}, {"utilization": 1.0}),
    ({"utilization": {"gpu": 103}}, {"utilization": 1.0}),
    ({"utilization": {"gpu": 255}}, {"utilization": None, "memory_utilization": 0.5}),
    ({"utilization": {"memory": UNKNOWN_32}}, {"utilization": 0.5, "memory_utilization": None}),
    ({"pstate": 32}, {"pstate": None}),
    ({"pstate": 15}, {"pstate": 15}),
    ({"fan": 115}, {"fan": 1.15}),
    ({"fan": 0}, {"fan": 0.0}),
    ({"fan": UNKNOWN_32}, {"fan": None}),
    ({"ecc": {"uncorrected": UNKNOWN_64}}, {"ecc_uncorrected": None}),
    ({"ecc": {"uncorrected": 0}}, {"ecc_uncorrected": 0}),
    ({"compute_mode": 17}, {"compute_mode": None}),
    ({"memory": {"used": 2001}}, {"memory_used": None, "memory_total": 2000}),
    ({"memory": {"used": 2000}}, {"memory_used": 2000, "memory_free": 0}),
    ({"memory": {"reserved": UNKNOWN_64}}, {"memory_reserved": None, "memory_used": 500}),
    ({"memory": {"total": 0}}, {"memory_total": None}),
    ({"memory": {"total": UNKNOWN_64}}, {"memory_total": None}),
    ({"name": "\x1b[2Jevil\u202e\n"}, {"name": "\ufffd[2Jevil\ufffd\ufffd"}),
    ({"name": "\udcff\udcfe"}, {"name": None}),
    ({"uuid": "GPU-\x9b31m"}, {"uuid": "GPU-\ufffd31m"}),
]


def test_garbage(machine: MachineFactory) -> None:
    """Each case is a GPU of its own."""
    plain: Json = {
        "name": "A",
        "utilization": {"gpu": 50, "memory": 50},
        "clocks": {"sm": 1000, "memory": 1000},
        "power": {"usage": 1000, "limit": 1000, "enforced": 1000},
        "memory": {"total": 2000, "used": 500, "reserved": 0},
    }
    here = machine({"gpu": plain, "gpus": [told for told, _ in CASES]})
    with Agent(here) as agent:
        gpus = agent.line()["gpus"]
    assert len(gpus) == len(CASES)
    for gpu, (told, shown) in zip(gpus, CASES, strict=True):
        assert {field: gpu[field] for field in shown} == shown, told
