"""Commands that start another one on this machine: nohup, env, sudo, tmux, conda run.

Most are a line of a table: their options, and the number of words before the command. An unknown
option is refused, because the next word may or may not be its value. Commands that lead elsewhere,
into a container, a job or another machine, are in launchers.py. Those of REFUSED start something in
a way that is not followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gputop.model.cuda.advice import mistake
from gputop.model.cuda.pasted.outcome import (
    CONCERNED,
    PastedValue,
    UnclearError,
    UndecidedError,
    Unknown,
    mentions,
)
from gputop.model.cuda.pasted.programs import words
from gputop.model.cuda.pasted.shell import Assignment, Shell
from gputop.model.cuda.pasted.words import Argument, Command
from gputop.model.machine.environment import NAME

Rest = list[Argument] | None
"""The command that is started; [] if it is followed already or there is none; None if the wrapper
itself is the program."""
Wrapper = Callable[[Shell, Command], Rest]

# --- options and variables -----------------------------------------------------------------------

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)


class WrapperOptions(dict[str, list[Argument]]):
    """The values of each option, by its name as written; a flag has none."""

    def __missing__(self, _name: str) -> list[Argument]:
        return []

    def add(self, name: str, *values: Argument) -> None:
        self[name] = [*self[name], *values]


def split(
    command: str, arguments: Sequence[Argument], flags: str = "", valued: str = ""
) -> tuple[WrapperOptions, list[Argument]]:
    """Return the options in front of the first other word, and the words from there on.

    `flags` and `valued` are the known options without and with a value. The flag `--any=` allows
    every option that is written as --name=value.
    """
    alone, with_value = flags.split(), valued.split()
    options = WrapperOptions()
    rest = list(arguments)
    while rest and rest[0].word.startswith("-") and rest[0].word != "-":
        word = rest.pop(0)
        name, equals, value = word.word.partition("=")
        if word.word == "--":
            break
        if equals and (name in with_value or ("--any=" in alone and name.startswith("--"))):
            start = word.end - len(value.encode()) if word.bare else word.start
            options.add(name, Argument(value, start, word.end, word.bare))
        elif word.word in alone:
            options.add(word.word)
        elif word.word in with_value:
            options.add(word.word, _value(command, word.word, rest))
        else:
            for letter in _letters(command, word, alone, with_value, rest):
                options.add(*letter)
    return options, rest


def _value(command: str, name: str, rest: list[Argument]) -> Argument:
    if not rest:
        raise UnclearError(f"{command} {name} stands without its value")
    return rest.pop(0)


def _letters(
    command: str, word: Argument, alone: list[str], with_value: list[str], rest: list[Argument]
) -> Iterator[tuple[str, Argument] | tuple[str]]:
    """Read options written together, such as -dmS; the last may have a value."""
    for end, letter in enumerate(word.word[1:], 2):
        name, attached = f"-{letter}", word.word[end:]
        if name in with_value:
            value = word._replace(text=attached) if attached else _value(command, name, rest)
            yield name, value
            return
        if name not in alone:
            raise UnclearError(f"gputop does not know {word.word.partition('=')[0]} of {command}")
        yield (name,)


def set_variable(shell: Shell, name: str, value: PastedValue) -> None:
    shell.variables.set(name, value, export=True)
    if value is not None:
        shell.local = {*shell.local, name}


def _assigned(shell: Shell, word: Argument) -> Assignment | None:
    if match := _ASSIGNMENT.fullmatch(word.word):
        shell.account(word)
        return match[1], match[2]
    begun = re.match(r"[^\s=]*?[\"']?([A-Za-z_]\w*)=", shell.raw(word))
    if begun is None or not isinstance(word.text, Unknown):
        return None
    shell.account(word)
    return begun[1], word.text


def assign(shell: Shell, rest: list[Argument]) -> list[Argument]:
    """Take NAME=VALUE words in front of a command as variables; return what follows."""
    while rest and (pair := _assigned(shell, rest[0])):
        set_variable(shell, *pair)
        rest = rest[1:]
    return rest


def give(
    shell: Shell, values: Sequence[Argument], before: Mapping[str, PastedValue] | None = None
) -> None:
    """Do what options such as `-e NAME=VALUE` say; a bare NAME takes the value from `before`."""
    before = before or {}
    for value in sorted(values, key=lambda value: value.start):
        pair = _assigned(shell, value)
        if pair is not None:
            set_variable(shell, *pair)
        elif isinstance(value.text, Unknown):
            raise UndecidedError(f"an option's value is not told: {value.text.reason}")
        elif value.word in before:
            shell.account(value)
            set_variable(shell, value.word, before[value.word])


# --- the commands --------------------------------------------------------------------------------


class _Plain(NamedTuple):
    """A command that only starts another one."""

    flags: str = ""
    valued: str = ""
    before: int = 0
    """The number of words before the command."""
    verbs: str = ""
    """Its sub-commands that start something."""


_RUN = _Plain(
    "--no-capture-output --live-stream -v --no-sync --frozen --locked --isolated -q --offline",
    "-n -p --name --prefix --cwd --with --python --extra --group --project --directory -e",
    verbs="run exec",
)
_PROFILES = "-o --output -t --trace -f --force-overwrite -s -d -y -w -x --set --section -k -c"
_PLAIN = {
    "nohup": _Plain(),
    "nice": _Plain("-0 -1 -2 -3 -4 -5 -10 -15 -19 -20", "-n --adjustment"),
    "ionice": _Plain("-t --ignore", "-c -n --class --classdata"),
    "time": _Plain("-p -v -a -q --verbose --append --portability", "-f -o --format --output"),
    "timeout": _Plain("-v --foreground --preserve-status", "-s -k --signal --kill-after", 1),
    "stdbuf": _Plain("", "-i -o -e --input --output --error"),
    "setsid": _Plain("-c -f -w --ctty --fork --wait"),
    "taskset": _Plain("-a -c --cpu-list --all-tasks", "", 1),
    "numactl": _Plain(
        "-l --localalloc -a --all",
        "-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave --preferred",
    ),
    "chrt": _Plain("-f -r -b -i -o -d -a -v --fifo --rr --batch --idle --other", "", 1),
    "flock": _Plain("-s -x -e -n -u -o --nonblock --exclusive --shared", "-w -E --timeout", 1),
    "screen": _Plain("-d -m -D -L -A -a -U -O -q -r -R -x -i", "-S -t -s -c -h"),
    "unbuffer": _Plain("-p"),
    "strace": _Plain("-f -ff -c -C -q -qq -t -tt -T -v -y", "-e -o -s -p -P -u"),
    "gdb": _Plain("--args -batch -q -quiet", "-ex -x -iex"),
    "xvfb-run": _Plain("-a -l --auto-servernum", "-s -n -e -f --server-args --server-num"),
    "caffeinate": _Plain("-d -i -m -s -u", "-t -w"),
    "ncu": _Plain("--any=", _PROFILES),
    "nsys": _Plain("--any=", _PROFILES, verbs="profile"),
    **dict.fromkeys(words("conda mamba micromamba uv poetry pipenv pdm pixi rye hatch"), _RUN),
}
REFUSED = words(
    """
    at batch bsub bwrap capsh cgexec chroot clush daemonize distrobox doas entr expect firejail
    flatpak helm incus kubectl lxc mosh nsenter oc pdsh pkexec prlimit proot qsub runai runuser
    script setpriv snap start-stop-daemon su systemd-run toolbox ts tsp unshare watch wsl
    """
)
"""Commands that start others, and change the variables in ways that are not followed."""


def _plain(_shell: Shell, command: Command) -> Rest:
    form, rest = _PLAIN[command.name], command.arguments
    if form.verbs:
        if not rest or rest[0].word not in form.verbs.split():
            return []
        rest = rest[1:]
    return split(command.name, rest, form.flags, form.valued)[1][form.before :]


def _env(shell: Shell, command: Command) -> Rest:
    options, rest = split(
        "env", command.arguments, "-i --ignore-environment -0 --null -v", "-u --unset -C --chdir"
    )
    dash = bool(rest) and rest[0].word == "-"
    if dash or options.keys() & {"-i", "--ignore-environment"}:
        shell.variables.clear()
    for name in (*options["-u"], *options["--unset"]):
        shell.variables.set(name.word, None)
        shell.account(name)
    return assign(shell, rest[dash:])


def _sudo(shell: Shell, command: Command) -> Rest:
    """Follow sudo: it keeps few variables (env_reset), and takes NAME=VALUE before the command."""
    arguments = [word for word in command.arguments if word.word != "--preserve-env"]
    options, rest = split(
        "sudo", arguments,
        "-A -b -E -H -i -k -n -P -S -s -v --set-home --login --shell --non-interactive --stdin",
        "-u -g -h -p -C -r -t -T -U -D --user --group --host --prompt --chdir --preserve-env",
    )  # fmt: skip
    keeps_all = "-E" in options or len(arguments) < len(command.arguments)
    keeps = set(CONCERNED if keeps_all else ())
    for names in options["--preserve-env"]:
        keeps |= set(names.word.split(","))
        shell.account(names)
    for variable in CONCERNED:
        if variable in keeps and not options.keys() & {"-i", "--login"}:
            continue
        if variable == NAME and shell.variables.inherited(variable) is not None:
            shell.trace.say(mistake("shell-sudo"))
        shell.variables.set(variable, None)
    shell.local = set()
    return assign(shell, rest)


_TMUX = ("-2 -u -v -C -l -N", "-L -S -f -T -c")
_TMUX_NEW = ("-d -A -D -E -P -X -a -b -h -I -v -Z -k", "-c -e -F -f -n -s -t -x -y -l -p")
_TMUX_STARTS = words("new new-session new-window neww split-window splitw respawn-pane")
_ENTER = words("Enter C-m KPEnter ENTER C-M C-j")


def _tmux(shell: Shell, command: Command) -> Rest:
    """Follow tmux: its server starts the command, with the variables of the server's own start."""
    _, rest = split("tmux", command.arguments, *_TMUX)
    if any(word.word in (";", "\\;") for word in rest):
        raise UnclearError("several commands of tmux in one are not followed")
    verb = rest[0].word if rest else "new-session"
    if verb in ("send-keys", "send"):
        return _typed(shell, split(verb, rest[1:], "-l", "-t")[1])
    if verb not in _TMUX_STARTS:
        return []
    options, program = split(verb, rest[1:], *_TMUX_NEW)
    carried = shell.variables.inherited(NAME) is not None
    if carried:
        reason = "tmux gives it the variables of its server, which may have been started before"
        shell.variables.forget([NAME], reason)
    give(shell, options["-e"])
    if len(program) == 1:
        shell.follow_words(*program)
        return []
    return program or (None if carried else [])


