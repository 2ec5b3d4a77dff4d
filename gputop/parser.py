"""The options of gputop and of its commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from gputop.commands import HELP
from gputop.commands.shared import options as without_command
from gputop.commands.shared.hosts import hosts_of
from gputop.commands.shared.options import OPTIONS, add_shared, check, complete
from gputop.errors import UsageError
from gputop.model.instants import is_span
from gputop.model.machine.text import is_blank, printable
from gputop.sources.agent_process import SNAPSHOTS

_MAX_ERROR_CHARS = 400
"""Characters printed of a faulty command line, which may have megabytes."""
_EXAMPLES = """\
examples:
  gputop                       watch the GPUs of this machine
  gputop -H node1,node2        watch those of other machines, over ssh
  gputop --prometheus http://prometheus:9090   thousands of machines
  gputop --demo                try it on an invented machine
  gputop --once                one snapshot as text
  gputop --json | jq '.gpus[] | select(.free) | .index'
  gputop --json --watch -i 5   a line of JSON every 5 seconds
  gputop --line                one line for tmux, starship or waybar
  CUDA_VISIBLE_DEVICES=$(gputop free -n 2) python train.py
  gputop free -H @lab -n 2     and on which of these hosts
  gputop run -n 2 -- python train.py    the same, and nobody else is given them
  eval "$(gputop reserve --for 30m)"    a GPU for this shell
  gputop kill --user me --gpu 2   end my processes on GPU 2
  gputop record                write down what happens, 10 seconds apart
  gputop replay -2h            what happened two hours ago, as it was recorded
  gputop wait train.py --notify   until it has ended
  gputop usage --since 7d      who held GPUs, and who worked on them
  gputop map 1,2,-1            which GPU is cuda:0, what was dropped, and why
  gputop export                metrics for Prometheus, at /metrics
  gputop doctor                what is wrong with this machine, and what to do
  gputop serve                 show the screen in a browser, to look at
  gputop help keys             a page of the manual

exit status: 0 done, 1 other errors, 2 usage, 3 the NVIDIA driver cannot be read, 4 the agent ended
"""


def command_module(name: str) -> ModuleType:
    return import_module(f"gputop.commands.{name}")


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return what formats help, as wide as the terminal. argparse makes one for each option, and
    its own would import shutil to ask for the width."""
    try:
        width = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns) or 80
    except (OSError, ValueError):
        width = 80
    return argparse.RawDescriptionHelpFormatter(prog, width=width - 2)


