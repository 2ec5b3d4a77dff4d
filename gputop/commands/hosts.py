"""-H: the hosts that a command is about, all asked at the same time."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, TypeVar

from gputop.errors import GputopError, LoginError, UsageError
from gputop.model.machine.text import printable
from gputop.output import complain, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputop.sources.ssh.names import HostName

T = TypeVar("T")

_LOGIN = "; commands ask for no password: use a key, ssh-agent or ControlMaster"
_LONGEST = 2000
"""Characters of what is said of a host."""


def add_hosts(parser: argparse._ActionsContainer, prefix: str = "") -> None:
    """Add -H and --hosts. A command's own have a `prefix`, or they would replace those that stand
    before the command."""
    parser.add_argument(
        "-H", "--host", metavar="HOST", action="append", dest=f"{prefix}host_words", default=[],
        help="not this machine but these, over ssh: [user@]host[:port], with commas or repeated;"
        " node[01-16], @group of the settings, @slurm, - for standard input",
    )  # fmt: skip
    parser.add_argument(
        "--hosts", metavar="FILE", dest=f"{prefix}hosts_file", help="and those that a file names"
    )


def add_command_hosts(parser: argparse._ActionsContainer) -> None:
    """Add -H and --hosts to a command."""
    add_hosts(parser, "command_")


def hosts_of(options: argparse.Namespace) -> tuple[HostName, ...]:
    """Return the hosts that a command line names before or after its command, none for this
    machine. UsageError."""
    words = list(options.host_words)
    if options.hosts_file is not None:
        words += _words_of(options.hosts_file)
    takes_hosts = hasattr(options, "command_host_words")
    if takes_hosts:
        words += options.command_host_words
        if options.command_hosts_file is not None:
            words += _words_of(options.command_hosts_file)
    if not words:
        return ()
    if options.command is not None and not takes_hosts:
        raise UsageError(f"-H does not go with gputop {options.command}: that is of this machine")
    from gputop.sources.ssh.names import parse_hosts

    return parse_hosts(words, _groups(), os.environ, sys.stdin)


def _words_of(path: str) -> list[str]:
    from gputop.commands.reading import read_file
    from gputop.sources.ssh.names import words_in

    words = words_in(read_file(path).decode("utf-8", "replace"))
    if not words:
        raise UsageError(f"{path!r} names no host")
    return words


def _groups() -> dict[str, tuple[str, ...]]:
    from gputop.model.metrics.process import COLUMNS
    from gputop.settings import read

    try:
        return read(os.environ, COLUMNS).groups
    except UsageError as error:
        complain(f"{error}; its groups are not known")
        return {}


def for_each(
    hosts: Sequence[HostName],
    ask: Callable[[HostName | None], T],
    show: Callable[[HostName | None, T], int],
) -> int:
    """Ask every host, show the answers in their order, and return the worst exit status.

    Without hosts this machine is asked, and GputopErrors are the caller's. A host that gives
    nothing is named on standard error, and the status is 1 at least.
    """
    if not hosts:
        return show(None, ask(None))
    from gputop.sources.many import ask_hosts, in_order

    status = 0
    for host, answer in in_order(hosts, ask_hosts(hosts, ask)):
        if isinstance(answer, GputopError):
            complain_of(host, answer)
            status = max(status, 1)
        else:
            status = max(status, show(host, answer))
    return status


def complain_of(host: HostName | None, error: GputopError) -> None:
    """Write to standard error why a host, or this machine, gives nothing."""
    name = "" if host is None else f"{host.asked}: "
    advice = _LOGIN if isinstance(error, LoginError) else ""
    complain(f"{name}{printable(str(error), _LONGEST)}{advice}")


def named(line: str, host: HostName | None) -> str:
    """Return a JSON object with the host that it is of as its first field."""
    return line if host is None else f'{{"host": {json.dumps(host.asked)}, {line[1:]}'


class HostTexts:
    """Text of several hosts, each under its name, with a blank line between."""

    def __init__(self) -> None:
        self._begun = False

    def write(self, host: HostName | None, text: str) -> None:
        """Write what one host, or this machine, has to say."""
        heading = "" if host is None else f"{host.asked}:\n"
        write(f"\n{heading}{text}" if self._begun else f"{heading}{text}")
        self._begun = True
