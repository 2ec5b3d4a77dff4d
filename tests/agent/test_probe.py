"""Asking the CUDA driver, in real child processes that load a simulated libcuda.so.1."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gputop.agent.probe import Prober
from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.inventory import Inventory
from gputop.model.cuda.probe import compare, probed_order
from gputop.model.cuda.resolve import resolve
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.gpu import MigDevice
from gputop.model.machine.probed import Probed, ProbedDevice
from tests.conftest import MachineFactory
from tests.driver import Machine
from tests.patience import until

NOTHING = Inventory(())
MIG_UUID = "MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb"
BOX: dict[str, Any] = {
    "gpu": {
        "name": "NVIDIA H200",
        # Bytes of NUL, at which text would end; all begin alike.
        "uuid": "GPU-5e00000{i}-0000-4000-8000-00000000000{i}",
        "pci": {"bus_id": {"each": ["00000000:C1:00.0", "00000000:0A:00.0", "00000001:02:00.0"]}},
    },
    "gpus": 3,
}
BY_BUS_ID = [1, 0, 2]

Here = Callable[..., Machine]


@pytest.fixture
def here(machine: MachineFactory, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Make a machine on which this process runs, with other variables than those asked for."""

    def make(scenario: dict[str, Any] = BOX, **options: Any) -> Machine:
        made = machine(scenario, **options)
        for name, text in made.env.items():
            monkeypatch.setenv(name, text)
        monkeypatch.setenv(NAME, "7")
        monkeypatch.setenv(ORDER, "nonsense")
        return made

    return make


def inventory(machine: Machine) -> Inventory:
    gpus = machine.scenario["gpus"]
    devices = [CudaDevice(g["index"], g["uuid"], g["pci"]["bus_id"], g["name"]) for g in gpus]
    return Inventory(tuple(devices), machine.scenario["driver_version"])


def indices(probed: Probed, machine: Machine) -> list[int]:
    """NVML's indices of what the driver showed."""
    uuids = [gpu["uuid"] for gpu in machine.scenario["gpus"]]
    return [uuids.index(f"GPU-{device.uuid}") for device in probed.devices or ()]


# What the driver says


@pytest.mark.system
def test_a_device(here: Here) -> None:
    """Raw bytes of the UUID, and the bus id in CUDA's own form."""
    machine = here()
    assert Prober().ask("0", None, inventory(machine)) == Probed(
        (ProbedDevice("5e000000-0000-4000-8000-000000000000", "0000:c1:00.0", "NVIDIA H200"),),
        value="0",
    )


@pytest.mark.system
@pytest.mark.parametrize(
    ("order", "expected"),
    [("PCI_BUS_ID", BY_BUS_ID), ("FASTEST_FIRST", [2, 0, 1]), (None, [2, 0, 1])],
)
def test_the_order_makes_a_mapping_exact(
    here: Here, order: str | None, expected: list[int]
) -> None:
    machine = here({**BOX, "cuda_order": [2, 0, 1]})
    machines = inventory(machine)
    prober = Prober()
    seen = probed_order([prober.ask(None, order, machines)], order, machines.devices)
    assert seen == tuple(expected)
    answer = resolve("2,0", machines.devices, order=order, cuda_order=seen)
    assert answer.certainty == "exact"
    verdict = compare(answer, prober.ask("2,0", order, machines))
    assert (verdict.ok, verdict.reason) == (True, "verified by the driver")


GPU_0, GPU_2 = (f"GPU-5e00000{i}-0000-4000-8000-00000000000{i}" for i in (0, 2))


@pytest.mark.system
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(None, [1, 0, 2]), ("2,1", [2, 0]), ("0,2,-1,1", [1, 2]), ("1,5,0", [0])],
        *[("0, 1", [1, 0]), ("+1", [0]), ("1gpu", [0]), ("0x1", [1]), ("0,,1", [1])],
        *[(GPU_2, [2]), (f"{GPU_2[:12]},{GPU_0[:12]}", [2, 0]), (f"{GPU_2},1", [2])],
        *[("", []), ("-1", []), ("0,0", []), ("3", []), ("none", []), ("GPU-5e", [])],
        *[(f"{GPU_0},GPU-5e000000", []), (f"0,{GPU_2}", [1]), ("GPU-0,1", []), ("0,1,0,7", [])],
    ],
)
def test_gputop_and_a_parser_of_its_own_agree(
    here: Here, value: str | None, expected: list[int]
) -> None:
    machine = here()
    machines = inventory(machine)
    probed = Prober().ask(value, "PCI_BUS_ID", machines)
    assert probed.problem is None
    assert indices(probed, machine) == expected
    assert compare(resolve(value, machines.devices, order="PCI_BUS_ID"), probed).ok is True


