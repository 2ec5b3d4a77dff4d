"""`gputop doctor`: options, and what they do.

Exit status: 0 no problem was found, 1 there is one, 2 usage; with --report: 0 it was written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import msgspec

from gputop.agent.doctor.installation import installation_checks
from gputop.agent.doctor.python_env import find_interpreter, python_checks
from gputop.agent.doctor.toolkits import toolkit_checks
from gputop.commands import HELP, report
from gputop.commands.output import write
from gputop.errors import SourceError, UsageError
from gputop.model.check import Check, frame_checks
from gputop.model.frame import Frame
from gputop.model.redaction import Redaction
from gputop.sources.local import LocalSource

_PATIENCE = 5.0
"""Seconds that a driver may take to wake up."""
_LOOKS, _INTERVAL = 6, 0.5
"""Rates are read every two seconds at the slowest, and there from the second time on."""
_WIDEST = 100
_EPILOG = """\
examples:
  gputop doctor                        driver, libraries, device nodes, toolkits, ...
  gputop doctor --python ~/venv        why does this environment see no GPU
  gputop doctor --report bug.tar.gz    a file to send along with a bug's report
  gputop doctor --json | jq '.checks[] | select(.level == "problem")'

--json: problems (how many), checks (each with level: ok, notice or problem,
subject, text, advice or null)

exit status: 0 no problem was found, 1 there is one, 2 usage; with --report 0 it was
written, 1 it was not
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command; `run` takes what it parses."""
    parser = commands.add_parser(
        "doctor",
        help=HELP["doctor"],
        description="Tell what is wrong with the GPUs, their driver and what is installed for"
        " them, and what to do. It works without a driver, too.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, form = parser.add_argument, parser.add_mutually_exclusive_group()
    form.add_argument("--json", dest="doctor_json", action="store_true", help="print JSON")
    form.add_argument(
        "--report", metavar="FILE",
        help="write a .tar.gz for a bug's report: what doctor says, three looks as JSON, versions,"
        " settings; without command lines, names of users and hosts, ...")  # fmt: skip
    add("--with-commands", action="store_true", help="with --report: leave nothing out of it")
    add("--python", metavar="PATH",
        help="an interpreter or an environment's directory: is its torch, tensorflow or jax"
        " a CUDA build, and which CUDA libraries are missing")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises GputopErrors."""
    interpreter = None if options.python is None else find_interpreter(options.python)
    if options.report is not None:
        return _report(options.report, interpreter, options.with_commands)
    if options.with_commands:
        raise UsageError("--with-commands goes with --report")
    checks = [check.harmless() for check in _checks(_frames(), interpreter)]
    if options.doctor_json:
        write(_json(checks), "utf-8")
    else:
        write(_text(checks))
    return 1 if _problems(checks) else 0


def _report(path: str, interpreter: str | None, whole: bool) -> int:
    """Write the archive and say what it holds; `whole`: with what others wrote."""
    frames, redaction = _frames(), Redaction()
    if not whole:
        frames = list(map(redaction.frame, frames))
    checks = [check.harmless() for check in _checks(frames, interpreter)]
    if not whole:
        checks = list(map(report.harmless_check, checks))
    texts = {"doctor.txt": _text(checks), "doctor.json": _json(checks)}
    texts.update(report.surroundings(frames, whole))
    report.write_archive(path, texts)
    write(report.contents(texts, path, whole))
    return 0


def _checks(frames: Sequence[Frame], interpreter: str | None) -> Iterator[Check]:
    frame = frames[-1]
    yield from frame_checks(frames)
    yield from installation_checks(frame)
    yield from toolkit_checks(frame.cuda_version)
    if interpreter is not None:
        yield from python_checks(interpreter, frame.cuda_version)


def _frames() -> list[Frame]:
    """Some looks; fewer where the driver cannot be read."""
    frames: list[Frame] = []
    end = time.monotonic() + _PATIENCE
    with closing(LocalSource(_INTERVAL)) as source:
        for frame in source.frames():
            silent = frame.problem is not None and frame.problem.kind == "not_answering"
            if silent and time.monotonic() < end:
                continue
            frames.append(frame)
            late = any(gpu.stale_for is not None for gpu in frame.gpus)
            waking = late and time.monotonic() < end
            if frame.problem is not None or (len(frames) >= _LOOKS and not waking):
                return frames
    raise SourceError("the agent sends no more frames")


def _problems(checks: Sequence[Check]) -> int:
    return sum(check.level == "problem" for check in checks)


def _json(checks: Sequence[Check]) -> str:
    listed = [msgspec.to_builtins(one) for one in checks]
    return json.dumps({"problems": _problems(checks), "checks": listed}) + "\n"


def _text(checks: Sequence[Check]) -> str:
    """A paragraph each, the advice under it; and how many problems there are."""
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    wrap = textwrap.TextWrapper(width, break_on_hyphens=False, break_long_words=False)
    lines, problems = [], _problems(checks)
    for check in checks:
        wrap.initial_indent, wrap.subsequent_indent = f"{check.level:9}", " " * 9
        lines += wrap.wrap(f"{check.subject}: {check.text}")
        wrap.initial_indent, wrap.subsequent_indent = " " * 9 + "-> ", " " * 12
        lines += wrap.wrap(check.advice or "")
    return "\n".join([*lines, f"{problems or 'no'} problem{'s' * (problems != 1)}"]) + "\n"
