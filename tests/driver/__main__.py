"""Runs any program on a simulated machine: `python -m tests.driver h200x8 -- nvidia-smi`.

The exit code is the program's (128 + n when signal n ended it); 2 for wrong arguments, 1 when the
driver cannot be built.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.driver import BuildError, Machine, ScenarioError, names, nvidia_smi


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command on the scenario's machine; returns the exit code."""
    options = _options(arguments)
    try:
        with Machine(options.scenario, log=options.log) as machine, TemporaryDirectory() as folder:
            nvidia_smi.install(Path(folder))
            machine.env["PATH"] = os.pathsep.join((folder, machine.env["PATH"]))
            code = _run(options.command, machine.env)
            if options.log:
                sys.stderr.writelines(f"{function} {gpu}\n" for function, gpu in machine.calls())
            return code
    except (BuildError, ScenarioError) as error:
        print(f"tests.driver: {error}", file=sys.stderr)
        return 2 if isinstance(error, ScenarioError) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.driver",
        description="Run a program on a simulated NVIDIA machine.",
        epilog="Scenarios: " + ", ".join(names()),
    )
    parser.add_argument("--log", action="store_true", help="print every driver call at the end")
    parser.add_argument("scenario", help="the path of a scenario or the name of one")
    parser.add_argument("command", nargs="+", help="the program and its arguments, after --")
    return parser.parse_args(arguments)


def _run(command: Sequence[str], env: dict[str, str]) -> int:
    # A Ctrl-C reaches the program by the terminal and is its to handle; we stay to clean up.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    try:
        program = subprocess.Popen(list(command), env=env)
    except OSError as error:
        print(f"tests.driver: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: program.send_signal(received))
    code = program.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
