"""Programs that hold known memory on known GPUs, as gputop shows them: PID, GPU, memory, type,
SM%, the CUDA column, and what is left when they have ended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from gputop.agent.process.namespaces import in_first_namespace
from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame as ModelFrame
from tests.conftest import needed_namespaces
from tests.gpu.conftest import GPUTOP, Frame, Watch, query
from tests.gpu.cuda import MIB, Program
from tests.gpu.report import Report, Row

pytestmark = [pytest.mark.gpu, pytest.mark.system, pytest.mark.timeout(120)]

_GRAIN = 4
"""MiB by which memory may be rounded: the driver gives it out in pages of 2 MiB."""
_BUSY, _IDLE = 0.3, 0.05


def rows_on(frame: Frame, gpu: Frame, pid: int) -> list[Frame]:
    """Return the rows of a process on a GPU."""
    return [row for row in frame["processes"]
            if (row["pid"], row["gpu_uuid"]) == (pid, gpu["uuid"])]  # fmt: skip


def gpu_of(frame: Frame, gpu: Frame) -> Frame:
    return next(found for found in frame["gpus"] if found["uuid"] == gpu["uuid"])


def mib_of(frame: Frame, gpu: Frame, pid: int) -> float | None:
    """Return the MiB of a process on a GPU; None if it has no row, or no known memory."""
    rows = rows_on(frame, gpu, pid)
    return rows[0]["gpu_memory"] / MIB if len(rows) == 1 and rows[0]["gpu_memory"] else None


def ordinal_of(gpu: Frame) -> dict[str, str]:
    """Return variables under which a GPU is the only one, cuda:0."""
    return {"CUDA_VISIBLE_DEVICES": gpu["uuid"]}


def used_mib(frame: Frame, gpu: Frame) -> float:
    return float(gpu_of(frame, gpu)["memory_used"]) / MIB


def test_known_memory(free: list[Frame], watch: Watch, report: Report) -> None:
    gpu, steps, wrong = free[0], (256, 128, 384), []
    before = watch.until(lambda frame: True)
    rows: list[Row] = []
    with Program(64, variables=ordinal_of(gpu)) as program:
        start = last = watch.until(lambda f: rows_on(f, gpu, program.pid))
        base = mib_of(start, gpu, program.pid)
        for step in steps:
            program.tell("alloc", step)
            frame = watch.until(lambda f: True)
            both = mib_of(last, gpu, program.pid), mib_of(frame, gpu, program.pid)
            grown = None if None in both else both[1] - both[0]  # type: ignore[operator]
            of_gpu = used_mib(frame, gpu) - used_mib(last, gpu)
            if grown is None or not -_GRAIN <= grown - step <= _GRAIN:
                wrong.append(f"it took {step} MiB, and the process has {grown} MiB more")
            if not -_GRAIN <= of_gpu - step <= _GRAIN:
                wrong.append(f"it took {step} MiB, and GPU {gpu['index']} has {of_gpu} MiB more")
            rows.append({"taken": step, "process": grown, "GPU": of_gpu})
            last = frame
        [row] = rows_on(last, gpu, program.pid)
        theirs = {
            int(a["pid"]): a["used_memory"]
            for a in query("compute-apps", "gpu_uuid", "pid", "used_memory")
        }
        if theirs.get(program.pid) != str((row["gpu_memory"] or 0) // MIB):
            wrong.append(
                f"gputop {row['gpu_memory']} bytes, nvidia-smi {theirs.get(program.pid)} MiB"
            )
        if (row["type"], row["elsewhere"]) != ("C", False):
            wrong.append(f"type {row['type']}, elsewhere {row['elsewhere']}")
    overhead = None if base is None else base - 64
    kept = used_mib(start, gpu) - used_mib(before, gpu)
    report.note("processes", {"MiB of a context": overhead, "MiB it costs the GPU": kept - 64})
    report.table("processes", "Memory that was taken, in MiB", rows)
    report.differ("memory of a process", wrong)


def test_sm_utilization(free: list[Frame], watch: Watch, report: Report) -> None:
    gpu, wrong = free[0], []

    def sm(frame: Frame, program: Program) -> float | None:
        return next((row["sm_utilization"] for row in rows_on(frame, gpu, program.pid)), None)

    with Program(64, variables=ordinal_of(gpu)) as program:
        watch.until(lambda frame: rows_on(frame, gpu, program.pid))
        program.tell("run")
        seen: list[float | None] = []

        def is_busy(frame: Frame) -> bool:
            seen.append(sm(frame, program))
            return (seen[-1] or 0) >= _BUSY and (gpu_of(frame, gpu)["utilization"] or 0) >= _BUSY

        try:
            watch.until(is_busy)
        except AssertionError as error:
            wrong.append(f"kernels run, and gputop shows SM% {seen[-5:]}: {error}")
        program.tell("stop")
        try:
            watch.until(lambda frame: (sm(frame, program) or 0) <= _IDLE)
        except AssertionError as error:
            wrong.append(f"no kernel runs, and gputop shows work: {error}")
    report.note("processes", {"SM% while kernels run": max((s for s in seen if s), default=None)})
    report.differ("SM% of a process", wrong)


def test_cuda_column(free: list[Frame], watch: Watch, report: Report) -> None:
    wrong = []
    for gpu in free[:2]:
        # In the middle of a list: neither its index nor the first.
        others = [other["uuid"] for other in free if other is not gpu][:1]
        value, wanted = ",".join([*others, gpu["uuid"]]), f"cuda:{len(others)}"
        variables = {"CUDA_VISIBLE_DEVICES": value, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        with Program(64, ordinal=len(others), variables=variables) as program:
            pid = program.pid

            def names(frame: Frame, pid: int = pid) -> list[str | None]:
                model = msgspec.convert(frame, ModelFrame)
                rows = [row for row in model.processes if row.pid == pid and row.cuda_context]
                return [LogicalNames(model).name(row) for row in rows]

            frame = watch.until(names)
            on = [row["gpu_uuid"] for row in frame["processes"] if row["pid"] == pid]
            if on != [gpu["uuid"]]:
                wrong.append(f"a program on {gpu['uuid']} is shown on {on}")
            # `cuda:1?` is likely: Python may change its variables before CUDA reads them.
            if [(name or "").rstrip("?") for name in names(frame)] != [wanted]:
                wrong.append(f"{wanted} under {value} is shown as {names(frame)}")
    report.differ("CUDA column", wrong)


def test_memory_is_back_after_a_kill(free: list[Frame], watch: Watch, report: Report) -> None:
    gpu, wrong = free[0], []
    before = watch.until(lambda frame: True)
    with Program(512, variables=ordinal_of(gpu)) as program:
        watch.until(lambda frame: rows_on(frame, gpu, program.pid))
        words = [*GPUTOP, "kill", str(program.pid), "--signal", "KILL", "--yes", "--json"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as kill:
            program.wait()  # as a parent does: it would be a zombie
            said, _ = kill.communicate()
        if kill.returncode != 0:
            wrong.append(f"gputop kill: {said}")
        try:
            watch.until(lambda frame: not rows_on(frame, gpu, program.pid)
                        and used_mib(frame, gpu) - used_mib(before, gpu) < 256)  # fmt: skip
        except AssertionError as error:
            wrong.append(
                f"{program.pid} is killed, and its row or its memory is still there: {error}"
            )
    report.differ("after a kill", wrong)


def test_ends_while_it_is_looked_at(free: list[Frame], watch: Watch, report: Report) -> None:
    gpu, wrong, pids = free[0], [], []
    for _ in range(6):
        with Program(32, variables=ordinal_of(gpu)) as program:
            pids.append(program.pid)
            program.end()
        frame = watch.until(lambda frame: True)
        if frame["problem"] or gpu_of(frame, gpu)["error"]:
            wrong.append(f"{frame['problem'] or gpu_of(frame, gpu)['error']}")
    try:
        watch.until(lambda frame: not any(rows_on(frame, gpu, pid) for pid in pids))
    except AssertionError as error:
        wrong.append(f"programs that have ended are still shown: {error}")
    report.differ("a program that ends", wrong)


def test_in_a_pid_namespace(free: list[Frame], watch: Watch, report: Report) -> None:
    gpu, wrong, options = free[0], [], needed_namespaces()
    within = ["unshare", *options, "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with Program(256, variables=ordinal_of(gpu), within=within) as program:
        outer = int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()[0])
        enter = [
            "nsenter",
            f"--target={outer}",
            "--pid",
            "--mount",
            *(["--user"] if options else []),
        ]
        inside = subprocess.run(
            [*enter, *GPUTOP, "--json"], capture_output=True, text=True, check=False
        )
        assert inside.returncode == 0, inside.stderr
        frame: Frame = json.loads(inside.stdout)
        shown = rows_on(frame, gpu, program.own_pid)
        elsewhere = [row["pid"] for row in frame["processes"] if row["elsewhere"]]
        version = frame["driver_version"]
        if not shown and not elsewhere and gpu_of(frame, gpu)["listed"] == "all":
            wrong.append(f"inside, gputop says that nobody is on GPU {gpu['index']}")
        if _newer_than(version, 570) and not (shown and mib_of(frame, gpu, program.own_pid)):
            wrong.append(f"inside, PID {program.own_pid} is not shown with its memory: {shown}")
        if in_first_namespace():
            seen = watch.until(lambda frame: True)
            if not mib_of(seen, gpu, outer):
                wrong.append(f"outside, PID {outer} is not shown with its memory")
    report.note(
        "processes", {"in a PID namespace": "its own PIDs" if shown else "not its own PIDs"}
    )
    report.differ("a PID namespace", wrong)


def _newer_than(version: str, branch: int) -> bool:
    """Return whether a driver is of a later branch."""
    return int(version.split(".")[0]) > branch