def _typed(shell: Shell, keys: list[Argument]) -> Rest:
    """Follow one whole text that is typed into a shell in a window of tmux."""
    carried = [n for n in CONCERNED if shell.variables.inherited(n) is not None]
    shell.variables.forget(carried, "the window of tmux has variables of its own")
    lines = [key for key in keys if key.word not in _ENTER]
    before = len(shell.trace.started)
    if len(lines) != 1 or shell.trace.typed:
        raise UnclearError(
            "texts that are typed into a window one after the other are not followed"
        )
    shell.follow_words(*lines)
    shell.trace.typed = len(shell.trace.started) == before
    return []


def _xargs(shell: Shell, command: Command) -> Rest:
    """Follow xargs and parallel: what they fill in is not known."""
    if any(mentions(shell.raw(word)) for word in command.arguments):
        raise UndecidedError(f"{command.name} starts it several times, and fills in what it reads")
    return None


def _make(shell: Shell, command: Command) -> Rest:
    """Follow make: it gives the variables of its command line to what it runs."""
    for word in command.arguments:
        assign(shell, [word])
    return None if shell.variables.inherited(NAME) is not None else []


WRAPPERS: dict[str, Wrapper] = {
    **dict.fromkeys(_PLAIN, _plain),
    "env": _env,
    "sudo": _sudo,
    "tmux": _tmux,
    "xargs": _xargs,
    "parallel": _xargs,
    "make": _make,
}
