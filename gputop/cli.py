"""The command line; the only place that prints errors and picks exit codes.

0 done, 1 other errors, 2 usage, 3 the driver cannot be read, 4 frames ended, 128+n signal n.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from gputop.commands.output import write
from gputop.errors import DriverError, GputopError, UsageError
from gputop.model.frame import Frame
from gputop.parser import command_module, make_parser
from gputop.settings import (
    Session,
    Settings,
    from_environment,
    from_file,
    settings_path,
    user_named,
)
from gputop.sources.source import Source


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        return _run(make_parser(words).parse_args(words))
    except GputopError as error:
        _say(str(error))
        return error.exit_code
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.command == "agent":
        return _agent(options)
    if options.command is not None:
        status: int = command_module(options.command).run(options)
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
            write(frame_json(frame) + "\n", "utf-8")
    return 0


def _once(options: argparse.Namespace) -> int:
    from gputop.export.table import table

    with _source(options, None) as source:
        for frame in source.frames():
            if frame.problem is not None:
                raise DriverError(str(frame.problem))
            write(table(frame, _idle_after(options, frame)))
    return 0


def _idle_after(options: argparse.Namespace, frame: Frame) -> float:
    """The settings are read only where it matters."""
    known = [one.idle_for for one in frame.gpus] + [one.idle_for for one in frame.processes]
    settings = _session(options) if any(known) else Settings()
    return settings.processes.idle_after


def _screen(options: argparse.Namespace) -> int:
    from gputop.firstlook import FirstLook

    session = _session(options)
    with _source(options, session.interval) as source:  # the agent starts before Textual's import
        look = FirstLook(source)
        try:
            look.start()
            from gputop.tui.app import run

            status, frame = run(look, session, look.hand_over)
        finally:
            look.leave()
    if session.print_last and frame is not None and frame.problem is None:
        from gputop.export.table import table

        write(table(frame, session.processes.idle_after))
    return status


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
    flags.update({name: getattr(options, name) or None for name in ("readonly", "print_last")})
    flags = {name: value for name, value in flags.items() if value is not None}
    fields = {**{name: getattr(settings, name) for name in Settings.__struct_fields__}, **flags}
    try:
        fields["user"] = user_named(fields["user"], options.demo, "user of the settings:")
    except UsageError as error:  # that of -u was looked at before
        _say(f"{error}; everybody's processes are shown")
        fields["user"] = None
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
