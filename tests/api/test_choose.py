"""`gputop.free` and `gputop.choose`: the GPUs, the variables, and when it is too late for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.reservations.locks import read_locks
from tests.api.programs import command, error, run, shown
from tests.conftest import MachineFactory, needs_everybody, rest_long
from tests.driver import Machine, build
from tests.patience import until

pytestmark = [pytest.mark.system, needs_everybody]

VARIABLES = """
def variables():
    names = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "GPUTOP_RESERVATION"
    return [os.environ.get(name) for name in names]
"""
CUDA = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    assert status == 0, (name, status)
"""
TOO_LATE = "CUDA has been started in this process ({}), and read CUDA_VISIBLE_DEVICES then: call"
PLAIN = {
    "gpu": {
        "name": "NVIDIA A100-SXM4-80GB",
        "uuid": "GPU-{i}0000000",
        "pci": {"bus_id": "00000000:{i:02X}:00.0"},
        "memory": {"total": 80 << 30, "used": 0},
        "utilization": {"gpu": 0, "memory": 0},
    },
    "gpus": 2,
}


@pytest.fixture
def h200x8(machine: MachineFactory) -> Machine:
    return machine("h200x8")


@pytest.fixture
def cuda(machine: MachineFactory) -> Machine:
    """Two free GPUs, and the simulated libcuda."""
    here = machine(PLAIN)
    folder = build.cuda().parent
    here.env["LD_LIBRARY_PATH"] = f"{folder}:{here.env['LD_LIBRARY_PATH']}"
    return here


def free_gpus(machine: Machine, *options: str) -> list[int]:
    """What `gputop free` says."""
    done = machine.run(
        ["env", "-u", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER=PCI_BUS_ID", sys.executable,
         "-m", "gputop", "free", "--json", *options]
    )  # fmt: skip
    return [gpu["gpu"] for gpu in json.loads(done.stdout)["gpus"]]


def test_free_is_what_the_command_says(h200x8: Machine) -> None:
    code = "before = left()\ngpus = gputop.free(2)\nshow([[g.index for g in gpus], before, left()])"
    picked, before, after = shown(h200x8, code)
    assert picked == free_gpus(h200x8, "-n", "2") == [2, 6]
    assert after == before


def test_not_enough(h200x8: Machine) -> None:
    name, words = error(h200x8, "gputop.free(8)")
    assert name == "NotEnoughGpusError"
    assert words.startswith("not enough GPUs: 2 free, 8 requested; GPU 0 H200: ")
    assert words.count("; GPU ") == 8
    code = """
    try:
        gputop.free(8)
    except gputop.NotEnoughGpusError as e:
        show([e.summary, len(e.reasons), isinstance(e, gputop.GputopError)])
    """
    assert shown(h200x8, code) == ["not enough GPUs: 2 free, 8 requested", 8, True]
    done = run(h200x8, "gputop.free(8)")
    assert done.stderr.splitlines()[-1].startswith("gputop.errors.NotEnoughGpusError: not enough")


def test_limits(h200x8: Machine) -> None:
    code = """
    same, bytes_ = gputop.free(min_free="20GiB", same_model=True), gputop.free(min_free=20 * 2**30)
    try:
        gputop.free(min_free="1TiB")
    except gputop.GputopError as e:
        show([len(same), len(bytes_), type(e).__name__])
    """
    assert shown(h200x8, code) == [1, 1, "NotEnoughGpusError"]


@rest_long(
    ("arguments", "words"),
    ("count=0", "count 0 is not a number of GPUs"),
    ("count='2'", "count '2' is not a number of GPUs"),
    ("min_free='20GiX'", "min_free '20GiX' is not a size, as '20GiB' or bytes"),
    ("min_free=[1]", "min_free [1] is not a size, as '20GiB' or bytes"),
    ("host=['a', 1]", "hosts are names, not ['a', 1]"),
    ("min_free=-1", "min_free -1 is not a size, as '20GiB' or bytes"),
    ("min_free='2e9'", "min_free '2e9' is not a size, as '20GiB' or bytes"),
    ("wait='soon'", "wait 'soon' is not a time, as '2h' or seconds"),
    ("wait=float('nan')", "wait nan is not a time, as '2h' or seconds"),
    ("host='a,b'", "'a,b' names 2 hosts: give one"),
    ("host='a b'", "host 'a b' has blanks, or characters that cannot be seen"),
)
def test_bad_arguments(arguments: str, words: str, h200x8: Machine) -> None:
    assert error(h200x8, f"gputop.free({arguments})") == ("UsageError", words)


def test_it_waits(machine: MachineFactory) -> None:
    here = machine(PLAIN)
    here.spawn("train", ["python", "train.py"], gpu=0, used=1 << 30)
    here.spawn("eval", ["python", "eval.py"], gpu=1, used=1 << 30)
    code = "show('begun')\nshow([g.index for g in gputop.free(wait='1h')])"
    program = here.popen(command(code))
    assert program.stdout
    assert json.loads(program.stdout.readline()) == "begun"
    here.kill("eval")
    assert json.loads(program.stdout.readline()) == [1]


def test_waiting_ends(h200x8: Machine) -> None:
    assert error(h200x8, "gputop.free(3, wait=0.1)")[0] == "NotEnoughGpusError"


def test_its_own_variables_limit_it(h200x8: Machine) -> None:
    code = """
    os.environ.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES="0,6")
    show([g.index for g in gputop.free()])
    """
    assert shown(h200x8, code) == [6]


# Choosing


