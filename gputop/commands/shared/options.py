"""The options that gputop and its commands share, with one meaning before and behind a command.

A command says in TAKES which of them it takes, by dest, with a help of its own where it has one; in
NEEDS of which others an option needs one; in APART which two cannot be used together.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from gputop.commands.shared.values import duration, interval
from gputop.errors import UsageError
from gputop.protocol.messages import MAX_INTERVAL, MIN_INTERVAL
from gputop.settings import THEMES

_BEHIND = "_behind"
"""The end of a dest that collects words behind a command, beside those before it."""
_NUMBER = "-1"
"""No flag behind a command, where argparse would then take every negative number for one."""
_FLAG, _LIST = {"action": "store_true"}, {"action": "append"}
_EVERY = f"seconds between refreshes, {MIN_INTERVAL} to {MAX_INTERVAL:.0f} (default: 1)"
OPTIONS: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "host_words": ("-H --host", "these machines instead of this one, over ssh:"
        " [user@]host[:port], with commas or repeated; node[01-16], @group of the settings, @slurm,"
        " - for standard input", {**_LIST, "metavar": "HOST"}),
    "hosts_files": ("--hosts", "and those that a file names", {**_LIST, "metavar": "FILE"}),
    "login_timeout": ("--timeout", "with -H: seconds for a host to let gputop in; one that does not"
        " is named at the end (default: 5)", {"metavar": "SEC",
        "type": duration("a number of seconds from 0.1 to 600", 0.1, 600)}),
    "once": ("--once -1", "print one snapshot as text and exit", _FLAG),
    "json": ("--json", "print one snapshot as JSON and exit", _FLAG),
    "line": ("--line", "print one line for a status bar and exit", _FLAG),
    "format": ("--format", "with --line: text with fields, as '{free}/{gpus} free'"
        " (gputop help line)", {"metavar": "TEXT"}),
    "watch": ("--watch", "with --json or --line: print a line every interval", _FLAG),
    "demo": ("--demo", "show an invented machine", _FLAG),
    "prometheus": ("--prometheus", "the machines that a Prometheus server knows, as"
        " http://prometheus:9090 (gputop help cluster)", {"metavar": "URL"}),
    "interval": ("-i --interval", _EVERY, {"metavar": "SEC", "type": interval}),
    "theme": ("--theme", f"colours: {', '.join(THEMES)}", {"choices": THEMES, "metavar": "NAME"}),
    "glyphs": ("--glyphs", "what bars are drawn with (default: what the locale can show)",
        {"choices": ("auto", "unicode", "ascii")}),
    "mouse": ("--no-mouse", "leave clicks and the wheel to the terminal",
        {"action": "store_false"}),
    "user": ("-u --user", "start with the processes of one user; 'me' for your own (u shows the"
        " others)", {"metavar": "NAME"}),
    "readonly": ("--readonly", "signal no process, not with gputop kill either"
        " (GPUTOP_READONLY=1 does the same)", _FLAG),
    "print_last": ("--print-last", "print the last snapshot as text on exit", _FLAG),
}  # fmt: skip
"""Flags, help and how argparse reads them, by dest, in the order of --help. None: not given."""
HOSTS = {"host_words": "", "hosts_files": ""}
HOSTS_ONCE = {**HOSTS, "login_timeout": ""}
"""For a command that asks each host once."""
LOOKS = {"theme": "", "glyphs": "", "mouse": ""}
JSON = {"json": "print a line of JSON"}
PROMETHEUS_APART = tuple(("--prometheus", other) for other in ("-H", "--hosts", "--demo"))
_FORMS = ("--once", "--json", "--line")
NEEDS = {"--watch": ("--json", "--line"), "--format": ("--line",), "--timeout": _FORMS}
APART = (
    ("--once", "--json"), ("--once", "--line"), ("--json", "--line"), ("--timeout", "--watch"),
    *(("-u", form) for form in _FORMS),
    *PROMETHEUS_APART,
    *(("--prometheus", other) for other in ("--timeout", "-u", "--print-last")),
)  # fmt: skip
"""With NEEDS, those of gputop without a command."""


def _is_list(reading: Mapping[str, Any]) -> bool:
    return bool(reading.get("action") == "append")


def add_shared(parser: argparse.ArgumentParser, takes: Mapping[str, str], behind: bool) -> None:
    """Declare the options, without a default, that a parser does not have as its own. Those that a
    command does not take are read, too: it refuses them in the same words before and behind it."""
    for dest, (words, help_, reading) in OPTIONS.items():
        flags = [flag for flag in words.split() if not behind or flag != _NUMBER]
        if parser._option_string_actions.keys().isdisjoint(flags):
            parser.add_argument(
                *flags,
                dest=dest + _BEHIND if behind and _is_list(reading) else dest,
                default=argparse.SUPPRESS,
                help=(takes.get(dest, argparse.SUPPRESS) if behind else "") or help_,
                **reading,
            )


def complete(
    options: argparse.Namespace, takes: Iterable[str], parser: argparse.ArgumentParser
) -> None:
    """Join what is before and behind the command, and make the rest None. UsageError for an option
    that the command does not take; `readonly` is true of each."""
    given, command = vars(options), options.command
    for dest, (words, _, reading) in OPTIONS.items():
        if _is_list(reading):
            lists = given.pop(dest, []), given.pop(dest + _BEHIND, [])
            given.update({dest: [*lists[0], *lists[1]]} if any(lists) else {})
        if command is not None and dest in given and dest not in {*takes, "readonly"}:
            flag = words.split()[0]
            if parser._option_string_actions[flag].dest.removesuffix(_BEHIND) == dest:
                raise UsageError(f"{flag} is not an option of gputop {command}")
            raise UsageError(f"put {flag} after the command: gputop {command} {flag}")
        given.setdefault(dest, () if _is_list(reading) else None)


def check(
    options: argparse.Namespace,
    parser: argparse.ArgumentParser,
    needs: Mapping[str, Iterable[str]],
    apart: Iterable[tuple[str, str]],
) -> None:
    """Check what options need, and cannot be used with. UsageError."""

    def is_given(flag: str) -> bool:
        action = parser._option_string_actions.get(flag)
        dest = flag.lower() if action is None else action.dest.removesuffix(_BEHIND)
        value = getattr(options, dest)
        return value not in (None, (), parser.get_default(dest)) and value is not False

    for flag, others in needs.items():
        if is_given(flag) and not any(map(is_given, others)):
            raise UsageError(f"{flag} needs {' or '.join(others)}")
    for flag, other in apart:
        if is_given(flag) and is_given(other):
            raise UsageError(f"{flag} cannot be used with {other}")
