"""`gputop usage`: what it prints of recordings, and a real recording against its scenario."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.manual import page
from gputop.model.machine.frame import Frame
from gputop.recording.reader import Recording
from gputop.recording.writer import RecordingWriter
from tests.agent.driving import Json
from tests.builders import GIB, frame, gpu, process
from tests.conftest import ME, MachineFactory
from tests.patience import until

GPUTOP = [sys.executable, "-m", "gputop"]
NOON = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
MINUTE = 60.0


def record(path: Path, frames: Iterable[Frame], host: str = "node") -> Path:
    writer = RecordingWriter(str(path), every=MINUTE)
    for each in frames:
        writer.append(host, each)
    writer.close()
    return path


def at(minute: int, *users: str | None, **fields: Any) -> Frame:
    """A frame of a GPU at half load that draws 600 W, with a process of each user."""
    card = gpu(listed="all", power=600.0)
    here = [process(pid, user=user, **{"sm_utilization": 0.5, "gpu_memory": 20 * GIB, **fields})
            for pid, user in enumerate(users, 1)]  # fmt: skip
    return frame([card], here, time=NOON + minute * MINUTE)


def usage(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["usage", *map(str, words)])
    return (status, *capfd.readouterr())


def test_the_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As the manual shows it."""
    table = page("recording").split("$ gputop usage --since 3h\n")[1].split("```")[0]
    hour = [at(minute, "alice") for minute in range(61)]
    later = [at(minute, "alice", "bob") for minute in range(120, 151)]
    path = record(tmp_path / "a.gputop", [*hour, *later, *(at(m) for m in range(151, 181))])
    assert usage(capfd, path, "--since", "3h") == (0, table, "")


def test_json_and_several_hosts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "a.gputop", [at(minute, "alice") for minute in range(61)], "a")
    record(path, [at(minute, None) for minute in range(31)], "b")
    status, out, err = usage(capfd, path, "--json")
    report = json.loads(out)
    figures = {"idle_gpu_hours": 0, "unknown_gpu_hours": 0, "peak_memory_bytes": 20 * GIB}
    alice = {"held_gpu_hours": 1, "worked_gpu_hours": 0.5, "energy_kwh": 0.6, **figures}
    nobody = {"held_gpu_hours": 0.5, "worked_gpu_hours": 0.25, "energy_kwh": 0.3, **figures}
    assert report["rows"] == [{"user": "alice", **alice}, {"user": None, **nobody}]
    assert report["total"]["held_gpu_hours"] == 1.5
    assert report["hosts"] == [_host("a", 3600, 0, 0), _host("b", 1800, 1800, 1)]
    assert (status, err) == (0, "")
    text = usage(capfd, path, "--by", "gpu")[1]
    assert [line.split()[:4] for line in text.splitlines()[2:5]] == [
        ["HOST", "GPU", "NAME", "HELD"], ["a", "0", "H200", "1.00"], ["b", "0", "H200", "0.50"]
    ]  # fmt: skip
    assert "b: not recorded: 30m00s of 1h00m (1 gap)\n" in text


def _host(name: str, recorded: float, missing: float, gaps: int) -> Json:
    return {"host": name, "recorded_seconds": recorded, "missing_seconds": missing, "gaps": gaps,
            "unread_seconds": 0}  # fmt: skip


