"""The benchmark still measures; what comes out is not judged here."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from bench.machines import Shape, machine
from bench.measures import Session, Values
from bench.oneshot import cost
from bench.programs import Program, installed
from bench.report import dump, facts, table
from bench.suite import cases
from bench.tree import cpu_seconds, memory_mib

SHAPE = Shape(2, 4)


@pytest.fixture
def ours() -> Program:
    return next(program for program in installed() if program.name == "gputop")


def test_a_session_of_gputop(ours: Program) -> None:
    assert ours.screen
    with machine(SHAPE) as here, Session(ours.screen, SHAPE, here, (80, 24), 5.0) as session:
        start = session.start()
        values: Values = {**session.steady(1.0), **session.keys(2), **session.quit()}
    assert (start["gpus_shown"], start["processes_shown"]) == (2, 4)
    assert 0 < (start["first_gpu"] or 0) <= (start["all_rows"] or 0) < 5
    assert all(value is not None and value > 0 for value in values.values()), values
    text = table("tiny", {"gputop": {**start, **values}, "nvitop": {"quit": 1000.0}})
    assert "first GPU row on screen, ms" in text
    assert text.splitlines()[-1].endswith(" 0.00")
    written = json.loads(dump(facts([ours]), {"tiny": {"gputop": start}}))
    assert written["results"]["tiny"]["gputop"]["gpus_shown"] == 2


def test_a_look_of_gputop(ours: Program) -> None:
    with machine(SHAPE) as here:
        told = cost(ours.looks["json"], here.env)
    assert told
    assert 0 < told["cpu_s"] <= os.cpu_count() * told["wall_s"]  # type: ignore[operator]
    assert told["bytes"] > 1000
    assert cost([sys.executable, "-c", "raise SystemExit(1)"], dict(os.environ)) is None


def test_what_left_children_did_is_counted() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
    told = cost([sys.executable, "-c", program], dict(os.environ))
    assert told
    assert told["cpu_s"] > 0.2


def test_a_tree_is_measured_exactly() -> None:
    before, begun = cpu_seconds(os.getpid()), time.process_time()
    while time.process_time() < begun + 0.005:
        pass
    assert 0.005 <= cpu_seconds(os.getpid()) - before < 0.1
    rss, pss = memory_mib(os.getpid())
    assert rss >= pss > 1


def test_parts_are_chosen_by_their_names() -> None:
    assert [str(case) for case in cases(True, ["once"])] == ["once 8x200"]
    assert len(cases(False, ["80x24", "screen"])) == 5
    assert len(cases(True, [])) == 5
    assert cases(False, ["nothing"]) == []