class _ArgumentParser(argparse.ArgumentParser):
    commands: dict[str, _ArgumentParser]
    """The parsers of the commands."""

    def error(self, message: str) -> NoReturn:
        """Raise the error as one line, like every other error."""
        raise UsageError(f"{printable(message, _MAX_ERROR_CHARS)} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """List the valid choices, in the same words for options, commands and topics."""
        if action.choices is not None and value not in action.choices:
            kind = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
            from difflib import get_close_matches  # slow to import

            choices = list(map(str, action.choices))
            near = get_close_matches(str(value)[:_MAX_ERROR_CHARS], choices, 1)
            advice = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"unknown {kind} {printable(repr(value), _MAX_ERROR_CHARS)}: {advice}"
                f"choose from {', '.join(choices)}"
            )


def split_program(words: list[str]) -> tuple[list[str], list[str]]:
    """Return gputop's own words, and those after --, which are the program to run."""
    at = _command_at(words)
    if words[at : at + 1] != ["run"] or not {"-h", "--help"}.isdisjoint(words[: at + 2]):
        return words, []
    if "--" not in words[at:]:
        raise UsageError("put -- before the program: gputop run -n 2 -- python train.py")
    end = words.index("--", at)
    return words[:end], words[end + 1 :]


def _command_at(words: Sequence[str]) -> int:
    """Return where the command stands; at the end if there is none."""
    valued = [
        flag for words_, _, reading in OPTIONS.values() if "store" not in reading.get("action", "")
        for flag in words_.split()
    ]  # fmt: skip
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 1 + (words[at] in valued)
    return at


def reject_empty_words(words: list[str]) -> None:
    """Raise UsageError if a word of a command line is empty.

    An empty word is most often a shell variable that is not set, and would mean everything.
    """
    for number, word in enumerate(words, 1):
        _, sign, value = word.partition("=") if word.startswith("-") else ("", "", "")
        if is_blank(word) or (sign and is_blank(value)):
            hint = " For an empty value write CUDA_VISIBLE_DEVICES=" if "map" in words else ""
            raise UsageError(f"argument {number} is empty (an unset variable?){hint}")


def spans_as_options(words: Sequence[str]) -> list[str]:
    """Write `-2h`, alone or after `--at`, as `--at=-2h`: argparse would take it for an option."""
    joined: list[str] = []
    for word in words:
        if is_span(word) and word.startswith("-"):
            if joined[-1:] == ["--at"]:
                joined.pop()
            word = f"--at={word}"
        joined.append(word)
    return joined


def parse(words: list[str]) -> argparse.Namespace:
    """Return the options of a command line, and the program after its --. UsageError."""
    words, program = split_program(words)
    reject_empty_words(words)
    if words[_command_at(words) :][:1] == ["replay"]:
        words = spans_as_options(words)
    options = read(words)
    options.program = program
    return options


def read(words: Sequence[str]) -> argparse.Namespace:
    """Return the options that words before any -- mean, complete and checked. UsageError."""
    parser = make_parser(words)
    options = parser.parse_args(words)
    module = without_command
    if options.command is not None:
        module, parser = command_module(options.command), parser.commands[options.command]
    complete(options, getattr(module, "TAKES", {}), parser)
    check(options, parser, getattr(module, "NEEDS", {}), getattr(module, "APART", ()))
    options.hosts = hosts_of(options)
    return options


def make_parser(words: Sequence[str] = tuple(HELP)) -> _ArgumentParser:
    """Return the parser for command lines with these words; by default with all commands, as for
    completions and documentation.

    A command is imported only if it is named, so that the others start without its delay. Words
    that name a form of snapshot, and nothing else, need no command.
    """
    parser = _ArgumentParser(
        prog="gputop",
        description="Who is on which GPU, and which GPU is cuda:0.",
        epilog=_EXAMPLES,
        formatter_class=_formatter,
    )
    add_shared(parser, {}, behind=False)
    add = parser.add_argument
    add("--completion", action=_Completion, choices=("bash", "zsh", "fish", "tcsh"),
        help="print the completion script for a shell and exit")  # fmt: skip
    add("-V", "--version", action=_Version, nargs=0, default=argparse.SUPPRESS,
        help="print the versions and exit")  # fmt: skip
    commands = parser.add_subparsers(
        dest="command", title="commands", metavar="COMMAND", prog=parser.prog
    )
    parser.commands = commands.choices
    for name, summary in () if SNAPSHOTS.issuperset(words) else HELP.items():
        if name in words:
            module = command_module(name)
            of_command = commands.add_parser(
                name, help=summary, description=module.DESCRIPTION, epilog=module.EPILOG,
                formatter_class=_formatter,
            )  # fmt: skip
            module.add_options(of_command)
            add_shared(of_command, getattr(module, "TAKES", {}), behind=True)
        else:
            commands.add_parser(name, help=summary)
    return parser


class _Version(argparse.Action):
    """Print the versions of gputop, Python and the libraries that gputop uses."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from gputop.version import versions

        parser._print_message(f"{versions()}\n", sys.stdout)
        parser.exit()


class _Completion(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, _namespace: Any, shell: Any, _option: Any = None
    ) -> None:
        from gputop.completion import script

        parser._print_message(script(make_parser(), shell), sys.stdout)
        parser.exit()
