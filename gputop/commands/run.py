"""`gputop run`: reserves GPUs and becomes the program that uses them."""

from __future__ import annotations

import argparse
import errno
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NoReturn

from gputop.allocation.gpu_watch import Watch, take
from gputop.allocation.own import HELD, with_our_hold
from gputop.allocation.reserve_watch import command_text, reserved
from gputop.commands.targets.gpu_request import add_pick_options, pick_request
from gputop.errors import ProgramError, UsageError
from gputop.model.machine.text import printable
from gputop.output import complain
from gputop.sources.child import end_all
from gputop.variables import callers_environment

DESCRIPTION = "Pick free GPUs, reserve them, and run a program that sees these alone."
EPILOG = """\
examples:
  gputop run -- python train.py                  on a GPU that nobody uses
  gputop run -n 2 --min-free 40G -- torchrun --nproc-per-node 2 train.py
  gputop run -n 4 --same-model --wait 2h -- ./train.sh

The GPUs are reserved until the program and all that inherited the reservation
from it have ended: gputop shows them as reserved, and gputop free, run and
reserve leave them out. It is advice: who does not ask gputop is not kept away.
A container has reservations of its own, unless it shares /run/lock or /dev/shm.

exit status: the program's own; 1 there are not enough GPUs, or none can be
reserved, 2 usage, 3 the NVIDIA driver cannot be read, 126 the program cannot be
executed, 127 no such program
"""
_IGNORED_BY_PYTHON = signal.SIGPIPE, signal.SIGXFSZ
NEEDS = {"--shared": ("--min-free",)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gputop run [OPTIONS] -- PROGRAM [ARGUMENTS]"
    add_pick_options(parser)
    parser.add_argument(
        "--no-reserve", action="store_true", help="reserve nothing: others may be given the same"
    )


def run(options: argparse.Namespace) -> int:
    """Become the program, and so return only by an error. GputopErrors."""
    program: Sequence[str] = options.program
    if not program:
        raise UsageError("nothing to run: gputop run [OPTIONS] -- PROGRAM [ARGUMENTS]")
    environ = callers_environment()
    path = find_executable(program[0], environ.get("PATH", os.defpath))
    request, wait, window = pick_request(options), options.wait, options.window
    if options.no_reserve:
        taken = take(Watch(request, wait, window, say=complain).watch(), request, options.uuid)
        complain(f"{taken} without a reservation")
        become(path, program, environ | taken.variables)
    words = command_text(program)
    with reserved(request, wait, words, options.uuid, window, say=complain) as (taken, holds):
        for hold in holds:
            hold.inherit()
        complain(f"{taken} reserved until the program ends")
        become(path, program, {**environ, **taken.variables, HELD: with_our_hold(environ)})


def become(path: str, program: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace gputop by a program, which keeps its PID, terminal and signals. ProgramError."""
    end_all()
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        try:
            os.execve(path, [*program], environ)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without #!: run it with sh, as execvp(3) does.
            os.execve("/bin/sh", ["/bin/sh", path, *program[1:]], environ)
    except OSError as error:
        code = 127 if error.errno == errno.ENOENT else 126
        words = f"{printable(program[0], 200)} cannot be executed: {error.strerror}"
        raise ProgramError(words, code) from None


def find_executable(name: str, search: str) -> str:
    """Return the path of the program that a shell would run. ProgramError."""
    if "/" in name:
        places = [name]
    else:
        places = [os.path.join(folder or ".", name) for folder in search.split(os.pathsep)]
    there = [path for path in places if os.path.isfile(path)]
    for path in there:
        if os.access(path, os.X_OK):
            return path
    shown = printable(name, 200)
    if there or ("/" in name and os.path.exists(name)):
        raise ProgramError(
            f"{shown} cannot be executed: is it a program, and may you execute it?", 126
        )
    raise ProgramError(f"{shown}: no such program", 127)
