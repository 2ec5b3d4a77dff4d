"""`import gputop` is cheap, starts nothing, and has names with types."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import gputop
from gputop import api
from tests.conftest import needed_module, rest_long

pytestmark = pytest.mark.system

STATE = """
import json, os, sys, threading
before = set(sys.modules)
{imports}
print(json.dumps([
    sorted(set(sys.modules) - before), threading.active_count(), os.listdir("/proc/self/fd"),
    open(f"/proc/self/task/{{os.getpid()}}/children").read(),
]))
"""
SLOW = {"textual", "rich", "pynvml", "psutil", "argparse", "subprocess", "asyncio", "ctypes"}
"""What no screen, no agent and no command line needs to be loaded for."""
USER = """
from typing_extensions import assert_type

import gputop

frame = gputop.snapshot()
assert_type(frame, gputop.MachineSnapshot)
assert_type(frame.to_json(), str)
assert_type(gputop.free(2, min_free="20GiB"), list[gputop.Gpu])
assert_type(gputop.choose(reserve=True), list[gputop.Gpu])
assert_type(gputop.mapping("0"), gputop.Mapping)
with gputop.watch(hosts=["node1"]) as frames:
    for frame in frames:
        assert_type(frame, gputop.MachineSnapshot)
gputop.free("2")
gputop.nothing
"""


def cpu_of(code: str) -> float:
    """The CPU that a Python takes for a program, in seconds: the least of several."""
    least = float("inf")
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = min(least, spent)
    return least


@pytest.mark.parametrize("imports", ["import gputop", "from gputop import snapshot, watch, Gpu"])
def test_it_loads_little_and_starts_nothing(imports: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STATE.format(imports=imports)], stdout=subprocess.PIPE, check=True
    )
    modules, threads, files, children = json.loads(done.stdout)
    assert {name.partition(".")[0] for name in modules} & SLOW == set()
    assert (threads, len(files), children) == (1, 4, "")
    if imports == "import gputop":
        assert "msgspec" not in modules


@rest_long(
    ("imports", "starts"), ("import gputop", 2), ("from gputop import snapshot, watch, Gpu", 8)
)
def test_it_takes_little_cpu(imports: str, starts: float) -> None:
    """In starts of a bare Python: on a slow machine that takes longer, too."""
    assert cpu_of(imports) < starts * cpu_of("pass")


def test_its_names() -> None:
    assert sorted(gputop.__all__) == gputop.__all__
    assert gputop.__all__ == sorted([*api.__all__, "__version__"])
    assert {*gputop.__all__} <= {*dir(gputop)}
    assert all(getattr(gputop, name) is getattr(api, name) for name in api.__all__)
    with pytest.raises(AttributeError, match="module 'gputop' has no attribute 'nothing'"):
        gputop.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_its_errors_are_one_tree() -> None:
    errors = [getattr(gputop, name) for name in gputop.__all__ if name.endswith("Error")]
    assert len(errors) == 6
    assert [error for error in errors if not issubclass(error, gputop.GputopError)] == []


@pytest.mark.long
def test_a_type_checker_knows_its_types(tmp_path: Path) -> None:
    needed_module("mypy")
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    wrong = [line.partition("error: ")[2] for line in done.stdout.splitlines()]
    assert wrong == [
        'Argument 1 to "free" has incompatible type "str"; expected "int"  [arg-type]',
        'Module has no attribute "nothing"  [attr-defined]',
    ]
