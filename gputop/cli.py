"""The command line; the only place that prints errors and picks exit codes.

0 done, 1 other errors, 2 usage, 3 the driver cannot be read, 4 frames ended, 128+n signal n.
"""

from __future__ import annotations

import gc
import os
import sys

from gputop.commands.output import complain, write
from gputop.errors import DriverError, GputopError, UsageError
from gputop.onelook import is_look, look, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from gputop.model.frame import Frame
    from gputop.settings import Session
    from gputop.sources.source import Source


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:2] == ["agent", "--look"]:
        tell(lambda: _status(_look_here, words[2:]))
    return _status(_run, words)


def _status(run: Callable[[list[str]], int], words: list[str]) -> int:
    try:
        return run(words)
    except GputopError as error:
        complain(f"gputop: {error}\n")
        return error.exit_code
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    """What is loaded is what these words need: that is what a quick look spends its time on."""
    if words[:1] == ["agent"]:
        from gputop.agent.command import main as agent

        return agent(words[1:])
    if is_look(words):
        return look(words)
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
        return _once(_source(options, None), words)
    return _screen(options)


def _look_here(words: list[str]) -> int:
    """One look by this process itself."""
    from gputop.agent.look import Look

    source = Look()
    return _json(source) if "--json" in words else _once(source, words)


def _parse(words: list[str]) -> Namespace:
    from gputop.parser import make_parser

    options = make_parser(words).parse_args(words)
    if options.watch and not options.json:
        raise UsageError("--watch goes with --json; for a screen that moves, run gputop alone")
    if options.user is not None and (options.json or options.once):
        raise UsageError("-u is for the screen; --json | jq selects processes by their .user")
    if options.user is not None and options.command is None:  # kill has a --user, too
        from gputop.settings import user_named

        user_named(options.user, options.demo)
    return options


def _is_unfit(options: Namespace) -> bool:
    """Whether there is no terminal for a screen; says so where somebody sees it."""
    from gputop.tui.terminal import unfit_reason

    reason = unfit_reason(os.environ)
    if reason is not None and options.user is not None:
        raise UsageError(f"{reason}; -u is for the screen")
    if reason is not None and os.isatty(1):  # who sends the output elsewhere wants text there
        complain(f"gputop: {reason}; this is one look as text\n")
    return reason is not None


def _json(source: Source, watch: bool = False) -> int:
    from gputop.export.json import frame_json  # meanwhile the source makes its first frame

    try:
        for frame in source.frames():
            if frame.problem is not None and not watch:
                raise DriverError(str(frame.problem))
            write(frame_json(frame) + "\n", "utf-8")
    finally:
        source.close()
    return 0


def _once(source: Source, words: list[str]) -> int:
    from gputop.export.table import table

    try:
        for frame in source.frames():
            if frame.problem is not None:
                raise DriverError(str(frame.problem))
            write(table(frame, _idle_after(frame, words)))
    finally:
        source.close()
    return 0


def _idle_after(frame: Frame, words: list[str]) -> float:
    """The settings are read only where it matters."""
    known = [one.idle_for for one in frame.gpus] + [one.idle_for for one in frame.processes]
    return _session(_parse(words)).processes.idle_after if any(known) else float("inf")


def _screen(options: Namespace) -> int:
    from gputop.firstlook import FirstLook
    from gputop.sources.local import LocalSource

    session = _session(options)
    source = _source(options, session.interval)  # the agent starts before Textual's import
    look = FirstLook(source, session.user)
    if isinstance(source, LocalSource):
        source.on_preview = look.preview
    try:
        look.start()
        from gputop.tui.app import run

        status, frame = run(look, session, look.hand_over)
    finally:
        look.leave()
        source.close()
    if session.print_last and frame is not None and frame.problem is None:
        from gputop.export.table import table

        write(table(frame, session.processes.idle_after))
    return status


def _session(options: Namespace) -> Session:
    from gputop.session import session_of

    return session_of(options)


def _source(options: Namespace, interval: float | None) -> Source:
    if options.demo:
        from gputop.sources.demo import DemoSource

        return DemoSource(interval)
    from gputop.sources.local import LocalSource

    return LocalSource(interval)
