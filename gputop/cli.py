"""The command line; the only place that prints errors and picks exit codes.

0 done, 1 other errors, 2 usage, 3 the driver cannot be read, 4 frames ended, 128+n signal n.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from gputop.errors import DriverError, GputopError, UsageError
from gputop.output import complain, write

_LONGEST = 2000
"""Characters of an error."""

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from gputop.model.machine.frame import Frame
    from gputop.settings import Session
    from gputop.sources.source import Source


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except GputopError as error:
        from gputop.model.machine.text import printable  # an error may quote anything

        complain(printable(str(error), _LONGEST))
        return error.exit_code
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    if words[:1] == ["agent"]:
        return _agent(words[1:])
    options = _parse(words)
    if options.command is not None or options.watch:
        gc.enable()  # these may stay for long; a screen turns it on when it is there
    if options.command is not None:
        from gputop.parser import command_module

        status: int = command_module(options.command).run(options)
        return status
    if options.json:
        interval = _session(options).interval if options.watch else None
        return _json(_source(options, interval), options.watch)
    if options.once or _is_unfit(options):
        return _once(options)
    return _screen(options)


def _agent(words: list[str]) -> int:
    if words == ["--spoken"]:
        from gputop.protocol.versions import SPOKEN

        write(f"{SPOKEN}\n")
        return 0
    from gputop.agent.serve import main

    return main(words)


def _parse(words: list[str]) -> Namespace:
    from gputop.parser import make_parser, whole

    options = make_parser(whole(words)).parse_args(words)
    if options.watch and not options.json:
        raise UsageError("--watch goes with --json; for a screen that moves, run gputop alone")
    if options.user is not None and (options.json or options.once):
        raise UsageError("-u is for the screen; with --json let jq select processes by .user")
    if options.user is not None and options.command is None:  # kill has a --user, too
        from gputop.settings import user_named

        user_named(options.user, options.demo)
    return options


def _is_unfit(options: Namespace) -> bool:
    """Whether there is no terminal for a screen; says so where somebody sees it."""
    from gputop.tui.terminal.capabilities import unfit_reason

    reason = unfit_reason(os.environ)
    if reason is not None and options.user is not None:
        raise UsageError(f"{reason}; -u is for the screen")
    if reason is not None and os.isatty(1):  # who sends the output elsewhere wants text there
        complain(f"{reason}; this is one snapshot as text")
    return reason is not None


def _json(source: Source, watch: bool = False) -> int:
    from gputop.export.json import frame_json  # meanwhile the source makes its first frame
    from gputop.sources.ask import frames_of

    try:
        for frame in frames_of(source):
            if frame.problem is not None and not watch:
                raise DriverError(str(frame.problem))
            write(frame_json(frame) + "\n", "utf-8")
    finally:
        source.close()
    return 0


def _once(options: Namespace) -> int:
    source = _source(options, None)
    from gputop.export.table import table  # meanwhile the source makes its frame
    from gputop.sources.ask import frames_of

    try:
        for frame in frames_of(source):
            if frame.problem is not None:
                raise DriverError(str(frame.problem))
            write(table(frame, _idle_after(frame, options)))
    finally:
        source.close()
    return 0


def _idle_after(frame: Frame, options: Namespace) -> float:
    """Return the setting, which is read only where it matters."""
    known = [gpu.idle_for for gpu in frame.gpus] + [job.idle_for for job in frame.processes]
    return _session(options).processes.idle_after if any(known) else float("inf")


def _screen(options: Namespace) -> int:
    from gputop.sources.feed import Feed
    from gputop.tui.terminal.splash import Splash

    session = _session(options)
    # The agent starts before Textual is imported.
    feed = Feed(_source(options, session.interval, waits=True))
    splash = Splash(feed, session.user)
    try:
        splash.start()
        from gputop.tui.app import run

        status, frame = run([feed], session, splash.hand_over)
    finally:
        splash.leave()
        feed.source.close()
    if session.print_last and frame is not None and frame.problem is None:
        from gputop.export.table import table

        write(table(frame, session.processes.idle_after))
    return status


def _session(options: Namespace) -> Session:
    from gputop.settings import session_of

    return session_of(options)


def _source(options: Namespace, interval: float | None, waits: bool = False) -> Source:
    if options.demo:
        from gputop.sources.demo.source import DemoSource

        return DemoSource(interval)
    from gputop.sources.local import LocalSource

    return LocalSource(interval, waits)
