"""The simulated driver when calls fail, wait or hang; its log, its runner, its scenarios."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import rest_long
from tests.driver import BuildError, Machine, ScenarioError, build, load, names
from tests.driver.client import Client, ask, command
from tests.driver.machine import REPOSITORY

pytestmark = pytest.mark.system

TEMPERATURE = "[answer(nvmlDeviceGetTemperature, gpu, 0) for gpu in gpus()]"


# Errors, latency, hangs


@pytest.mark.parametrize(
    ("scenario", "error"),
    [
        ("no-driver", "NVMLError_DriverNotLoaded"),
        ("mismatch", "NVMLError_LibRmVersionMismatch"),
        ("no-permission", "NVMLError_NoPermission"),
    ],
)
def test_init_fails(scenario: str, error: str, tmp_path: Path) -> None:
    with Machine({"base": scenario, "processes": None}, tmp_path) as machine:
        code = "say([answer(nvmlInit), answer(nvmlDeviceGetCount)])"
        assert ask(machine, code, init=False) == [error, "NVMLError_Uninitialized"]


def test_a_gpu_is_lost_and_comes_back(tmp_path: Path) -> None:
    with Machine({"gpu": {"temperature": 50}, "gpus": 3}, tmp_path) as machine:
        client = Client(machine)
        assert client.ask(TEMPERATURE) == [50, 50, 50]
        machine.fail("nvmlDeviceGetTemperature", "GPU_IS_LOST", gpu=1)
        assert client.ask(TEMPERATURE) == [50, "NVMLError_GpuIsLost", 50]
        machine.heal()
        machine.change(gpu=2, temperature=90)
        assert client.ask(TEMPERATURE) == [50, 50, 90]


def test_errors_begin_and_end_with_time(tmp_path: Path) -> None:
    scenario = {"gpu": {"temperature": 50}, "calls": load("lost")["calls"], "gpus": 4}
    with Machine({**scenario, "frozen_at": 0}, tmp_path) as machine:
        client = Client(machine)
        told = []
        for second in (2, 3, 9, 10):
            machine.freeze(second)
            told.append(client.ask(f"answer(lambda: {TEMPERATURE})"))
    lost = "NVMLError_GpuIsLost"
    assert told == [[50] * 4, lost, lost, [50] * 4]


def test_a_hung_gpu_does_not_stop_the_others(tmp_path: Path) -> None:
    with Machine({"gpu": {"temperature": 50}, "gpus": 16}, tmp_path) as machine:
        machine.hang("nvmlDeviceGetTemperature", gpu=3)
        program = machine.popen(
            command(
                """
                    import threading
                    handles = gpus()
                    told, lock = [], threading.Lock()
                    def read(i):
                        for _ in range(20):
                            nvmlDeviceGetTemperature(handles[i], 0)
                        with lock:
                            told.append(i)
                    threads = [threading.Thread(target=read, args=(i,)) for i in range(16)]
                    for thread in threads:
                        thread.start()
                    for thread in threads[:3] + threads[4:]:
                        thread.join()
                    say(sorted(told))
                    threads[3].join()
                    say(sorted(told))
                    """
            )
        )
        assert program.stdout
        assert json.loads(program.stdout.readline()) == [0, 1, 2, *range(4, 16)]
        assert program.poll() is None
        machine.heal()
        assert json.loads(program.stdout.readline()) == list(range(16))


def test_a_hang_without_end_is_ended_by_sigkill_alone(tmp_path: Path) -> None:
    with Machine("init-hang", tmp_path, log=True) as machine:
        program = machine.popen(command(""))
        while not machine.calls():
            time.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(timeout=0.2)
        program.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(timeout=0.2)
        program.kill()
        assert program.wait(timeout=10) == -9


def test_a_slow_call_takes_its_time(tmp_path: Path) -> None:
    with Machine({"gpu": {"temperature": 50}, "gpus": 2}, tmp_path) as machine:
        machine.slow("nvmlDeviceGetTemperature", 200, gpu=1)
        seconds = ask(
            machine,
            """
            import time
            def took(h):
                start = time.monotonic()
                nvmlDeviceGetTemperature(h, 0)
                return time.monotonic() - start
            say([took(h) for h in gpus()])
            """,
        )
    assert seconds[1] >= 0.2
    assert seconds[0] < seconds[1]


# The log, the command, the scenarios


def test_calls_are_logged(tmp_path: Path) -> None:
    with Machine({"gpu": {"name": "A"}, "gpus": 2}, tmp_path, log=True) as machine:
        ask(machine, "say([nvmlDeviceGetName(h) for h in gpus()])")
        assert machine.calls() == [
            ("nvmlInitWithFlags", None),
            ("nvmlDeviceGetCount_v2", None),
            ("nvmlDeviceGetHandleByIndex_v2", 0),
            ("nvmlDeviceGetHandleByIndex_v2", 1),
            ("nvmlDeviceGetName", 0),
            ("nvmlDeviceGetName", 1),
        ]
        machine.forget_calls()
        assert machine.calls() == []


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["/nowhere/program"], 127),
    ],
)
def test_the_runner_gives_the_programs_exit_code(program: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.driver", "h200x8", "--", *program],
        cwd=REPOSITORY,
        check=False,
        timeout=30,
    )
    assert done.returncode == code


def test_errors_are_one_line() -> None:
    with pytest.raises(ScenarioError, match="no scenario nowhere"):
        load("nowhere")
    with pytest.raises(BuildError, match="no driver era 400"):
        build.library(era=400)
    with pytest.raises(ScenarioError, match="no NVML error is called OOPS"):
        Machine({"calls": [{"error": "OOPS"}]}).__enter__()


@rest_long("name", *names())
def test_every_scenario_starts(name: str, tmp_path: Path) -> None:
    with Machine(name, tmp_path) as machine:
        assert set(machine.pids) == set(machine.scenario["processes"])
        gpus = machine.scenario["gpus"]
        assert len({gpu["uuid"] for gpu in gpus}) == len(gpus)
        assert len({gpu["pci"]["bus_id"] for gpu in gpus}) == len(gpus)