@pytest.mark.system
def test_it_takes_nothing_of_the_gpu(here: Here) -> None:
    machine = here(log=True)
    Prober().ask(None, None, NOTHING)
    assert {function for function, _ in machine.calls()} == {
        *("cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"),
        *("cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId"),
    }


@pytest.mark.system
def test_modules_of_the_directory_are_not_imported(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here()
    for name in ("ctypes", "json", "uuid", "gputop", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert len(Prober().ask(None, None, NOTHING).devices or ()) == 3


# Answers are remembered, failures are not


@pytest.mark.system
def test_an_answer_is_remembered(here: Here) -> None:
    machine = here(log=True)
    machines, prober = inventory(machine), Prober()

    def questions() -> int:
        return machine.calls().count(("cuInit", None))

    first = prober.ask("0,1", None, machines)
    assert prober.ask("0,1", None, machines) == first
    assert questions() == 1
    prober.ask("", None, machines)
    prober.ask("", None, machines)
    assert questions() == 2
    prober.ask("0,1", "PCI_BUS_ID", machines)
    prober.ask("0,1", None, Inventory(machines.devices, "590.1"))
    prober.ask("0,1", None, Inventory(machines.devices[:2], machines.driver_version))
    assert questions() == 5


@pytest.mark.system
def test_a_failure_is_not_remembered(here: Here) -> None:
    machine = here()
    prober = Prober()
    machine.fail("cuInit", 999)
    assert prober.ask(None, None, NOTHING).devices is None
    machine.heal()
    assert len(prober.ask(None, None, NOTHING).devices or ()) == 3


@pytest.mark.system
@pytest.mark.long
def test_what_is_remembered_is_bounded(here: Here) -> None:
    machine = here(log=True)
    machines, prober = inventory(machine), Prober()
    for number in range(20):
        prober.ask(str(number), None, machines)
        prober.ask(None, None, machines)  # used, and so not the oldest
    expected = [*(str(number) for number in range(5, 20)), None]
    assert [answer.value for answer in prober._answers.values()] == expected
    assert machine.calls().count(("cuInit", None)) == 21


# What goes wrong


@pytest.mark.system
@pytest.mark.parametrize(
    ("function", "error", "problem"),
    [
        ("cuInit", 999, "cuInit failed with CUDA error 999"),
        ("cuDeviceGetUuid_v2", 101, "cuDeviceGetUuid_v2 failed with CUDA error 101"),
        ("cuInit", -11, "the process that asked it died of signal 11 (Segmentation fault)"),
    ],
)
def test_errors(here: Here, function: str, error: int, problem: str) -> None:
    here().fail(function, error)
    probed = Prober().ask("0", "PCI_BUS_ID", NOTHING)
    assert probed == Probed(problem=problem, value="0", order="PCI_BUS_ID")
    verdict = compare(resolve("0", ()), probed)
    assert (verdict.ok, verdict.reason) == (None, f"the driver could not be asked: {problem}")


@pytest.mark.system
def test_no_device_is_an_answer(here: Here) -> None:
    here().fail("cuInit", 100)
    assert Prober().ask(None, None, NOTHING) == Probed(())


@pytest.mark.system
def test_no_libcuda(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be loaded stands for none: this machine may have a real one."""
    here()
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    problem = Prober().ask("0", None, NOTHING).problem or ""
    assert problem.startswith("libcuda.so.1 cannot be loaded: ")


@pytest.mark.system
def test_a_libcuda_without_cuda(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Path(here().env["LD_LIBRARY_PATH"].split(":")[0]) / "libnvidia-ml.so.1"
    shutil.copy(library, tmp_path / "libcuda.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    problem = Prober().ask("0", None, NOTHING).problem or ""
    assert problem.startswith("the process that asked it ended with status 1: AttributeError: ")
    assert problem.endswith("undefined symbol: cuInit")


@pytest.mark.system
@pytest.mark.parametrize("value", ["0\0", "\ud800", "0," * 100_000])
def test_a_value_that_no_environment_can_hold(here: Here, value: str) -> None:
    here()
    problem = Prober().ask(value, None, NOTHING).problem or ""
    assert problem.startswith("no process can be started: ")


@pytest.mark.system
def test_a_driver_that_hangs(here: Here) -> None:
    machine = here()
    machine.hang("cuInit", wakes=False)
    prober = Prober(seconds=0.2)
    problem = "the CUDA driver did not answer within 0.2 s"
    assert prober.ask(None, None, NOTHING).problem == problem
    until(lambda: prober.ask(None, None, NOTHING).problem == problem)  # the first one was killed


@pytest.mark.system
def test_a_child_that_cannot_be_killed_is_left_alone(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that waits in the kernel: SIGKILL comes to nothing, and no other follows it."""
    machine = here(log=True)
    machine.hang("cuInit")
    prober = Prober(seconds=0.5)
    stopped: list[int] = []

    def stop(pid: int, _: int) -> None:
        """It does not even notice that its asker left it."""
        until(machine.calls)
        os.kill(pid, signal.SIGSTOP)
        stopped.append(pid)

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", stop)
        assert prober.ask(None, None, NOTHING).problem == (
            "the CUDA driver did not answer within 0.5 s"
        )
        assert prober.ask(None, None, NOTHING).problem == (
            "an earlier query still hangs in the CUDA driver"
        )
    assert machine.calls() == [("cuInit", None)]
    machine.heal()
    os.kill(stopped[0], signal.SIGKILL)
    until(lambda: prober.ask(None, None, NOTHING).devices is not None)


# MIG


def mig_gpu(*instances: MigDevice) -> CudaDevice:
    return CudaDevice(0, GPU_0, "00000000:C1:00.0", "A100", mig_enabled=True, mig=instances or None)


MIG = MigDevice(uuid=MIG_UUID, gi=1, ci=0)
UNNAMED = MigDevice(gi=1, ci=0)
OTHER = MigDevice(uuid="MIG-a1b2c3d4-0000-4000-8000-000000000001", gi=2, ci=0)


@pytest.mark.system
@pytest.mark.parametrize(
    ("era", "gpu", "ok", "reason"),
    [
        (580, mig_gpu(MIG), True, "verified by the driver"),
        (
            *(580, mig_gpu(OTHER), False),
            "the driver says cuda:0 is a MIG device of GPU 0, gputop expected GPU 0:2 MIG",
        ),
        (
            580,
            mig_gpu(),
            None,
            "the driver says cuda:0 is a MIG device of GPU 0; gputop cannot tell",
        ),
        # NVML's side or CUDA's does not know the MIG device's own UUID.
        *[
            (era, gpu, None, "the driver agrees on the GPU, but does not tell MIG devices apart")
            for era, gpu in [(580, mig_gpu(UNNAMED)), (450, mig_gpu(MIG)), (450, mig_gpu(OTHER))]
        ],
    ],
)
def test_mig(here: Here, era: int, gpu: CudaDevice, ok: bool | None, reason: str) -> None:
    here({**BOX, "gpus": 1, "era": era, "gpu": {**BOX["gpu"], "cuda_uuid": MIG_UUID}})
    probed = Prober().ask("0", None, NOTHING)
    assert probed.devices
    assert probed.devices[0].uuid == (MIG_UUID if era == 580 else GPU_0)[4:]
    verdict = compare(resolve("0", [gpu], driver_version="535.1"), probed, [gpu])
    assert (verdict.ok, verdict.reason) == (ok, reason)
    unset = msgspec.structs.replace(probed, value=None)
    assert probed_order([unset], None, [gpu]) is None


@pytest.mark.system
def test_a_mig_device_by_its_uuid(here: Here) -> None:
    here({**BOX, "gpus": [{}, {"cuda_uuid": MIG_UUID}]})
    probed = Prober().ask(MIG_UUID, None, NOTHING)
    assert [device.uuid for device in probed.devices or ()] == [MIG_UUID[4:]]


# The verdict in words


def gpu(index: int, name: str = "A", uuid: bool = True) -> CudaDevice:
    text = f"GPU-0000000{index}-0000-0000-0000-000000000000" if uuid else None
    return CudaDevice(index, text, f"00000000:0{index + 1}:00.0", name)


def shown(*order: int) -> Probed:
    return Probed(
        tuple(
            ProbedDevice(f"0000000{i}-0000-0000-0000-000000000000", f"0000:0{i + 1}:00.0", "A")
            for i in order
        )
    )


@pytest.mark.parametrize(
    ("value", "probed", "reason"),
    [
        ("0", shown(2), "cuda:0 is GPU 2, gputop expected GPU 0"),
        ("0,1,2", shown(2, 0, 1), "cuda:0 is GPU 2, gputop expected GPU 0 (and 2 more)"),
        ("0,1", shown(0), "there is no cuda:1, gputop expected GPU 1"),
        ("0", shown(0, 1), "cuda:1 is GPU 1, gputop expected none"),
        ("", shown(0), "cuda:0 is GPU 0, gputop expected none"),
        ("0", shown(7), "cuda:0 is an unknown GPU (A, 0000:08:00.0), gputop expected GPU 0"),
    ],
)
def test_a_difference(value: str, probed: Probed, reason: str) -> None:
    answer = resolve(value, [gpu(0), gpu(1), gpu(2)])
    verdict = compare(answer, probed)
    assert (verdict.ok, verdict.reason) == (False, f"the driver says {reason}")


def test_where_gputop_cannot_tell() -> None:
    devices = [gpu(0), gpu(1, "B"), gpu(2, "C")]
    answer = resolve("0,1", devices)
    assert answer.visible is None
    verdict = compare(answer, shown(2, 0), devices)
    said = "the driver says cuda:0 is GPU 2, cuda:1 is GPU 0; gputop cannot tell"
    assert (verdict.ok, verdict.reason) == (None, said)
    verdict = compare(answer, shown(), devices)
    said = "the driver says nothing is visible; gputop expected 2 visible"
    assert (verdict.ok, verdict.reason) == (False, said)


def test_a_gpu_whose_uuid_nvml_does_not_tell() -> None:
    devices = [gpu(0, uuid=False), gpu(1)]
    assert probed_order([shown(1, 0)], None, devices) == (1, 0)
    assert compare(resolve("0,1", devices), shown(0, 1)).ok is True
    assert probed_order([shown(1, 2)], None, devices) is None


@pytest.mark.parametrize("order", [(), (0,)])
def test_gpus_that_cuda_does_not_count(order: tuple[int, ...]) -> None:
    assert probed_order([shown(*order)], None, [gpu(0), gpu(1)]) == order
    assert probed_order([Probed(problem="it hangs")], None, [gpu(0), gpu(1)]) is None


# gputop map --verify


def verified(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `gputop map --verify` with nothing of our own variables."""
    unset = ["env", "-u", NAME, "-u", ORDER]
    return machine.run([*unset, sys.executable, "-m", "gputop", "map", *arguments])


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "surprise"),
    [
        (["0,1", "--order", "PCI_BUS_ID"], ""),
        (["0,0"], ""),
        (["0"], "the driver says cuda:0 is GPU 2, gputop expected GPU 1"),
        (["--unset"], "the driver says cuda:0 is GPU 2, gputop expected GPU 1 (and 1 more)"),
    ],
)
def test_map(machine: MachineFactory, arguments: list[str], surprise: str) -> None:
    """Integers follow the driver, and what was expected of equal cards is said."""
    here = machine({**BOX, "cuda_order": [2, 0, 1]})
    reason = "verified by the driver" + f", against expectation: {surprise}" * bool(surprise)
    done = verified(here, *arguments, "--verify")
    assert done.stdout.splitlines()[2] == reason
    before, after = (
        json.loads(verified(here, *arguments, "--json", *verify).stdout)
        for verify in ([], ["--verify"])
    )
    assert after["verified"] == {"ok": True, "reason": reason}
    assert after["certainty"] == "exact"
    assert (after["devices"] == before["devices"]) == (not surprise)
    assert done.returncode == (0 if after["devices"] else 1)


@pytest.mark.system
def test_map_where_the_driver_fails(machine: MachineFactory) -> None:
    here = machine(BOX)
    here.fail("cuInit", 803)
    told = json.loads(verified(here, "0", "--verify", "--json").stdout)["verified"]
    reason = "the driver could not be asked: cuInit failed with CUDA error 803"
    assert told == {"ok": None, "reason": reason}


@pytest.mark.system
def test_map_of_another_machine(machine: MachineFactory) -> None:
    done = verified(machine(BOX), "0", "--verify", "--inventory", "other.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gputop: --inventory cannot be used with --verify\n"
