"""The command line: prints the error that ends gputop and picks the exit code.

0 done, 1 other errors, 2 usage, 3 the driver cannot be read, 4 frames ended, 128+n signal n.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from gputop.errors import GputopError, UsageError
from gputop.output import complain, write

_MAX_ERROR_CHARS = 2000
"""Characters printed of an error."""

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit status."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except GputopError as error:
        from gputop.model.machine.text import printable  # an error may quote anything

        for line in error.lines or (str(error),):
            complain(printable(line, _MAX_ERROR_CHARS))
        return error.exit_code
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    if words[:1] == ["agent"]:
        return _agent(words[1:])
    if words[:1] == ["viewer"]:
        return _viewer(words[1:])
    options = _parse(words)
    if options.command is not None or options.watch:
        gc.enable()  # these may run for long; the screen turns it on once it is drawn
    from gputop.parser import command_module

    status: int = command_module(options.command or _without_command(options)).run(options)
    return status


def _without_command(options: Namespace) -> str:
    """Return the module in `commands` that shows the machines when no command is given. UsageError
    if -u is given and there can be no screen."""
    if options.line:
        return "line"
    if options.once or options.json:
        return "snapshot"
    reason = _prepare_terminal(options)
    if reason is None:
        return "screen"
    if options.user is not None:
        raise UsageError(f"{reason}; -u needs the screen")
    if os.isatty(1):  # a redirected output is meant to be text
        complain(f"{reason}; this is one snapshot as text")
    return "snapshot"


def _agent(words: list[str]) -> int:
    if words == ["--spoken"]:
        from gputop.protocol.versions import SPOKEN

        write(f"{SPOKEN}\n")
        return 0
    from gputop.agent.serve import main

    return main(words)


def _viewer(words: list[str]) -> int:
    """Show a browser what `gputop serve` holds: `[OPTION ...] -- DOOR COLUMNS LINES [HOST ...]`."""
    from gputop.parser import parse
    from gputop.settings import session_of

    options = parse(words[: words.index("--")])
    door, columns, lines, *options.hosts = words[words.index("--") + 1 :]
    session = session_of(options)
    from gputop.tui.start import view

    size = int(columns), int(lines)
    if options.prometheus is None:
        return view(int(door), size, options.hosts, session)
    from gputop.commands.screen import cluster_watch

    with closing(cluster_watch(options, ssh=False)) as cluster:
        return view(int(door), size, (), session, cluster)


def _parse(words: list[str]) -> Namespace:
    from gputop.parser import parse

    options = parse(words)
    if options.user is not None and options.command is None:  # kill and wait ask the machine
        from gputop.settings import user_named

        user_named(options.user, anywhere=bool(options.demo or options.hosts))
    return options


def _prepare_terminal(options: Namespace) -> str | None:
    """Return why there can be no screen; None if the terminal is ready for one."""
    from gputop.tui.terminal.capabilities import unfit_reason

    if "-" in options.host_words and os.isatty(1):  # names were read from where keys come from
        with suppress(OSError):
            os.dup2(os.open("/dev/tty", os.O_RDWR), 0)
    return unfit_reason(os.environ)
