"""What a snapshot asks the driver: no more than it prints, and nothing twice."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.export.line import FIELDS, LineView
from gputop.export.table import table
from gputop.model.health.findings import findings
from gputop.model.health.free import not_free
from gputop.model.machine.frame import Frame
from gputop.model.machine.limits import limits
from gputop.protocol.assemble import Assembler
from tests.agent.driving import Json
from tests.conftest import MachineFactory, rest_long
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

GPUTOP = [sys.executable, "-m", "gputop"]
AT_WORK: Json = {"base": "h200x8", "gpu": {"utilization": {"gpu": 97, "memory": 40}}}
SLOW: Json = {
    "base": "h200x8",
    "frozen_at": 2.5,
    "processes": None,
    "gpus": [
        {"clock_reasons": 0x48, "utilization": {"gpu": 90}, "pcie": {"width": 8, "generation": 3}},
        {"links": {"switch": 16, "total": 18}, "remapped": {"pending": 1}},
        {"links": {"switch": 16, "total": 18, "fields": 0}},
        {"links": {"switch": 17, "total": 18, "rest": 2}, "fan": 30},
    ],
}
"""Everything that is asked for only in some cases."""


def calls_of(here: Machine, *words: str) -> Counter[tuple[str, int | None]]:
    here.forget_calls()
    done = here.run([*GPUTOP, *words])
    assert done.returncode in (0, 1), done.stderr  # 1: nothing is free
    return Counter(here.calls())


@pytest.mark.parametrize("scenario", ["h200x8", AT_WORK])
@pytest.mark.parametrize("words", ["--once", "--line", "free"])
def test_a_snapshot_of_eight_gpus_makes_300_calls_at_most(
    words: str, scenario: Any, machine: MachineFactory
) -> None:
    calls = calls_of(machine(scenario, log=True), words)
    assert calls.total() <= 300 * (1 if words.startswith("-") else 2)  # free looks several times
    assert not [name for name, _ in calls if "NvLink" in name or "P2P" in name]


def test_nothing_is_asked_twice(machine: MachineFactory) -> None:
    """With the same arguments, that is: each number is one of its own clocks, links or pairs."""
    here = machine("h200x8", log=True)
    calls = calls_of(here, "--json")
    families = ("Clock", "Ecc", "ErrorCounter", "Threshold", "RetiredPages", "NvLink", "P2P")
    twice = {name for (name, gpu), count in calls.items() if count > 1 and gpu is not None}
    assert not [name for name in twice if not any(family in name for family in families)]
    assert calls["nvmlDeviceGetNvLinkRemoteDeviceType", 0] == 18
    # Links are asked for anew where a GPU has not told them yet, for want of a core.
    until(lambda: not calls_of(here, "--json")["nvmlDeviceGetNvLinkState", 0], within=30)


def frame_of(here: Machine, *less: str) -> Frame:
    done = here.run([*GPUTOP, "agent", "--once", *less])
    assembler = Assembler()
    messages = [assembler.read(line.encode() + b"\n") for line in done.stdout.splitlines()]
    assert isinstance(messages[-1], Frame), done.stderr
    return messages[-1]


@rest_long(
    "scenario", SLOW, "sick", "mig", "gh200", "gb10", "geforce", "era-450", "mixed", "vgpu", "m60x4"
)
def test_it_says_the_same_as_if_all_had_been_asked(scenario: Any, machine: MachineFactory) -> None:
    here = machine({"base": scenario, "frozen_at": 20} if isinstance(scenario, str) else scenario)
    whole, brief = frame_of(here), frame_of(here, "--brief", "--no-links")
    # The real memory in use is never the same twice, nor how far a busy machine is searched.
    found = ((gpu.holders, gpu.holders_known) for gpu in whole.gpus)
    gpus = [replace(gpu, holders=holders, holders_known=known)
            for gpu, (holders, known) in zip(brief.gpus, found, strict=True)]  # fmt: skip
    brief = replace(brief, host=whole.host, gpus=tuple(gpus))
    assert table(replace(brief, processes=(), time=0.0), 600.0) == table(
        replace(whole, processes=(), time=0.0), 600.0
    )
    for one, other in zip(whole.gpus, brief.gpus, strict=True):
        for judge in (findings, not_free):
            assert judge(brief, other) == judge(whole, one)
        assert [*limits(brief, other)] == [*limits(whole, one)]
    lines = [{name: field.read(LineView([frame])) for name, field in FIELDS.items()}
             for frame in (whole, brief)]  # fmt: skip
    assert lines[0] == lines[1]
    assert not any(gpu.engines or gpu.clocks or gpu.activity for gpu in brief.gpus)


def test_links_that_are_down_are_told_by_old_and_new_drivers(machine: MachineFactory) -> None:
    gpus = frame_of(machine(SLOW), "--brief").gpus
    links = [gpu.nvlink and (gpu.nvlink.up, gpu.nvlink.down, gpu.nvlink.asleep) for gpu in gpus]
    assert links == [(18, 0, 0), (16, 2, 0), (16, 2, 0), (17, 0, 1)]
