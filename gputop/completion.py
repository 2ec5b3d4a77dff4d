"""The completion script of each shell: shtab's, with files, programs and groups of hosts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import shtab

_GROUPS = (
    "gputop config 2>/dev/null |"
    r""" sed -n '/^\[groups\]/,$s/^"\{0,1\}\([A-Za-z0-9_.-]*\)"\{0,1\} = .*/@\1/p'"""
)
"""Prints the groups of the settings, one a line."""
_HOSTS = {
    "bash": "_gputop_hosts",
    "zsh": "_gputop_hosts",
    "fish": "(_gputop_hosts)",
}
_PROGRAMS = {
    "bash": "_gputop_programs",
    "zsh": "_normal",
    "fish": "(_gputop_programs)",
    "tcsh": "c",
}
_PREAMBLE = {
    "bash": f"""\
_gputop_hosts() {{ compgen -W "@slurm $({_GROUPS})" -- "$1"; }}
_gputop_programs() {{ compgen -c -f -- "$1"; }}
""",
    "zsh": f"_gputop_hosts() {{ compadd -- @slurm $({_GROUPS}) }}\n",
    "fish": f"""\
function _gputop_hosts; echo @slurm; {_GROUPS}; end
function _gputop_programs; __fish_complete_command; __fish_complete_path (commandline -ct); end
""",
}
_BASH_END = """
# Readline breaks words at @.
_gputop() {
  local word=${COMP_WORDS[COMP_CWORD]}
  if [[ ${COMP_WORDS[COMP_CWORD-1]} == @ && $COMP_LINE == *" @$word" ]]; then
    local names=$(_gputop_hosts @)
    COMPREPLY=($(compgen -W "${names//@/}" -- "$word"))
  else
    _shtab_gputop
  fi
}
complete -o bashdefault -F _gputop gputop
"""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell. `parser` has all commands, and is changed."""
    commands = next(
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    commands["run"].add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM")
    for each in (parser, *commands.values()):
        for action in each._actions:
            if (values := _values(action)) is not None:
                action.complete = values
    text: str = shtab.complete(parser, shell=shell, preamble=_PREAMBLE)  # type: ignore[arg-type]
    text = text.replace("_arguments -C -s ", "_arguments -C -s -S ")  # zsh: words after --
    return f"{text}\n{_BASH_END if shell == 'bash' else ''}"


def _values(action: argparse.Action) -> Mapping[str, Any] | None:
    """Return what completes the values of an option; None if nothing does."""
    if action.dest.startswith("host_words"):
        return _HOSTS
    if action.dest == "program":
        return _PROGRAMS
    kinds = str(action.metavar).split("|")
    if {"FILE", "PATH"} & set(kinds):
        return shtab.FILE
    return shtab.DIRECTORY if {"DIR", "FOLDER"} & set(kinds) else None
