"""The command line; the only place that prints errors and picks exit codes.

0 done, 1 other errors, 2 usage, 3 the driver cannot be read, 4 frames ended, 128+n signal n.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from gputop import __version__
from gputop.commands import HELP
from gputop.errors import DriverError, GputopError, UsageError
from gputop.settings import (
    MAX_INTERVAL,
    MIN_INTERVAL,
    THEMES,
    Session,
    Settings,
    from_environment,
    from_file,
    settings_path,
    user_named,
)
from gputop.sources.source import Source

_EXAMPLES = """\
examples:
  gputop                       watch the GPUs of this machine
  gputop --demo                try it on an invented machine
  gputop --once                one look, as text
  gputop --json | jq '.gpus[] | select(.utilization == 0) | .index'
  gputop --json --watch -i 5   a line of JSON every 5 seconds
  CUDA_VISIBLE_DEVICES=$(gputop free -n 2) python train.py
  gputop kill --user me --gpu 2   stop what is mine on GPU 2
  gputop map 1,2,-1            which GPU is cuda:0, what was dropped, and why

exit status: 0 done, 1 other errors, 2 usage, 3 the NVIDIA driver cannot be read, 4 the agent ended
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        return _run(_parser(words).parse_args(words))
    except GputopError as error:
        _say(str(error))
        return error.exit_code
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for every other error."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop",
        description="Who is on which GPU, and which GPU is cuda:0.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--once", action="store_true", help="print one look as text, and end")
    form.add_argument("--json", action="store_true", help="print one look as JSON, and end")
    parser.add_argument("--watch", action="store_true", help="with --json: a line every interval")
    parser.add_argument("--demo", action="store_true", help="show an invented machine")
    parser.add_argument(
        "-i", "--interval", type=_seconds, metavar="SEC",
        help=f"seconds between two looks, {MIN_INTERVAL} to {MAX_INTERVAL:.0f} (default: 1)",
    )  # fmt: skip
    parser.add_argument("--theme", choices=THEMES, help="colours")
    parser.add_argument(
        "--glyphs", choices=("auto", "unicode", "ascii"),
        help="what bars are drawn with (default: what the locale can show)",
    )  # fmt: skip
    parser.add_argument(
        "-u", "--user", metavar="NAME",
        help="show the processes of one user at first; 'me' for your own (u shows the others)",
    )  # fmt: skip
    parser.add_argument(
        "--readonly", action="store_true",
        help="no key signals a process (GPUTOP_READONLY=1 does the same, also for gputop kill)",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"gputop {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="")
    for name, summary in HELP.items():
        if name in words:
            _command(name).add_parser(commands)
        else:
            commands.add_parser(name, help=summary)
    agent = commands.add_parser("agent", description="Send frames to a gputop that reads them.")
    agent.add_argument("--interval", type=_seconds, default=Settings().interval)
    agent.add_argument("--once", dest="agent_once", action="store_true")
    return parser


def _command(name: str) -> ModuleType:
    return import_module(f"gputop.commands.{name}")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not MIN_INTERVAL <= seconds <= MAX_INTERVAL:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from {MIN_INTERVAL} to {MAX_INTERVAL:.0f}"
        )
    return seconds


def _run(options: argparse.Namespace) -> int:
    if options.command == "agent":
        return _agent(options)
    if options.command is not None:
        status: int = _command(options.command).run(options)
        return status
    if options.watch and not options.json:
        raise UsageError("--watch goes with --json; for a screen that moves, run gputop alone")
    if options.user is not None and (options.json or options.once):
        raise UsageError("-u is for the screen; --json | jq selects processes by their .user")
    user_named(options.user, options.demo)
    if options.json:
        return _json(options)
    if options.once:
        return _once(options)
    from gputop.tui.terminal import unfit_reason

    reason = unfit_reason(os.environ)
    if reason is not None:
        if options.user is not None:
            raise UsageError(f"{reason}; -u is for the screen")
        if os.isatty(1):  # who sends the output elsewhere wants text there
            _say(f"{reason}; this is one look as text")
        return _once(options)
    return _screen(options)


def _agent(options: argparse.Namespace) -> int:
    from gputop.agent.serve import serve, serve_once

    if options.agent_once:
        serve_once()
    serve(options.interval)
    return 0


def _json(options: argparse.Namespace) -> int:
    from gputop.export.json import frame_json

    interval = _session(options).interval if options.watch else None
    with _source(options, interval) as source:
        for frame in source.frames():
            if frame.problem is not None and not options.watch:
                raise DriverError(str(frame.problem))
            _write(frame_json(frame) + "\n", "utf-8")
    return 0


def _once(options: argparse.Namespace) -> int:
    from gputop.export.table import table

    with _source(options, None) as source:
        for frame in source.frames():
            if frame.problem is not None:
                raise DriverError(str(frame.problem))
            _write(table(frame))
    return 0


def _screen(options: argparse.Namespace) -> int:
    session = _session(options)
    with _source(options, session.interval) as source:  # the agent starts before Textual's import
        from gputop.tui.app import run

        return run(source, session)


def _session(options: argparse.Namespace) -> Session:
    """What holds: flags over environment over file over defaults. UsageError."""
    from gputop.model.process_metrics import COLUMNS

    path = settings_path(os.environ)
    try:
        settings, broken = from_file(path, COLUMNS), False
    except UsageError as error:  # a file that is broken is neither used nor written
        _say(f"{error}; the defaults are used")
        settings, broken = Settings(), True
    settings = from_environment(settings, os.environ)
    flags = {name: getattr(options, name) for name in ("interval", "theme", "glyphs", "user")}
    flags["readonly"] = options.readonly or None
    flags = {name: value for name, value in flags.items() if value is not None}
    fields = {**{name: getattr(settings, name) for name in Settings.__struct_fields__}, **flags}
    fields["user"] = user_named(fields["user"], options.demo)
    kept = settings.keep and not broken and not options.demo
    return Session(**fields, me=user_named("me"), path=path if kept else None)


@contextmanager
def _source(options: argparse.Namespace, interval: float | None) -> Iterator[Source]:
    source: Source
    if options.demo:
        from gputop.sources.demo import DemoSource

        source = DemoSource(interval)
    else:
        from gputop.sources.local import LocalSource

        source = LocalSource(interval)
    with closing(source):
        yield source


def _say(text: str) -> None:
    """One line on standard error, if there is one: print() would take standard output instead."""
    if sys.stderr is not None:
        print(f"gputop: {text}", file=sys.stderr)  # noqa: T201


def _write(text: str, encoding: str | None = None) -> None:
    """Onto standard output, in its encoding unless told otherwise: JSON is UTF-8 anywhere.

    BrokenPipeError if its reader is gone, GputopError for any other reason.
    """
    if sys.stdout is None:
        raise GputopError("standard output is closed: there is nowhere to write to")
    try:
        sys.stdout.buffer.write(text.encode(encoding or sys.stdout.encoding, "replace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries once more at its exit
        if isinstance(error, BrokenPipeError):
            raise
        raise GputopError(f"cannot write to standard output: {error.strerror}") from None