def test_work_that_is_not_known_is_not_zero(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    frames = [at(minute, "alice", sm_utilization=None, gpu_memory=None) for minute in range(61)]
    frames = [replace(each, gpus=(replace(each.gpus[0], power=None),)) for each in frames]
    path = record(tmp_path / "a.gputop", frames)
    text = usage(capfd, path)[1]
    assert text.splitlines()[3].split() == ["alice", "1.00", "-", "-", "1.00", "-", "-"]
    assert "energy not known: 1.00 GPU-hours held\n" in text
    [row] = csv.DictReader(io.StringIO(usage(capfd, path, "--csv")[1]))
    assert [name for name, cell in row.items() if cell == ""] == [
        "worked_gpu_hours", "idle_gpu_hours", "peak_memory_bytes", "energy_kwh"
    ]  # fmt: skip
    idle = record(tmp_path / "b.gputop", [replace(each, processes=()) for each in frames])
    assert "nobody: 1.00 GPU-hours, -\n" in usage(capfd, idle)[1]
    values = json.loads(usage(capfd, idle, "--json")[1])
    assert (values["unheld_gpu_hours"], values["unheld_kwh"]) == (1.0, None)


def test_little_is_not_nothing_and_a_long_name_is_cut(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    moments = [replace(at(0, "a" * 99), time=NOON + second) for second in (0, 10)]
    lines = usage(capfd, record(tmp_path / "a.gputop", moments))[1].splitlines()
    assert lines[3].split() == [
        "a" * 39 + "…", "<0.01", "<0.01", "0", "0", "20.0G", "<0.01", "kWh"
    ]  # fmt: skip
    assert lines[-1] == "nobody: 0 GPU-hours, 0 kWh"


def test_names_that_a_spreadsheet_would_compute(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["=1+1", "+1", "-1", "@SUM(1)", "\uff1d1", '"a",=1\x1b[2J', "alice"]
    path = record(tmp_path / "a.gputop", [at(minute, *names) for minute in (0, 1, 60)])
    status, out, err = usage(capfd, path, "--csv")
    users = {row["user"] for row in csv.DictReader(io.StringIO(out))}
    assert users == {"'=1+1", "'+1", "'-1", "'@SUM(1)", "'\uff1d1", '"a",=1\ufffd[2J', "alice"}
    assert (status, "\x1b" in out) == (0, False)
    assert "gputop: not recorded: 59m00s of 1h00m (1 gap)\n" in err


def test_a_part_of_the_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "a.gputop", [at(minute, "alice") for minute in range(61)])

    def held(*words: str) -> float:
        hours: float = json.loads(usage(capfd, path, "--json", *words)[1])["total"][
            "held_gpu_hours"
        ]
        return hours

    assert held("--since", "30m") == 0.5
    assert held("--until", "30m", "--since", "15m") == 0.25
    assert held("--since", "2026-11-20 12:45") == held("--since", "12:45") == 0.25
    assert held("--since", "2026-11-20", "--until", "2026-11-20T12:30:00") == 0.5


def test_rows_of_users_and_hosts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "a.gputop", [at(minute, "alice", None) for minute in range(61)], "a")
    record(path, [at(minute, "alice") for minute in range(31)], "b")
    lines = usage(capfd, path, "--by", "user,host")[1].splitlines()
    assert lines[0].startswith("GPU-hours by user and host, ")
    assert [re.split(" {2,}", line)[:3] for line in lines[2:6]] == [
        ["USER", "HOST", "HELD"], ["(not known)", "a", "1.00"], ["alice", "a", "1.00"],
        ["alice", "b", "0.50"],
    ]  # fmt: skip
    rows = json.loads(usage(capfd, path, "--by", "job,user,host", "--json")[1])["rows"]
    assert [list(row)[:3] for row in rows] == [["job", "user", "host"]] * 3
    assert "(no job)" not in usage(capfd, path, "--by", "job")[1]  # nothing tells


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["--since", "soon"], 2, "--since 'soon' is not a time: write 2026-11-21, "),
        (["--since", "2026-11-20 13:00"], 2, "--since 2026-11-20 13:00:00 is not before"),
        (["--since", "2026-11-01", "--until", "2026-11-02"], 1, "nothing is recorded from"),
        (
            ["--by", "pid"],
            2,
            "unknown --by 'pid': choose from user, gpu, job, account, command, host",
        ),
        (
            ["--by", "user,"],
            2,
            "unknown --by '': choose from user, gpu, job, account, command, host",
        ),
        (["--csv", "--json"], 2, "--json cannot be used with --csv"),
    ],
)
def test_what_cannot_be_added_up(
    words: list[str], status: int, complaint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "a.gputop", [at(minute, "alice") for minute in range(3)])
    result = usage(capfd, path, *words)
    assert result[:2] == (status, "")
    assert complaint in result[2]
    assert result[2].count("\n") == 1


def test_without_a_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = usage(capfd)
    assert (status, out) == (1, "")
    assert err.startswith("gputop: nothing is recorded in /")
    folder = tmp_path / "state" / "gputop" / "recordings"
    folder.mkdir(parents=True, mode=0o700)
    assert "gputop record makes one" in usage(capfd)[2]
    recent = (replace(at(0, "alice"), time=time.time() - ago) for ago in (120.0, 60.0))
    record(folder, recent)
    status, out, err = usage(capfd)
    assert "alice" in out
    assert "not recorded: 6d23h of 7d00h (1 gap)\n" in out


