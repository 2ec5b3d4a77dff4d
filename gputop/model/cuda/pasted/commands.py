"""One command of a shell: what it starts, and with which variables; the shell's builtins."""

from __future__ import annotations

import re

from gputop.model.cuda.advice import container_variable_advice, mistake
from gputop.model.cuda.pasted.launchers import STARTERS
from gputop.model.cuda.pasted.outcome import (
    CONCERNED,
    NoProgramError,
    StartedProgram,
    Trace,
    UnclearError,
    UndecidedError,
    Unknown,
    mentions,
)
from gputop.model.cuda.pasted.programs import MODULES, PROSE, QUIET, RESERVED
from gputop.model.cuda.pasted.python import follow_code
from gputop.model.cuda.pasted.shell import Shell
from gputop.model.cuda.pasted.variables import Variables
from gputop.model.cuda.pasted.words import Command
from gputop.model.cuda.pasted.wrappers import REFUSED, assign
from gputop.model.machine.environment import CONTAINER, NAME, ORDER, is_misspelt

_PRINTING = ("echo", "printf", "printenv", "grep", "egrep", "fgrep")
_NUMBERED = tuple(map(str, range(1, 10)))
_BASHES = {"bash", "rbash", "zsh", "ksh", "mksh"}
_BASHISM = re.compile(
    r"\$'|\$\"|\+=|\(\(|\[\[|<<<|<\(|\|&|&>|=\(|\{\d+\.\.|"
    r"\b(?:function|source|declare|typeset|local|export\s+-n|time|exec\s+-a)\b"
)
_HARMLESS = r"(?:activate(?:\.\w+)?|\.(?:bash|zsh)rc|\.\w*profile|conda\.sh|setvars\.sh)[\"']?$"
_SHELLS = _BASHES | {"sh", "dash", "ash", "busybox"}
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*(?:-dbg)?|ipython[0-9]*", re.ASCII)
_ASTRAY = re.compile(r"[0-9,]+|(?:GPU|MIG)-[\w,/-]+", re.ASCII)
"""A piece of a list that stands where a command should."""


def follow_shell(text: str, variables: Variables, trace: Trace) -> None:
    """Follow a text in a shell of its own."""
    Shell(text, variables, trace, _run).follow()


def _run(shell: Shell, command: Command) -> None:
    shell.trace.step()
    shell.variables.exits(True, certain=False)
    word, name = command.words[0], command.name
    if word.word.startswith("-") or (word.bare and name in RESERVED):
        raise UnclearError(f"'{word.word}' stands where the grammar does not expect it")
    if shell.call(command):
        return
    if name in _BUILTINS:
        _BUILTINS[name](shell, command)
    elif name in _SHELLS:
        _shell(shell, command)
    elif name in STARTERS:
        _wrapped(shell, command)
    elif name in REFUSED:
        words = " ".join(map(shell.raw, command.words))
        if any(shell.variables.all_inherited().values()) or mentions(words):
            raise UnclearError(f"gputop does not know what {name} gives to what it starts")
    elif name in _PRINTING:
        _prints(shell, command)
    elif name in QUIET:
        shell.variables.certain = name in ("true", ":", "sleep", "wait")
    else:
        _start(shell, command)


# --- programs ------------------------------------------------------------------------------------


def _start(shell: Shell, command: Command) -> None:
    """Note a program that is started, with the variables that it inherits."""
    name, before = command.name, shell.variables.copy()
    _judge_name(shell, command)
    if name.lower() in PROSE and NAME in shell.local:
        raise UnclearError("it reads like a sentence, not like a command")
    python = _PYTHON.fullmatch(name) is not None
    if python:
        options = [argument.word for argument in command.arguments[:2]]
        if options[:1] in (["--version"], ["-V"]) or options in [
            ["-m", module] for module in MODULES
        ]:
            return
        _follow_python(shell, command)
    if python or name == "torchrun":
        _judge_arguments(shell, command)
    _note(shell, command)
    shell.variables.become(before)


def _note(shell: Shell, command: Command) -> None:
    variables = shell.variables
    value, order = variables.inherited(NAME), variables.inherited(ORDER)
    if value is None and isinstance(variables.get(NAME), str):
        shell.trace.say(mistake("shell-not-exported"))
    if variables.gpus is None and variables.inherited(CONTAINER) is not None and value is None:
        shell.trace.say(container_variable_advice())
    words = tuple(argument.word for argument in command.words)
    shell.trace.started.append(StartedProgram(value, order, variables.gpus, words))


