"""A number that Process declares is filled by the agent, and arrives wherever processes are."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from msgspec.structs import asdict

from gputop.export.json import frame_json
from gputop.export.prometheus.exposition import Exposition, Scope
from gputop.model.machine.frame import ON_GPU, Process
from gputop.model.metrics.process import COLUMNS, ProcessRow
from gputop.protocol.split import Splitter
from gputop.recording.contents import recorded
from tests.agent.driving import Agent
from tests.builders import frame, gpu, process
from tests.builders_tui import shown
from tests.conftest import MachineFactory
from tests.patience import until
from tests.protocol.streams import HELLO, lines_of, read
from tests.tui.test_process_screen import at

DECLARED = {name: get_args(hint) for name, hint in Process.__annotations__.items()}
VALUES: dict[str, Any] = {
    name: "R" if str in get_args(kind) else get_args(kind)[0](n)
    for n, (name, (kind, *_)) in enumerate(DECLARED.items(), 100)
}
"""No two are alike, so none can stand for another."""
IT = process(1, **VALUES)


def test_each_is_in_the_messages() -> None:
    sent = frame([gpu()], [IT, process(2, **{**VALUES, "state": "S"})])
    assert read(lines_of([HELLO, *Splitter().split(sent)])) == [sent]


def test_each_is_in_the_json() -> None:
    [row] = json.loads(frame_json(frame([gpu()], [IT])))["processes"]
    assert {name: row[name] for name in VALUES} == VALUES


def test_each_is_recorded_even_if_less_exactly() -> None:
    [kept] = recorded(frame([gpu()], [IT]), "all", None).processes
    fields = asdict(kept)
    assert {name: fields[name] for name in VALUES} == {**VALUES, "rss": 0}


@pytest.mark.parametrize("name", VALUES)
def test_each_is_a_column(name: str) -> None:
    metric = COLUMNS[name]
    assert metric.read(ProcessRow(IT, None, None)) == VALUES[name]
    assert metric.text(ProcessRow(process(2), None, None)) == "-"
    assert metric.width >= len(metric.label)
    assert not metric.left  # so it ends at the right, and is sorted from the greatest down


def test_prometheus_has_those_on_a_gpu() -> None:
    exposition = Exposition(lambda: 2000.0, Scope(processes=True))
    exposition.put(frame([gpu()], [IT]))
    text = exposition.text().decode()
    for name, notes in DECLARED.items():
        is_there = f"\n{COLUMNS[name].prometheus}{{" in text
        assert is_there == (ON_GPU in notes), name


async def test_each_is_on_the_page_of_a_process() -> None:
    async with shown(at(0, IT), size=(200, 50)) as screen:
        await screen.press("enter")
        page = await screen.whole_page()
    for name in VALUES.keys() - {"state", "idle_for"}:
        metric = COLUMNS[name]
        assert f"{metric.label} {metric.show(VALUES[name])}" in page, name
    assert "running" in page
    assert "no work seen" in page


@pytest.mark.system
def test_the_agent_fills_each(machine: MachineFactory) -> None:
    empty = set(VALUES)
    with Agent(machine("h200x8")) as agent:

        def none_is_empty() -> bool:
            for row in agent.refresh()["processes"]:
                empty.difference_update(name for name in VALUES if row[name] is not None)
            return not empty

        until(none_is_empty, seen=lambda: f"never filled: {sorted(empty)}")
