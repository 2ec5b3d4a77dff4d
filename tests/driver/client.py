"""Asking a machine's driver through the unmodified pynvml, which loads it once a process.

Code runs in a process of its own, with all of pynvml and these at hand: say(result) hands the
result back through JSON; gpus() is the handles; answer(f, *arguments) is the function's result, or
the name of the NVMLError it raised.
"""

import json
import subprocess
import sys
from textwrap import dedent
from typing import Any

from tests.driver.machine import Machine

_PRELUDE = """
import ctypes, json, sys
from pynvml import *

def answer(function, *arguments):
    try:
        return function(*arguments)
    except NVMLError as error:
        return type(error).__name__

def say(result):
    print(json.dumps(result), flush=True)

def gpus():
    return [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]
"""


def command(code: str, init: bool = True) -> list[str]:
    """The command line that runs code with pynvml, initialized if `init`."""
    return [sys.executable, "-c", _PRELUDE + ("nvmlInit()\n" if init else "") + dedent(code)]


def ask(machine: Machine, code: str, init: bool = True) -> Any:
    """Run code on the machine to its end; what it gave to say()."""
    done = machine.run(command(code, init))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Client:
    """A program that stays on the machine, to ask again after the machine has changed."""

    def __init__(self, machine: Machine) -> None:
        """Starts it; the machine ends it."""
        loop = "for line in sys.stdin:\n    say(eval(line))\n"
        self._program = machine.popen(command(loop), stdin=subprocess.PIPE)

    def ask(self, expression: str) -> Any:
        """The value of an expression over pynvml, evaluated there and now."""
        assert self._program.stdin
        assert self._program.stdout
        self._program.stdin.write(expression + "\n")
        self._program.stdin.flush()
        return json.loads(self._program.stdout.readline())
