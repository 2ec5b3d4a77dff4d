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
    from collections.abc import Callable, Iterator, Sequence

    from gputop.sources.ssh.names import HostName

T = TypeVar("T")

_LOGIN = "; commands ask for no password: use a key, ssh-agent or ControlMaster"
_LONGEST = 2000
"""Characters of what is said of a host."""


def add_hosts(parser: argparse._ActionsContainer, prefix: str = "command_") -> None:
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
    from gputop.settings import read

    try:
        return read(os.environ).groups
    except UsageError as error:
        complain(f"{error}; its groups are not known")
        return {}


def answers_of(
    hosts: Sequence[HostName], ask: Callable[[HostName | None], T]
) -> Iterator[tuple[HostName | None, T]]:
    """Ask all hosts at the same time, and yield their answers in their order.

    Without hosts this machine is asked, and GputopErrors are the caller's. A host that gives
    nothing is named on standard error, and left out.
    """
    if not hosts:
        yield None, ask(None)
        return
    from gputop.sources.many import ask_hosts, in_order

    for host, answer in in_order(hosts, ask_hosts(hosts, ask)):
        if isinstance(answer, GputopError):
            complain_of(host, answer)
        else:
            yield host, answer


def print_answers(
    hosts: Sequence[HostName], ask: Callable[[HostName | None], tuple[str, int]], as_json: bool
) -> int:
    """Print the text or the JSON of each host, and return the worst exit status: `ask` returns its
    own with it, and that of a host that gives nothing is 1."""
    statuses: list[int] = []
    for host, (text, status) in answers_of(hosts, ask):
        if as_json:
            write(named(text, host), "utf-8")
        else:
            heading = "" if host is None else f"{host.asked}:\n"
            write(f"\n{heading}{text}" if statuses else f"{heading}{text}")
        statuses.append(status)
    return max([*statuses, int(len(statuses) < len(hosts))])


def complain_of(host: HostName | None, error: GputopError) -> None:
    """Write to standard error why a host, or this machine, gives nothing."""
    advice = _LOGIN if isinstance(error, LoginError) else ""
    complain(of_host(host, f"{printable(str(error), _LONGEST)}{advice}"))


def of_host(host: HostName | None, words: str) -> str:
    """Return words with the host that they are of; this machine is not named."""
    return words if host is None else f"{host.asked}: {words}"


def named(line: str, host: HostName | None) -> str:
    """Return a JSON object with the host that it is of as its first field."""
    return line if host is None else f'{{"host": {json.dumps(host.asked)}, {line[1:]}'
