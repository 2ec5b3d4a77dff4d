"""Which local process is the one on a GPU, seen from the first PID namespace and from another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.agent.process.holding import holds_gpu
from gputop.agent.process.namespaces import (
    Numbering,
    local_process,
    was_given_out,
)
from tests.conftest import needs_everybody, needs_root, rest_long
from tests.driver import build

NOBODY = 4194305

INSIDE = """
import mmap, os, subprocess, sys
from gputop.agent.process.namespaces import NUMBERING, in_first_namespace, local_process

def waiting(open_it):
    code = f"import mmap, sys; {open_it}; print('.', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    return child

ways = [
    "file = open('/dev/nvidia2')",
    "f = open('/dev/nvidia2'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ);"
    " f.close(); import os; os.closerange(3, 99)",
    "file = open('/dev/nvidiactl')",
    "pass",
]
children = [waiting(way) for way in ways]
for version in ("580.95.05", "525.147.05", None):
    NUMBERING.opened(version)
    known = [local_process(child.pid) for child in children]
    print(in_first_namespace(), known, local_process(4000))
for child in children:
    child.communicate()
"""


@needs_everybody
def test_in_the_first_namespace_every_process_is_the_one() -> None:
    assert local_process(os.getpid()) is True
    assert local_process(NOBODY) is False


@pytest.mark.system
@needs_root
def test_elsewhere_a_process_has_to_hold_a_gpu() -> None:
    nodes = "mount -t tmpfs tmpfs /dev && printf xxxx > /dev/nvidia2 && touch /dev/nvidiactl"
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "--mount",
         "sh", "-c", f'{nodes} && exec "$0" -c "$1"', sys.executable, INSIDE],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.stderr == ""
    newest, *others = done.stdout.splitlines()
    assert newest == "False [True, True, False, False] False"
    assert others == ["False [None, None, False, False] False"] * 2  # these tell the host's


@pytest.mark.system
@needs_root
def test_anothers_descriptors_cannot_be_seen() -> None:
    ours = os.getpid()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        os.write(write, str(holds_gpu(ours)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"None"


@pytest.mark.system
@needs_root
@rest_long(
    ("wanted", "held"),
    ("ctypes.CDLL('/dev/libcuda.so.580.95.05')", True),
    (
        "f = open('/dev/libcuda.so.580.95.05'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ);"
        " f.close(); os.unlink('/dev/libcuda.so.580.95.05')",
        True,
    ),
    ("f = open('/dev/dxg')", True),
    ("f = open('/dev/libcuda.so.580.95.05')", None),
    ("ctypes.CDLL('/dev/libcudart.so.12')", None),
    ("pass", None),
)
@rest_long("nodes", False, True)
def test_without_nodes_libcuda_or_dxg_shows_it(wanted: str, held: bool | None, nodes: bool) -> None:
    """With nodes they show nothing."""
    code = (
        f"import ctypes, mmap, os; from gputop.agent.process.holding import holds_gpu;{wanted};"
        "print(holds_gpu(os.getpid()))"
    )
    setup = (
        "mount -t tmpfs tmpfs /dev && touch /dev/dxg && "
        'cp "$1" /dev/libcuda.so.580.95.05 && cp "$1" /dev/libcudart.so.12 && '
        f'{"touch /dev/nvidia0 && " if nodes else ""} exec "$0" -c "$2"'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", setup, sys.executable, str(build.cuda()), code],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "LD_PRELOAD": ""},
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == (str(False if nodes else held), "")


@pytest.mark.system
def test_a_number_that_was_never_given_out() -> None:
    def ended() -> int:
        with subprocess.Popen(["true"]) as child:
            pass
        return child.pid

    assert was_given_out(ended()) or was_given_out(ended())  # numbers may begin anew just then
    assert was_given_out(os.getpid())
    assert not was_given_out(NOBODY)


# Whose numbers the driver tells


@pytest.mark.parametrize(
    ("version", "lists_ours", "samples_differ"),
    [
        (None, False, False),
        ("garbage", False, False),
        ("390.157", False, False),
        ("535.104.05", False, False),
        ("535.113", False, False),
        ("535.113.01", True, True),
        ("560.35.03", True, True),
        ("565.57.01", True, True),
        ("570.86.10", True, False),
        ("580.95.05", True, False),
        ("581.29", True, False),
    ],
)
def test_a_version_is_a_hint(version: str | None, lists_ours: bool, samples_differ: bool) -> None:
    numbering = Numbering()
    numbering.opened(version)
    assert (numbering.lists_ours, numbering.samples_differ) == (lists_ours, samples_differ)
    numbering.observe({4000}, 10.0)
    assert numbering.is_initial_namespace is not lists_ours
    numbering.observe({4000, 4001}, 10.9)
    assert numbering.is_initial_namespace is not lists_ours
    numbering.observe({4001}, 11.0)
    assert numbering.is_initial_namespace is not lists_ours
    numbering.observe({4001}, 11.9)
    assert numbering.is_initial_namespace
    assert (numbering.lists_ours, numbering.samples_differ) == (False, False)
    numbering.opened(version)
    assert not numbering.is_initial_namespace


@pytest.mark.system
def test_a_zombie_holds_nothing_any_more() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert holds_gpu(child.pid) is None


@pytest.mark.system
@needs_root
def test_numbers_of_the_namespace_above_are_nobodys() -> None:
    """Where /proc is still that of the namespace above."""
    code = (
        "from gputop.agent.process.namespaces import NUMBERING, local_process;"
        "NUMBERING.opened('580.95.05'); print(local_process(1))"
    )
    done = subprocess.run(
        ["unshare", "--pid", "--fork", sys.executable, "-c", code],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("None\n", "")
