"""A pasted line of shell or Python: what the program it starts gets, and what was meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import msgspec

from gputop.model.advice import Advice, Severity
from gputop.model.environ import CONTAINER, NAME, ORDER, is_misspelt
from gputop.model.process_advice import container_variable_advice, name_advice
from gputop.model.text import printable

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"environ\[\s*[\"'](\w+)[\"']\s*\]\s*=\s*[\"']([^\"'\n]*)[\"']", re.ASCII)
_LIST = re.compile(r"[0-9,]+|(?:GPU|MIG)-[\w,/-]+", re.ASCII)
_DOLLAR = re.compile(NAME + r"=[\"']?\$[0-9]")
_ENDS = {";", "&&", "||", "|", "&", "\n"}


class ShellLine(msgspec.Struct, frozen=True):
    """What a line does."""

    value: str | None
    """CUDA_VISIBLE_DEVICES of the program that it starts; None: unset."""
    order: str | None
    """CUDA_DEVICE_ORDER, likewise."""
    rest: str
    """The program's command line."""
    advice: tuple[Advice, ...]


def parse_shell(text: str) -> ShellLine | None:
    """Read a line as bash does, or as Python; None where it is not about our variables."""
    assigned = dict(_PYTHON.findall(text))
    names = [*re.findall(r"[A-Za-z_][A-Za-z0-9_-]*", text), *assigned]
    if not any(name in (NAME, ORDER, CONTAINER) or is_misspelt(name) for name in names):
        return None
    line = _Line()
    if assigned:
        line.exported.update(assigned)
        line.note_names(assigned)
    else:
        if _DOLLAR.search(text):
            line.say("shell-dollar", "error", "'$0' is the shell's own name. Write a plain 0.")
        for statement in _statements(text):
            line.run(statement)
    given = {**line.exported, **line.program}
    return ShellLine(given.get(NAME), given.get(ORDER), line.rest, tuple(line.advice))


def _statements(text: str) -> Iterator[list[str]]:
    """Give the words of every command."""
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that is not closed
        words = re.sub(r"[\"']", "", text).split()
    statement: list[str] = []
    for word in words:
        if word in _ENDS:
            yield statement
            statement = []
        else:
            statement.append(word)
    yield statement


class _Line:
    """A shell while it reads a line."""

    def __init__(self) -> None:
        self.advice: list[Advice] = []
        self.exported: dict[str, str] = {}
        self.shell_only: dict[str, str] = {}
        self.program: dict[str, str] = {}
        self.rest = ""

    def say(self, id_: str, severity: Severity, message: str) -> None:
        self.advice.append(Advice(id_, severity, printable(message, 400)))

    def note_names(self, assigned: dict[str, str], command: str = "") -> None:
        """Judge the names that are assigned."""
        self.advice += [name_advice(name) for name in assigned if is_misspelt(name)]
        container = command.rpartition("/")[2] in ("docker", "podman", "nerdctl")
        if CONTAINER in assigned and NAME not in assigned and not container:
            self.advice.append(container_variable_advice())

    def run(self, words: list[str]) -> None:
        """Run a command: the variables before it, then the program."""
        local: dict[str, str] = {}
        keyword = ""
        position = 0
        for position, word in enumerate([*words, ""]):  # noqa: B007 - where the program begins
            match = _ASSIGNMENT.fullmatch(word)
            if match is not None:
                local[match[1]] = match[2]
            elif word in ("export", "set", "env", "declare", "typeset") or word.startswith("-"):
                keyword = word if word[0] != "-" else keyword
            elif word == "sudo":
                self._sudo(local, words)
            else:
                break
        command = words[position:]
        self.note_names(local, command[0] if command else "")
        if keyword == "set":
            self._set(local)
        elif command:
            self._start(local, command)
        else:
            (self.shell_only if keyword == "" else self.exported).update(local)

    def _sudo(self, local: dict[str, str], words: list[str]) -> None:
        keeps = any(word == "-E" or word.startswith("--preserve-env") for word in words)
        if keeps or not (NAME in local or NAME in self.exported):
            return
        for variables in (local, self.exported):
            variables.pop(NAME, None)
        message = f"sudo drops the variable: put it after sudo (sudo {NAME}=1 python ...) or use"
        self.say("shell-sudo", "warning", f"{message} sudo -E.")

    def _set(self, local: dict[str, str]) -> None:
        if NAME in local:
            message = "'set' is Windows cmd syntax; in bash it sets $1. Use export"
            self.say("shell-set", "error", f"{message} {NAME}={local[NAME]}.")

    def _start(self, local: dict[str, str], command: list[str]) -> None:
        """Start a program; its name may be a piece of the list that went astray."""
        name, astray = command[0], _LIST.fullmatch(command[0]) is not None
        if (name == NAME or is_misspelt(name)) and command[1:2] and command[1][0] == "=":
            message = f"Space before '=': bash runs a command called {name} and masks nothing."
            self.say("shell-space-before-equals", "error", message)
        elif NAME in local and astray and not local[NAME]:
            message = f"Space after '=': this hides every GPU and runs a command called {name}."
            self.say("shell-space-after-equals", "error", message)
        elif NAME in local and astray:
            message = (
                f"Space in the list: the value is {local[NAME]} and a command called {name} is"
            )
            self.say("shell-space-in-list", "error", f"{message} run. Separate GPUs with commas.")
        elif NAME in self.shell_only and astray:
            message = "';' ends the command: the variable is set for this shell only and a command"
            fix = f"called {name} is run. Separate GPUs with commas."
            self.say("shell-semicolon", "error", f"{message} {fix}")
        elif NAME in self.shell_only and not local:
            message = f"{NAME} is not exported: the program does not see it. Use export, or write"
            self.say("shell-not-exported", "error", f"{message} it before the program's name.")
        self.program, self.rest = local, shlex.join(command)
