"""The command line; the only place that prints errors and picks exit codes.

0 done, 1 other errors, 2 usage, 3 the driver cannot be read, 4 frames ended, 128+n signal n.
"""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from gputop import __version__
from gputop.commands import HELP
from gputop.errors import DriverError, GputopError, UsageError
from gputop.model.frame import Frame
from gputop.model.protocol import MAX_INTERVAL, MIN_INTERVAL
from gputop.model.text import printable
from gputop.settings import THEMES, Settings, read_settings, settings_path, wants_readonly
from gputop.sources.source import Source

_DEFAULTS = Settings()

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
        "-i", "--interval", type=_seconds, default=_DEFAULTS.interval, metavar="SEC",
        help=f"seconds between two looks, {MIN_INTERVAL} to {MAX_INTERVAL:.0f} (default: 1)",
    )  # fmt: skip
    parser.add_argument("--theme", choices=THEMES, default=_DEFAULTS.theme, help="colours")
    parser.add_argument(
        "--glyphs", choices=("auto", "unicode", "ascii"), default=_DEFAULTS.glyphs,
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
    agent.add_argument("--interval", type=_seconds, default=_DEFAULTS.interval)
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
    user = _user(options)
    if options.json:
        return _json(options)
    if options.once:
        return _once(options)
    from gputop.tui.terminal import unfit_reason

    reason = unfit_reason(os.environ)
    if reason is not None:
        if user is not None:
            raise UsageError(f"{reason}; -u is for the screen")
        if os.isatty(1):  # who sends the output elsewhere wants text there
            _say(f"{reason}; this is one look as text")
        return _once(options)
    return _screen(options, user)


def _agent(options: argparse.Namespace) -> int:
    from gputop.agent.serve import serve, serve_once

    if options.agent_once:
        serve_once()
    serve(options.interval)
    return 0


def _json(options: argparse.Namespace) -> int:
    from gputop.export.json import frame_json

    with _source(options, options.interval if options.watch else None) as source:
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
            _write(table(frame, _idle_after(frame)))
    return 0


def _idle_after(frame: Frame) -> float:
    """The file of settings is read only where it matters."""
    known = [one.idle_for for one in frame.gpus] + [one.idle_for for one in frame.processes]
    return Settings(**_kept()).idle_after if any(known) else _DEFAULTS.idle_after


def _kept() -> dict[str, Any]:
    """What the file sets; nothing if it is broken."""
    from gputop.model.process_metrics import COLUMNS

    path = settings_path(os.environ)
    try:
        return {"path": path, **read_settings(path, COLUMNS)}
    except UsageError as error:  # it is not written either
        _say(f"{error}; the defaults are used")
        return {}


def _screen(options: argparse.Namespace, user: str | None) -> int:
    readonly = options.readonly or wants_readonly(os.environ)
    given = (options.interval, options.theme, options.glyphs, user, _me(), readonly)
    settings = Settings(*given, **_kept())
    with _source(options, options.interval) as source:  # the agent starts before Textual's import
        from gputop.tui.app import run

        return run(source, settings)


def _me() -> str:
    """As the agent names users: the number where there is no name."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _user(options: argparse.Namespace) -> str | None:
    """Whose processes are to be shown. UsageError for one that this machine does not know."""
    user: str | None = options.user
    if user is not None and (options.json or options.once):
        raise UsageError("-u is for the screen; --json | jq selects processes by their .user")
    if user == "me":
        return _me()
    if user is None or options.demo or user.isdecimal():
        return user
    try:
        return pwd.getpwnam(user).pw_name
    except (KeyError, ValueError):
        raise UsageError(
            f"-u {printable(user, 80)}: no such user here; give a name of `getent passwd`, or me"
        ) from None


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
