"""The benchmark still measures; what comes out is not judged here."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from bench import manual
from bench.machines import TIMED, Shape, machine
from bench.measures import Session, Values
from bench.oneshot import cost
from bench.programs import Program, installed
from bench.report import dump, facts, table
from bench.suite import cases, of_manual
from bench.tree import cpu_seconds, memory_mib

SHAPE = Shape(2, 4)


@pytest.fixture
def ours() -> Program:
    return next(program for program in installed() if program.name == "gputop")


@pytest.mark.system
@pytest.mark.long
def test_a_session_of_gputop(ours: Program) -> None:
    assert ours.screen
    with (
        machine(SHAPE, calls=TIMED) as here,
        Session(ours.screen, SHAPE, here, (80, 24), 5.0) as session,
    ):
        start = session.start()
        values: Values = {**session.steady(1.0), **session.keys(2), **session.quit()}
    assert (start["gpus_shown"], start["processes_shown"]) == (2, 4)
    assert 0 < (start["first_gpu"] or 0) <= (start["all_rows"] or 0) < 5
    assert all(value is not None and value > 0 for value in values.values()), values
    text = table("tiny", {"gputop": {**start, **values}, "nvitop": {"quit": 1000.0}})
    assert "first GPU row on screen, ms" in text
    assert text.splitlines()[-1].endswith(" 0.00")
    written = json.loads(dump(facts([ours], "timed"), {"tiny": {"gputop": start}}))
    assert written["results"]["tiny"]["gputop"]["gpus_shown"] == 2


@pytest.mark.system
def test_a_look_of_gputop(ours: Program) -> None:
    with machine(SHAPE) as here:
        told = cost(ours.looks["json"], here.env)
    assert told
    assert 0 < told["cpu_s"] <= os.cpu_count() * told["wall_s"]  # type: ignore[operator]
    assert told["bytes"] > 1000
    assert cost([sys.executable, "-c", "raise SystemExit(1)"], dict(os.environ)) is None


@pytest.mark.system
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


@pytest.mark.system
def test_calls_take_as_long_as_the_table_says() -> None:
    code = (
        "import pynvml as n, sys, time; n.nvmlInit(); gpu = n.nvmlDeviceGetHandleByIndex(0)\n"
        "for what in sys.argv[1:]:\n"
        "    begun = time.process_time(); getattr(n, what)(gpu); print(time.process_time() - begun)"
    )
    asked = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTotalEnergyConsumption")
    with machine(SHAPE, calls=TIMED) as here:
        cheap, dear = map(float, here.run([sys.executable, "-c", code, *asked]).stdout.split())
    assert 40e-6 <= cheap < 3.5e-3 <= dear, "CPU: they do not sleep"


def test_the_table_of_the_manual_is_made_of_several_runs(tmp_path: Path) -> None:
    page = tmp_path / "bench.md"
    page.write_text("# Bench\n\n<!-- measured -->\n\nold\n\n| old |\n\n<!-- end -->\n\nThe end.\n")
    versions = {"gputop": "1", "nvitop": "2", "nvtop": "3"}
    about, runs = [], []
    for load, (ours, theirs) in enumerate([(0.1, None), (0.5, 0.4), (0.2, None)]):
        about.append(
            {"time": "2026-11-23T12:00:00+00:00", "commit": "0123abc", "cpus": 2, "load": [load],
             "kernel": "6.18.0-x", "python": "3.11.7", "versions": versions}
        )  # fmt: skip
        values: dict[str, dict[str, Values]] = {
            "once 8x200": {"gputop": {"text_wall": ours}, "nvitop": {"text_wall": 0.4}},
            "hung 8x200 200x50": {"gputop": {"key_p95": ours}, "nvitop": {"key_p95": theirs},
                                  "nvtop": {"key_p95": 0.1}},
        }  # fmt: skip
        runs.append(values)
    manual.write(about, runs, page)
    assert page.read_text().splitlines() == [
        "# Bench",
        "",
        "<!-- measured -->",
        "",
        "Measured on 2026-11-23, commit 0123abc: medians of three runs on 2 cores, load 0 to 2 "
        "before it (Linux 6.18.0, Python 3.11.7).",
        "",
        "|  | gputop 1 | nvitop 2 | nvtop 3 | of nvitop | of nvtop |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| one snapshot as text, ms | 200 | 400 |  | 0.50 |  |",
        "| one GPU hangs: key to screen, p95, ms | 200 | - | 100 |  | 2.00 |",
        "",
        "<!-- end -->",
        "",
        "The end.",
    ]


def test_the_page_has_the_rows_that_are_measured_for_it() -> None:
    text = manual.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- measured -->") == text.count("<!-- end -->") == 1
    assert text.count("| of nvitop |") == 1, "one table, made in one go"
    assert {str(case) for case, _ in of_manual()} == set(manual.ROWS)


def test_parts_are_chosen_by_their_names() -> None:
    assert [str(case) for case in cases(True, ["once"])] == ["once 8x200"]
    assert len(cases(False, ["80x24", "screen"])) == 6
    assert len(cases(True, [])) == 6
    assert [str(case) for case in cases(True, ["8x1000", "screen"])] == ["screen 8x1000 200x50"]
    assert cases(False, ["nothing"]) == []