def test_it_sets_the_variables(h200x8: Machine) -> None:
    code = VARIABLES + (
        "gpus = gputop.choose(2)\n"
        "first = variables()\n"
        "show([[g.index for g in gpus], first, [d.index for d in gputop.mapping().visible]])"
    )
    assert shown(h200x8, code) == [[2, 6], ["PCI_BUS_ID", "2,6", None], [2, 6]]
    code = VARIABLES + "gputop.choose(uuid=True)\nshow(variables())"
    assert shown(h200x8, code) == ["PCI_BUS_ID", h200x8.gpu(2)["uuid"], None]


def test_after_an_error_they_are_as_before(h200x8: Machine) -> None:
    code = (
        VARIABLES
        + """
try:
    gputop.choose(5, reserve=True)
except gputop.NotEnoughGpusError:
    show([variables(), left()["children"], left()["files"] == before])
"""
    )
    assert shown(h200x8, f'before = left()["files"]\n{code}') == [[None, None, None], [], True]
    assert read_locks() == []


@pytest.mark.long
def test_on_a_machine_with_mig(machine: MachineFactory) -> None:
    """A GPU in MIG mode is no answer, and beside it an index is none."""
    here = machine("mig")
    name, words = error(here, "gputop.choose(8)")
    assert name == "NotEnoughGpusError"
    assert "MIG mode" in words
    free = free_gpus(here, "--uuid")
    if free:
        name, words = error(here, "gputop.choose()")
        assert (name, "uuid=True" in words) == ("GputopError", True)
        assert shown(here, "show([g.index for g in gputop.choose(uuid=True)])") == free


# CUDA in this process


def test_cuda_that_is_loaded_but_not_started(cuda: Machine) -> None:
    assert shown(cuda, CUDA + VARIABLES + "gputop.choose()\nshow(variables()[1])") == "0"
    asks = """
    library = [line for line in open("/proc/self/maps") if "libcuda" in line]
    gputop.choose()
    show([library, [line for line in open("/proc/self/maps") if "libcuda" in line]])
    """
    assert shown(cuda, asks) == [[], []], "and it is not loaded for the question"


@pytest.mark.parametrize(
    ("start", "sign"),
    [
        ('call("cuInit", 0)', "cuInit has been called"),
        (
            'call("cuInit", 0)\n'
            'call("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 1)',
            "it has a context on cuda:1",
        ),
        (
            'call("cuInit", 0)\n'
            "import threading\n"
            'retain = "cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0\n'
            "thread = threading.Thread(target=call, args=retain)\nthread.start()\nthread.join()",
            "it has a context on cuda:0",
        ),
        (
            'os.environ["CUDA_VISIBLE_DEVICES"] = ""\nassert cuda.cuInit(0) == 100\n'
            'os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
            None,
        ),
    ],
    ids=["init", "context", "thread", "none visible"],
)  # fmt: skip
def test_cuda_that_has_been_started(start: str, sign: str | None, cuda: Machine) -> None:
    code = f"{CUDA}{start}\n"
    if sign is None:  # a driver that found no GPU has not been started
        assert shown(cuda, f"{code}show([g.index for g in gputop.choose()])") == [0]
        return
    name, words = error(cuda, f"{code}gputop.choose()")
    assert name == "GputopError"
    assert words.startswith(TOO_LATE.format(sign))


def test_torch_that_has_started_cuda(h200x8: Machine, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("from torch import cuda\n")
    (tmp_path / "torch" / "cuda.py").write_text(
        "started = False\ndef is_initialized():\n    return started\n"
    )
    begin = f"sys.path.insert(0, {str(tmp_path)!r})\nimport torch\n"
    assert shown(h200x8, f"{begin}show(len(gputop.choose()))") == 1
    name, words = error(h200x8, f"{begin}torch.cuda.started = True\ngputop.choose()")
    assert name == "GputopError"
    assert words.startswith(TOO_LATE.format("torch.cuda.is_initialized()"))


# Reserving


def test_a_reservation_lasts_as_long_as_the_process(cuda: Machine) -> None:
    code = VARIABLES + (
        "gputop.choose(reserve=True)\n"
        "show([os.getpid(), variables()])\n"
        "sys.stdin.readline()\n"
        "show([g.index for g in gputop.choose(reserve=True)])\n"
        "sys.stdin.readline()\n"
    )
    program = cuda.popen(command(code), stdin=subprocess.PIPE)
    assert program.stdout
    assert program.stdin
    pid, variables = json.loads(program.stdout.readline())
    assert variables == ["PCI_BUS_ID", "0", str(pid)]
    (lock,) = read_locks()
    assert (lock.uuid, lock.pid, lock.until) == (cuda.gpu(0)["uuid"], pid, None)
    assert lock.command
    assert "-c" in lock.command
    assert free_gpus(cuda) == [1]
    program.stdin.write("\n")
    program.stdin.flush()
    assert json.loads(program.stdout.readline()) == [0], "its own is no obstacle"
    program.kill()
    program.wait()
    until(lambda: not read_locks())
    assert free_gpus(cuda) == [0]


def test_a_copy_that_ends_leaves_the_reservation(cuda: Machine) -> None:
    code = """
    gputop.choose(reserve=True)
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    from gputop.reservations.locks import read_locks
    show([lock.pid == os.getpid() for lock in read_locks()])
    """
    assert shown(cuda, code) == [True]
    assert read_locks() == []


def test_a_folder_that_cannot_be_used(cuda: Machine, tmp_path: Path) -> None:
    (tmp_path / "locks").symlink_to("/")
    name, words = error(cuda, "gputop.choose(reserve=True)")
    assert name == "ReservationError"
    assert "is a link" in words
