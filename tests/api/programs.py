"""Programs in Python that import gputop, started as a user starts them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

from tests.driver import Machine

HELPERS = '''
import json, os, sys, threading, time
import gputop


def show(value):
    print(json.dumps(value), flush=True)


def left():
    """The children, threads and descriptors that this process has beside its first ones."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        children = file.read().split()
    threads = [thread.name for thread in threading.enumerate()]
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    links = sorted(os.readlink(name) for name in names if os.path.lexists(name))
    return {"children": children, "threads": threads, "files": links}


def settled(before):
    """The same, once it is as before: the kernel, and a thread that ends, may take a moment."""
    end = time.monotonic() + 30
    while left() != before and time.monotonic() < end:
        time.sleep(0.005)
    return left()
'''
UNSET = ["env", "-u", "CUDA_VISIBLE_DEVICES", "-u", "CUDA_DEVICE_ORDER"]


def command(code: str) -> list[str]:
    """Return the command of a program that may use `show` and `left`."""
    return [*UNSET, sys.executable, "-c", HELPERS + textwrap.dedent(code)]


def run(machine: Machine, code: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return machine.run(command(code), timeout=120)


def shown(machine: Machine, code: str) -> Any:
    """Return what it shows last; it writes nothing to standard error."""
    done = run(machine, code)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


def error(machine: Machine, code: str) -> tuple[str, str]:
    """Return the class and the words of the GputopError that it ends with."""
    body = textwrap.indent(textwrap.dedent(code), "    ")
    wrapped = f"try:\n{body}\nexcept gputop.GputopError as e:\n    show([type(e).__name__, str(e)])"
    name, words = shown(machine, wrapped)
    return name, words