def _judge_name(shell: Shell, command: Command) -> None:
    """Recognise a command that was meant as part of the list or as an assignment."""
    name, *following = (word.word for word in command.words)
    value, left = shell.variables.get(NAME), name.partition("=")[0]
    words = value if isinstance(value, str) else ""
    if re.search(NAME + "[\"']?=", shell.raw(command.words[0])):
        raise UnclearError("the variable is used where it should be set")
    if _ASTRAY.fullmatch(name):
        if NAME in shell.local:
            where = "in-list" if words else "after-equals"
            shell.trace.say(mistake(f"shell-space-{where}", name=name, value=words))
        elif words and NAME not in shell.variables.exported:
            shell.trace.say(mistake("shell-semicolon", name=name))
    elif (name == NAME or is_misspelt(name)) and "".join(following[:1]).startswith("="):
        value = following[0][1:] or "".join(following[1:2])
        shell.trace.say(mistake("shell-space-before-equals", name=name, value=value))
    elif "=" not in name or not (NAME in name or is_misspelt(left)):
        return
    raise NoProgramError(f"a shell looks for a command called {name}")


def _judge_arguments(shell: Shell, command: Command) -> None:
    """Advise on an assignment after a program's name: the program takes it for an argument."""
    for argument in command.arguments:
        name, equals, value = argument.word.partition("=")
        if equals and name in CONCERNED and argument.bare:
            shell.account(argument)
            shell.trace.say(mistake("shell-after-program", name=command.name, value=value))


def _follow_python(shell: Shell, command: Command) -> None:
    """Follow the code of `python -c` or `python - <<EOF`, which may set variables itself."""
    words = command.words
    script = next((k for k, word in enumerate(words) if k and word.word[:1] != "-"), None)
    if script is None:
        if not mentions(command.input.document or ""):
            return
        if not command.input.literal:
            raise UndecidedError("the shell puts values into the program's text")
        follow_code(command.input.document or "", shell.variables, shell.trace, follow_shell)
        shell.account(command.input)
    elif re.fullmatch(r"-[a-zA-Z]*c", words[script - 1].word) and mentions(words[script].word):
        follow_code(words[script].word, shell.variables, shell.trace, follow_shell)
        shell.account(words[script])


# --- commands that start others ------------------------------------------------------------------


def _wrapped(shell: Shell, command: Command) -> None:
    """Follow a command that starts another one, with variables of its own."""
    before, local = shell.variables.copy(), shell.local
    rest = STARTERS[command.name](shell, command)
    if rest is None:
        _note(shell, command)
    elif rest:
        _run_program(shell, command._replace(words=rest))
    shell.variables.become(before)
    shell.variables.exits(True, certain=False)
    shell.local = local


def _run_program(shell: Shell, command: Command) -> None:
    if command.name in _BUILTINS:
        raise UnclearError(f"{command.name} behind another command is not followed")
    shell.variables.functions = {}
    _run(shell, command)


def _shell(shell: Shell, command: Command) -> None:
    """Follow `bash -c TEXT` and `bash <<EOF`; a script is a program like any other."""
    rest, has_text, document = command.arguments, False, command.input.document
    if command.name == "busybox" and rest and rest[0].word in ("sh", "ash"):
        rest = rest[1:]
    while rest and re.fullmatch(r"[-+][a-zA-Z]+|--login|--norc|--noprofile|-", rest[0].word):
        flag, rest = rest[0].word, rest[1:]
        letters = "" if flag.startswith("--") else flag[1:]
        if set(letters) & set("onOs"):
            raise UnclearError(f"{flag} of a shell is not followed")
        has_text |= "c" in letters
    bashism = _BASHISM.search(rest[0].word if has_text and rest else document or "")
    if bashism is not None and command.name not in _BASHES:
        raise UnclearError(f"not every sh reads '{bashism[0]}' as bash does")
    if has_text and rest:
        shell.follow_words(rest[0])
    elif rest:
        is_path = re.search("[/.]", rest[0].word) is not None
        _start(shell, command._replace(words=rest) if is_path else command)
    elif document is not None:
        shell.follow_document(command.input)
    elif command.input.fed:
        raise UndecidedError("a shell runs what another command prints, or a file")
    elif not shell.trace.started:
        _start(shell, command)


# --- builtins ------------------------------------------------------------------------------------


def _prints(shell: Shell, command: Command) -> None:
    """Account for what is only printed or searched for, unless a file or a command takes it."""
    name, arguments = command.words[0].word, command.arguments
    if name == "printf" and arguments and arguments[0].word.startswith("-v"):
        variable = arguments[1].word if arguments[1:] else arguments[0].word[2:]
        shell.variables.forget([variable], "it is what printf makes")
        return
    if not command.input.to_file and not command.input.piped:
        shell.account(*arguments)
    echoes = name in ("echo", "printf")
    shell.variables.exits(True if echoes else None, certain=echoes)


