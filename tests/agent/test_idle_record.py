"""A single look knows for how long nothing has run, if a gputop has been watching."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

NOBODY = 4194305
GPUTOP = [sys.executable, "-m", "gputop"]


JOBS = {"job": ["python", "a.py"], "lazy": ["python", "b.py"], "worker": ["python", "c.py"]}


def idle_but_last(*pids: str | int) -> dict[str, Any]:
    """A machine of one GPU, with these on it."""
    listed = [{"pid": pid, "used": 2**30, "sm": 5 * (pid == pids[-1])} for pid in pids]
    gpu = {
        "name": "A",
        "uuid": "GPU-{i}",
        "memory": {"total": 2**37, "used": len(pids) * 2**30, "reserved": 0},
        "utilization": {"gpu": 0, "memory": 0},
        "compute": listed,
    }
    processes = {name: {"command": command} for name, command in JOBS.items() if name in pids}
    return {"gpu": gpu, "processes": processes}


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """Two processes that are idle, and one that works."""
    return machine(idle_but_last(*JOBS))


@pytest.fixture
def nowhere(machine: MachineFactory) -> Machine:
    """The same of processes that are not here."""
    return machine(idle_but_last(NOBODY, NOBODY + 1, NOBODY + 2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runtime" / "gputop"


def look(here: Machine) -> Json:
    done = here.run([*GPUTOP, "--json"])
    assert (done.returncode, done.stderr) == (0, "")
    frame: Json = json.loads(done.stdout)
    return frame


def idle_times(frame: Json) -> list[Any]:
    return [frame["gpus"][0]["idle_for"], *(process["idle_for"] for process in frame["processes"])]


def assert_last_is_not_idle(here: Machine) -> None:
    """The GPU and two processes are idle, which the record says; the third one works."""
    *idle, worker = idle_times(look(here))
    assert min(idle) >= 1.0
    assert worker is None


def recorded(agent: Agent, folder: Path, entries: int = 3) -> Path:
    """Its record, as soon as there is one of so many idle times, as of a GPU and two processes: the
    first that is long enough is written, and the others with the next record."""
    path = folder / f"{agent.process.pid}.idle"
    until(lambda: agent.line() and path.exists() and len(entries_of(path)) >= entries, within=30)
    return path


def entries_of(record: Path) -> list[Any]:
    entries: list[Any] = json.loads(record.read_bytes())[5]
    return entries


def held(agent: Agent, folder: Path, entries: int = 3) -> Path:
    """The same, and the agent writes no other: it is stopped, and lives."""
    path = recorded(agent, folder, entries)
    agent.process.send_signal(signal.SIGSTOP)
    return path


def aged(record: Path, seconds: float) -> None:
    """As if the agent had seen nothing else for so long."""
    change(record, lambda fields: [entry.__setitem__(2, seconds) for entry in fields[5]])


def change(record: Path, edit: Callable[[list[Any]], object]) -> None:
    fields = json.loads(record.read_bytes())
    edit(fields)
    record.write_text(json.dumps(fields))


def put_back(record: Path, text: str) -> None:
    """As its agent wrote it."""
    record.write_text(text)
    record.chmod(0o600)


def test_a_single_look_alone_knows_nothing(here: Machine, folder: Path) -> None:
    assert idle_times(look(here)) == [None] * 4
    assert "idle" not in here.run([*GPUTOP, "--once"]).stdout.lower()
    assert not folder.exists()


def test_it_takes_what_a_running_agent_knows(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        held(agent, folder)
        assert_last_is_not_idle(here)
        here.change(gpu=0, utilization={"gpu": 7})
        assert idle_times(look(here))[0] == 0.0


def test_of_who_is_not_here_too(nowhere: Machine, folder: Path) -> None:
    """Nothing is known of their starts."""
    with Agent(nowhere, interval=0.2) as agent:
        record = held(agent, folder)
        for edit in (lambda fields: fields, later):
            change(record, edit)
            assert_last_is_not_idle(nowhere)


def test_who_works_now_is_not_idle(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        held(agent, folder)
        here.change(gpu=0, compute=[{"pid": "job", "used": 1, "sm": 3}])
        assert idle_times(look(here))[1] == 0.0


def test_the_longest_of_several(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as first, Agent(here, interval=0.2) as second:
        one, other = held(first, folder), held(second, folder)
        for short, long in ((one, other), (other, one)):
            aged(short, 60.0)
            aged(long, 2460.0)
            assert idle_times(look(here))[:3] == [2460.0] * 3


def test_the_table_marks_them(here: Machine, folder: Path, tmp_path: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        record = held(agent, folder)
        aged(record, 2460.0)
        text = here.run([*GPUTOP, "--once"]).stdout
        assert re.search(r"^  0  A .* idle 41m00s$", text, re.MULTILINE)
        assert text.count("  41m00s  (idle 41m00s) ") == 2
        assert "(idle 41m00s) python a.py" in text
        settings = tmp_path / "config" / "gputop" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("[processes]\nidle_after = 3000\n")
        text = here.run([*GPUTOP, "--once"]).stdout
        assert "idle 41m" not in text
        assert "  41m00s  python a.py" in text


def selected(here: Machine, *words: str) -> str:
    """What `gputop kill` would signal, or why nothing."""
    done = here.run([*GPUTOP, "kill", *words, "--dry-run"])
    return done.stdout + done.stderr


def test_kill_knows_them_as_well(here: Machine, folder: Path) -> None:
    pid = here.pids["job"]
    unknown = "idle times are known only while a gputop of yours runs"
    assert unknown in selected(here, "idle>10m")
    with Agent(here, interval=0.2) as agent:
        record = held(agent, folder)
        assert unknown in selected(here, "idle>10m")
        aged(record, 2460.0)
        assert f"{pid} " in selected(here, "idle>10m")
        assert unknown in selected(here, "idle>1h")
        here.change(gpu=0, compute=[{"pid": "job", "used": 1, "sm": 3}])
        assert unknown in selected(here, "idle>10m")


def test_kill_spares_who_works_on_another_gpu(machine: MachineFactory, folder: Path) -> None:
    """As the workers of many a job, that hold something on the first GPU and use their own."""
    rank = {"command": ["python", "rank.py"], "on": {"gpu": 0, "used": 2**30}}
    lazy = {"command": ["python", "lazy.py"], "on": {"gpu": [0, 1], "used": 2**30}}
    gpu = {"uuid": "GPU-{i}", "memory": {"total": 2**37, "used": 0, "reserved": 0},
           "utilization": {"gpu": 0, "memory": 0}}  # fmt: skip
    here = machine({"gpu": gpu, "gpus": 2, "processes": {"rank": rank, "lazy": lazy}})
    with Agent(here, interval=0.2) as agent:
        aged(held(agent, folder, entries=5), 2460.0)
        told = selected(here, "idle>10m")
        assert "rank.py" in told
        assert "lazy.py" in told
        here.update(
            lambda scenario: scenario["gpus"][1]["compute"].append(
                {"pid": "rank", "used": 2**30, "sm": 40}
            )
        )
        for words in (["idle>10m"], ["idle"], ["sm<5"], ["idle", "--gpu", "0"]):
            assert "rank.py" not in selected(here, *words)
        assert "lazy.py" in selected(here, "idle>10m")
        assert "rank.py" in selected(here, "sm>30", "--gpu", "0")


def later(fields: list[Any]) -> None:
    """As if the number of each process were used again."""
    for entry in fields[5]:
        if entry[1] and entry[1]["start_ticks"]:
            entry[1]["start_ticks"] = 1


OLD: dict[str, Callable[[list[Any]], object]] = {
    "boot": lambda fields: fields.__setitem__(0, "another boot"),
    "start": lambda fields: fields.__setitem__(2, 1),
    "written": lambda fields: fields.__setitem__(3, 0.0),
}


def test_kill_believes_nothing_old(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        record = held(agent, folder)
        aged(record, 2460.0)
        good = record.read_text()
        for name, edit in OLD.items():
            change(record, edit)
            assert "no process on a GPU matches" in selected(here, "idle>10m"), name
            put_back(record, good)
        change(record, later)
        assert "a.py" not in selected(here, "idle>10m")
        put_back(record, good)
        assert "a.py" in selected(here, "idle>10m")


def test_the_end_of_an_agent_is_the_end_of_its_record(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        record = recorded(agent, folder)
        agent.close_stdin()
        assert agent.process.wait(60) == 0
        assert not record.exists()


def test_a_gputop_that_ends_leaves_nothing(here: Machine, folder: Path) -> None:
    watch = [*GPUTOP, "--json", "--watch", "-i", "0.2"]
    with subprocess.Popen(watch, stdout=subprocess.PIPE, env=here.env) as program:
        lines = program.stdout
        assert lines
        until(lambda: lines.readline() and folder.exists() and os.listdir(folder))
        lines.close()
        assert program.wait(60) == 0
    assert os.listdir(folder) == []


def test_what_the_dead_left_is_neither_believed_nor_kept(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        record = recorded(agent, folder)
        agent.process.kill()
        agent.process.wait()
        assert idle_times(look(here)) == [None] * 4
        assert not record.exists()


def test_what_is_not_of_now(here: Machine, folder: Path) -> None:
    """The last one: the writer lives, and has not written for long."""
    with Agent(here, interval=0.2) as agent:
        record = held(agent, folder)
        good = record.read_text()
        for name, edit in OLD.items():
            change(record, edit)
            assert idle_times(look(here)) == [None] * 4, name
            assert record.exists() == (name == "written")
            put_back(record, good)
        change(record, later)
        assert idle_times(look(here))[1:] == [None] * 3


GARBAGE = (b"", b"{", b"[]", b"\xff" * 100, b"[" * 100_000, b"null", b" " * (1 << 23))


def test_garbage_is_passed_over(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        held(agent, folder)
        for number, data in enumerate(GARBAGE):
            (folder / f"{number}.idle").write_bytes(data)
            old = folder / f"{number}.idle.next"
            old.write_bytes(data)
            os.utime(old, (1, 1))
        assert idle_times(look(here))[1] >= 1.0
    assert len(list(folder.glob("[0-6].idle"))) == len(GARBAGE)
    assert not list(folder.glob("*.next"))


def test_times_that_cannot_be(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        record = held(agent, folder)
        good = record.read_text()
        entry = re.compile(r"(\[\"GPU-0\",\{[^}]*\},)[^]]*\]")
        for number in ("-1", "1e300", "1e999", '"x"', "null", "NaN"):
            record.write_text(entry.sub(rf"\g<1>{number}]", good))
            assert number in record.read_text()
            assert idle_times(look(here)) == [None] * 4
        record.write_text(good)
        assert idle_times(look(here))[1] >= 1.0


def test_what_is_no_file(here: Machine, folder: Path, tmp_path: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        record = held(agent, folder)
        record.rename(tmp_path / "elsewhere")
        record.symlink_to(tmp_path / "elsewhere")
        os.mkfifo(folder / "7.idle")
        (folder / "8.idle").mkdir()
        assert idle_times(look(here)) == [None] * 4


@needs_root
def test_what_another_user_wrote(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        record = held(agent, folder)
        os.chown(record, 65534, -1)
        assert idle_times(look(here)) == [None] * 4
        os.chown(record, 0, -1)
        assert idle_times(look(here))[1] >= 1.0
        os.chown(folder, 65534, -1)
        assert idle_times(look(here)) == [None] * 4


def test_a_folder_that_others_may_write_to(here: Machine, folder: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        held(agent, folder)
        folder.chmod(0o777)
        assert idle_times(look(here)) == [None] * 4


@rest_long("obstacle", "file", "link", "absent", "readable")
def test_where_nothing_can_be_written(
    obstacle: str, here: Machine, folder: Path, tmp_path: Path
) -> None:
    if obstacle == "file":
        folder.touch()
    elif obstacle == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "target")
    elif obstacle == "readable":
        folder.mkdir(mode=0o755)
    else:
        folder.parent.rmdir()
    with Agent(here, interval=0.2) as agent:
        until(lambda: agent.line()["gpus"][0]["idle_for"] >= 1.5)
        assert idle_times(look(here)) == [None] * 4
        agent.close_stdin()
        assert agent.process.wait(60) == 0
        assert agent.process.stderr
        assert agent.process.stderr.read() == b""
    for path in (folder, tmp_path / "target"):
        assert not path.is_dir() or os.listdir(path) == []
