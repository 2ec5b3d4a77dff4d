"""-H: the hosts of a command, all asked or followed at the same time."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from gputop.errors import GputopError, LoginError, UsageError
from gputop.model.machine.text import printable
from gputop.output import complain, write
from gputop.sources.agent_process import ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gputop.model.machine.frame import Frame
    from gputop.sources.ssh.names import HostName

T = TypeVar("T")

_LOGIN = "; commands ask for no password: use a key, ssh-agent or ControlMaster"
_TIMEOUT = 5.0
"""Seconds for the login of a host, unless --timeout says otherwise."""
_MAX_ERROR_CHARS = 2000
"""Characters printed of an error of a host."""


def hosts_of(options: argparse.Namespace) -> tuple[HostName, ...]:
    """Return the hosts named before or behind the command; empty means this machine. UsageError."""
    words = [*options.host_words, *chain.from_iterable(map(_words_of, options.hosts_files))]
    if not words:
        return ()
    from gputop.settings import usable_and_said
    from gputop.sources.ssh import carry
    from gputop.sources.ssh.client import allow_many_files
    from gputop.sources.ssh.names import parse_hosts

    settings, _ = usable_and_said(("groups", "cache_agent"), "its groups are not known")
    hosts = parse_hosts(words, settings.groups, os.environ, sys.stdin)
    carry.cache_is_allowed = settings.cache_agent
    allow_many_files()
    return hosts


def timeout_of(options: argparse.Namespace) -> float:
    """Return the seconds for a login of a command that asks each host once."""
    return _TIMEOUT if options.login_timeout is None else float(options.login_timeout)


def _words_of(path: str) -> list[str]:
    from gputop.commands.shared.values import read_file
    from gputop.sources.ssh.names import MOST_CHARACTERS, words_in

    words = words_in(read_file(path, MOST_CHARACTERS).decode("utf-8", "replace"))
    if not words:
        raise UsageError(f"{path!r} names no host")
    return words


def answers_of(
    hosts: Sequence[HostName],
    ask: Callable[[HostName | None], T],
    more: float = 0.0,
    late: str = "",
    ordered: bool = True,
) -> Iterator[tuple[HostName | None, T]]:
    """Ask all hosts at the same time, and yield their answers in the order of `hosts`, or as they
    come.

    At the end the error of each host that is left out is written to standard error. A host has
    ANSWER and `more` seconds for its whole answer; `late` ends the error of one that takes longer.
    Without hosts this machine is asked, and GputopErrors are raised.
    """
    if not hosts:
        yield None, ask(None)
        return
    from gputop.sources.many import in_order, whole_answers

    failures: dict[HostName, GputopError] = {}
    answers = whole_answers(hosts, ask, ANSWER + more, late)
    try:
        for host, answer in in_order(hosts, answers) if ordered else answers:
            if isinstance(answer, GputopError):
                failures[host] = answer
            else:
                yield host, answer
    finally:
        for host in filter(failures.__contains__, hosts):
            complain_of(host, failures[host])


def print_answers(
    options: argparse.Namespace, ask: Callable[[HostName | None], tuple[str, int]], more: float
) -> int:
    """Print the text or JSON of each host, and return the highest exit status. `ask` returns the
    text and the status of a host; the status of a host that fails is 1. `more` as in
    `answers_of`. JSON is printed as it comes."""
    statuses: list[int] = []
    for host, (text, status) in answers_of(options.hosts, ask, more, ordered=not options.json):
        if options.json:
            write(named(text, host), "utf-8")
        else:
            heading = "" if host is None else f"{host.requested_name}:\n"
            write(f"\n{heading}{text}" if statuses else f"{heading}{text}")
        statuses.append(status)
    return max([*statuses, int(len(statuses) < len(options.hosts))])


def watch(
    options: argparse.Namespace, put: Callable[[HostName | None, Frame | GputopError], None]
) -> int:
    """Give `put` each frame or error of all hosts until no host is left to try again, and return
    the exit status. Each new error of a host is also written to standard error, once. Without hosts
    it is this machine's frames, and GputopErrors are raised."""
    from gputop.settings import session_of
    from gputop.sources.follow_hosts import HostFollower

    interval = session_of(options).interval
    said: dict[HostName | None, str] = {}
    with closing(HostFollower(options.hosts or (None,), interval, options.demo)) as follower:
        for host, message in follower:
            if not isinstance(message, GputopError):
                said.pop(host, None)
            elif host is None:
                raise message
            elif said.get(host) != str(message):  # only once, not at every new try
                said[host] = str(message)
                complain_of(host, message)
            put(host, message)
    return 1


def complain_of(host: HostName | None, error: GputopError) -> None:
    """Write to standard error why a host, or this machine, does not answer."""
    advice = _LOGIN if isinstance(error, LoginError) else ""
    complain(of_host(host, f"{printable(str(error), _MAX_ERROR_CHARS)}{advice}"))


def complain_of_overdue(host: HostName | None, frame: Frame, unknown: str) -> None:
    """Write to standard error which GPUs do not answer, and what of them is `unknown` then."""
    for gpu in frame.gpus:
        if gpu.is_overdue:
            complain(of_host(host, f"GPU {gpu.index} does not answer: {unknown}"))


def of_host(host: HostName | None, words: str) -> str:
    """Return words with the name of their host in front; this machine has none."""
    return words if host is None else f"{host.requested_name}: {words}"


def named(line: str, host: HostName | None) -> str:
    """Return a JSON object with its host as the first field; this machine is left out."""
    return line if host is None else f'{{"host": {json.dumps(host.requested_name)}, {line[1:]}'