def test_what_is_damaged_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "a.gputop", [at(minute, "alice") for minute in range(61)])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5)
    status, out, _ = usage(capfd, path)
    assert (status, "1 sample is cut off a.gputop" in out) == (0, True)


def test_names_of_files_are_made_harmless(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a note of usage, of its CSV, and of replay."""
    record(tmp_path / "a.gputop", [at(0, "alice"), at(1, "alice")])
    evil = tmp_path / "\x1b]0;owned\x07\u202e.gputop"
    evil.write_bytes((tmp_path / "a.gputop").read_bytes()[:-5])
    os.mkfifo(tmp_path / "\x1b[2Jpipe\udcff.gputop")
    for form in ([], ["--csv"], ["--json"]):
        _, out, err = usage(capfd, tmp_path, *form)
        assert "cannot be read: no regular file" in out + err
        assert all(line.isprintable() for line in (out + err).splitlines())
    losses = Recording(tmp_path).losses
    assert len(losses) == 2
    assert all(loss.isprintable() for loss in losses)


@pytest.mark.system
def test_a_real_recording_agrees_with_its_scenario(
    machine: MachineFactory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two GPUs of 360 W: two processes work on one at 50 and 25 % until one of them is killed; one
    on the other does nothing. Nothing of it is taken from what gputop calculates."""
    steady = {"power": {"usage": 360000}, "energy": None}
    here = machine({"base": "h200x8", "gpus": 2, "gpu": steady, "processes": None})
    here.spawn("train", ["python", "train.py"], gpu=0, used=2 * GIB, sm=50, mem=0)
    here.spawn("eval", ["python", "eval.py"], gpu=0, used=GIB, sm=25, mem=0)
    here.spawn("idle", ["python", "idle.py"], gpu=1, used=3 * GIB)
    path = tmp_path / "a.gputop"
    recorder = here.popen([*GPUTOP, "record", str(path), "--every", "1s"])
    _wait_for_samples(path, 4)
    killed = time.time()
    here.kill("eval")
    _wait_for_samples(path, 7)
    recorder.send_signal(signal.SIGTERM)
    assert recorder.wait(60) == 0
    times = list(Recording(path).times(Recording(path).hosts[0]))
    span = times[-1] - times[0]
    both = max(when for when in times if when < killed) - times[0]
    rows = {row["command"]: row for row in _rows(capfd, path, "command")}
    hours, kwh = span / 3600, 0.36 * span / 3600
    assert rows["train.py"]["held_gpu_hours"] == pytest.approx(hours, abs=1e-6)
    assert rows["train.py"]["worked_gpu_hours"] == pytest.approx(hours / 2, abs=1e-6)
    assert rows["eval.py"]["held_gpu_hours"] == pytest.approx(both / 3600, abs=1e-6)
    assert rows["eval.py"]["worked_gpu_hours"] == pytest.approx(both / 3600 / 4, abs=1e-6)
    assert rows["eval.py"]["energy_kwh"] == pytest.approx(0.36 * both / 3600 / 3, abs=1e-6)
    assert rows["idle.py"]["idle_gpu_hours"] == pytest.approx(hours, abs=1e-6)
    assert rows["idle.py"]["peak_memory_bytes"] == 3 * GIB
    [mine] = _rows(capfd, path, "user")
    assert mine["user"] == ME
    assert mine["held_gpu_hours"] == pytest.approx(2 * hours, abs=1e-6)
    assert mine["energy_kwh"] == pytest.approx(2 * kwh, abs=1e-6)


def _wait_for_samples(path: Path, count: int) -> None:
    def samples() -> int:
        if not path.exists() or not path.stat().st_size:
            return 0
        recording = Recording(path)
        return len(recording.times(recording.hosts[0])) if recording.hosts else 0

    until(lambda: samples() >= count, 30, samples)


def _rows(capfd: pytest.CaptureFixture[str], path: Path, by: str) -> list[Json]:
    rows: list[Json] = json.loads(usage(capfd, path, "--json", "--by", by)[1])["rows"]
    return rows