def _eval(shell: Shell, command: Command) -> None:
    if not any(isinstance(word.text, Unknown) for word in command.words):
        # otherwise it is like `eval "$(conda shell.bash hook)"`
        shell.inside(" ".join(word.word for word in command.arguments), shell.variables)
        shell.account(*command.arguments)


def _source(shell: Shell, command: Command) -> None:
    """Forget the variable, which a sourced file may set unless that is known to be harmless."""
    file = command.arguments[0].base if command.arguments else ""
    raw = "".join(map(shell.raw, command.arguments[:1]))
    if file in shell.trace.written or command.input.document is not None or "(" in raw:
        raise UnclearError("a text that the shell makes and reads itself is not followed")
    if not re.search(_HARMLESS, raw):
        shell.variables.forget([NAME], f"{file or 'a file'} may set it, which is read by source")
        shell.variables.export(NAME)


def _behind(command: Command, option: str, count: int = 1) -> Command:
    """Return the command after a builtin's name and after an option of `count` words, if given."""
    arguments = command.arguments
    has_option = bool(arguments) and arguments[0].word == option
    return command._replace(words=arguments[count:] if has_option else arguments)


def _exec(shell: Shell, command: Command) -> None:
    program = _behind(command, "-a", 2)
    if program.words:
        before = shell.variables.copy()
        _run_program(shell, program)
        shell.variables.become(before)
        shell.variables.ended = True


def _command(shell: Shell, command: Command) -> None:
    inner = _behind(command, "-p")
    if inner.words and inner.words[0].word in ("-v", "-V"):
        shell.variables.status = None
    elif inner.words and inner.words[0].word in shell.variables.functions:
        raise UnclearError("command in front of a function's name is not followed")
    elif inner.words:
        _run(shell, inner)


def _time(shell: Shell, command: Command) -> None:
    """Follow the shell's keyword `time`, which assignments may follow."""
    words = _behind(command, "-p").words
    if shell.local or (words and words[0].word.startswith("-")):
        _wrapped(shell, command)
        return
    before, functions = shell.variables.copy(), shell.variables.functions
    rest = assign(shell, words)
    if not rest:
        return
    inner = command._replace(words=rest)
    if len(rest) == len(words):
        _run(shell, inner)
        return
    if inner.name in _BUILTINS or rest[0].word in functions:
        raise UnclearError("time with an assignment before a builtin is not followed")
    _run(shell, inner)
    shell.variables.become(before)
    shell.local = set()


def _set(shell: Shell, command: Command) -> None:
    words = [argument.word for argument in command.arguments]
    for argument in command.arguments:
        name, equals, value = argument.word.partition("=")
        if equals and name == NAME:
            shell.trace.say(mistake("shell-set", value=value))
            shell.account(argument)
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if re.fullmatch(r"[-+][a-zA-Z]*a[a-zA-Z]*", word) or following == "allexport":
            shell.variables.export_all = word.startswith("-")
        elif re.match(r"-[a-zA-Z]*[kn]", word):
            raise UnclearError(f"set {word} is not followed")
    if "--" in words or (words and not words[0].startswith(("-", "+"))):
        shell.variables.forget(_NUMBERED, "set gives it")


def _read(shell: Shell, command: Command) -> None:
    """Forget what `read`, `let`, `shift` and the like change."""
    if command.words[0].word == "shift":
        shell.variables.forget(_NUMBERED, "shift moves it")
        return
    raw = " ".join(map(shell.raw, command.arguments))
    shell.account(*command.arguments)
    shell.variables.forget([*re.findall(r"[A-Za-z_]\w*", raw), "REPLY"], "it is calculated or read")
    shell.variables.exits(None)


def _test(shell: Shell, command: Command) -> None:
    shell.account(*command.words)
    shell.variables.exits(None)


def _false(shell: Shell, _command: Command) -> None:
    shell.variables.exits(False)


def _exit(shell: Shell, _command: Command) -> None:
    shell.variables.ended = True


def _jump(_shell: Shell, command: Command) -> None:
    raise UnclearError(f"{command.words[0].word} is not followed")


def _builtin(shell: Shell, command: Command) -> None:
    if command.arguments:
        _run(shell, command._replace(words=command.arguments))


def _alias(shell: Shell, command: Command) -> None:
    for argument in command.arguments:
        shell.variables.functions[argument.word.partition("=")[0]] = "alias"


_BUILTINS = {
    "eval": _eval, "source": _source, ".": _source, "exec": _exec, "command": _command,
    "builtin": _builtin, "time": _time, "set": _set, "false": _false, "test": _test,
    "alias": _alias,
    **dict.fromkeys(("read", "mapfile", "readarray", "getopts", "let", "shift"), _read),
    "exit": _exit, **dict.fromkeys(("return", "break", "continue"), _jump),
}  # fmt: skip
