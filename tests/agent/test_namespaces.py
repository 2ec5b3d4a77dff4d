"""Which local process is the one on a GPU, seen from the first PID namespace and from another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.agent.process.namespaces import holds_gpu, in_first_namespace, local_process

NOBODY = 4194305
ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)
FIRST = pytest.mark.skipif(
    not in_first_namespace(), reason="needs the machine's first PID namespace"
)

INSIDE = """
import mmap, os, subprocess, sys
from gputop.agent.process.namespaces import in_first_namespace, local_process

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
print(in_first_namespace(), [local_process(child.pid) for child in children], local_process(4000))
for child in children:
    child.communicate()
"""


@FIRST
def test_in_the_first_namespace_every_process_is_the_one() -> None:
    assert local_process(os.getpid()) is True
    assert local_process(NOBODY) is False


@ROOT
def test_elsewhere_a_process_has_to_hold_a_gpu() -> None:
    nodes = "mount -t tmpfs tmpfs /dev && printf xxxx > /dev/nvidia2 && touch /dev/nvidiactl"
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "--mount",
         "sh", "-c", f'{nodes} && exec "$0" -c "$1"', sys.executable, INSIDE],
        capture_output=True, text=True, timeout=30, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.strip() == "False [True, True, False, False] False"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
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
