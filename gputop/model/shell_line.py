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
_ENDS = {";", "&&", "||", "|", "&"}
# What tutorials leave in front of and behind a line: `~/`, `$` or `user@host:~$`, a comment.
_PROMPT = re.compile(r"^\s*(?:[^\s=]*[$%>]|~/?)\s+", re.MULTILINE)
_COMMENT = re.compile(r"(?<!\S)#.*")
_MISTAKES = {
    "shell-dollar": "'$0' is the shell's own name. Write a plain 0.",
    "shell-set": "'set' is Windows cmd syntax; in bash it sets $1. Use export {NAME}={value}.",
    "shell-sudo": "sudo drops the variable: put it after sudo (sudo {NAME}=1 python ...) or use"
    " sudo -E.",
    "shell-space-before-equals": "Space before '=': bash runs a command called {name} and masks"
    " nothing. Write {NAME}={value}.",
    "shell-space-after-equals": "Space after '=': this hides every GPU and runs a command called"
    " {name}.",
    "shell-space-in-list": "Space in the list: the value is {value} and a command called {name} is"
    " run. Separate GPUs with commas.",
    "shell-semicolon": "';' ends the command: the variable is set for this shell only and a command"
    " called {name} is run. Separate GPUs with commas.",
    "shell-not-exported": "{NAME} is not exported: the program does not see it. Use export, or"
    " write it before the program's name.",
}


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
            line.say("shell-dollar")
        for statement in _statements(text):
            line.run(statement)
    alone = {} if line.rest else line.shell_only  # a line that is not written to its end
    given = {**line.exported, **line.program, **alone}
    return ShellLine(given.get(NAME), given.get(ORDER), line.rest, tuple(line.advice))


def _statements(text: str) -> Iterator[list[str]]:
    """Give the words of every command."""
    text = _COMMENT.sub("", _PROMPT.sub("", text)).replace("\n", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|")
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

    def say(self, id_: str, *, name: str = "", value: str = "") -> None:
        message = _MISTAKES[id_].format(NAME=NAME, name=name, value=value)
        severity: Severity = "warning" if id_ == "shell-sudo" else "error"
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
            elif word in ("export", "set", "env", "declare", "typeset"):
                keyword = word
            elif word == "sudo":
                self._sudo(local, words)
            elif not word.startswith("-"):
                break
        command = words[position:]
        self.note_names(local, command[0] if command else "")
        if keyword == "set":
            if NAME in local:
                self.say("shell-set", value=local[NAME])
        elif command:
            self._start(local, command)
        else:
            (self.exported if keyword else self.shell_only).update(local)

    def _sudo(self, local: dict[str, str], words: list[str]) -> None:
        keeps = any(word == "-E" or word.startswith("--preserve-env") for word in words)
        if not keeps and (NAME in local or NAME in self.exported):
            local.pop(NAME, None)
            self.exported.pop(NAME, None)
            self.say("shell-sudo")

    def _start(self, local: dict[str, str], command: list[str]) -> None:
        """Start a program; its name may be a piece of the list that went astray."""
        name, *arguments = command
        astray = _LIST.fullmatch(name) is not None
        if (name == NAME or is_misspelt(name)) and "".join(arguments[:1]).startswith("="):
            value = arguments[0][1:] or "".join(arguments[1:2])
            self.say("shell-space-before-equals", name=name, value=value)
        elif NAME in local and astray:
            where = "in-list" if local[NAME] else "after-equals"
            self.say(f"shell-space-{where}", name=name, value=local[NAME])
        elif NAME in self.shell_only and astray:
            self.say("shell-semicolon", name=name)
        elif NAME in self.shell_only and not local:
            self.say("shell-not-exported")
        self.program, self.rest = local, shlex.join(command)
