"""The language of a pasted text, and what the text sets and starts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gputop.model.cuda.advice import mistake, name_advice
from gputop.model.cuda.pasted import cleaning
from gputop.model.cuda.pasted.commands import follow_shell
from gputop.model.cuda.pasted.config import GPUS, read_config
from gputop.model.cuda.pasted.dialects import to_posix
from gputop.model.cuda.pasted.launchers import SLURM_SETS, STARTERS
from gputop.model.cuda.pasted.outcome import (
    NoProgramError,
    NotKnownError,
    Pasted,
    PastedValue,
    StartedProgram,
    Trace,
    UnclearError,
    UndecidedError,
    Unknown,
)
from gputop.model.cuda.pasted.programs import PROGRAMS
from gputop.model.cuda.pasted.python import follow_python, looks_like_python
from gputop.model.cuda.pasted.variables import Variables
from gputop.model.machine.environment import CONTAINER, NAME, ORDER, Environ, is_misspelt
from gputop.model.machine.finding import Finding

LONGEST = 16384
"""The most characters of a text that is read."""
_LONG_NUMBER = re.compile(r"\b[0-9]\w{1000}")
"""What has more digits than Python makes a number of, or a text of a number."""
_WORDS = re.compile(r"(?<![\w${-])[A-Za-z_][A-Za-z0-9_-]*")
_ASSIGNS = re.compile(r"(?:export\s+)?[A-Za-z_]\w*=\S*\s+\S", re.ASCII)
_PYTHON = re.compile(r"\s*(?:os\.environ|environ)\b|\s*(?:import|from)\s+\w+\s*(?:$|\n|import)")
_STARTS = re.compile(r"(?:\./|/|~/)?[\w./-]*(?:python[0-9.]*|\.(?:py|sh))", re.ASCII)
_LANGUAGES = {"python", "py", "python3", "ipython", "pycon"}


def read_pasted(text: str, inherited: Mapping[str, str] | None = None) -> Pasted | None:
    """Read a text; None if it is a value of CUDA_VISIBLE_DEVICES, not a text about it.

    `inherited` are the variables of the shell in which it would be pasted.
    """
    if not _is_text(text):
        return None
    trace, own = Trace(), dict(inherited or {})
    try:
        programs = _read(text, own, trace)
        value, order, gpus = _only(programs)
    except NotKnownError as error:
        return _unknown(f"{error.words}: {error}", text, trace)
    except RecursionError:
        return _unknown(f"{UnclearError.words}: it is nested too deeply", text, trace)
    beside = {} if value is None else {NAME: value}
    advice = [*trace.advice, *_misspelt(text, beside, limited=gpus is not None)]
    if NAME in own and value == own[NAME] and not _sets(text, own):
        advice.append(mistake("shell-inherited", value=own[NAME]))
    if value and re.search("[\u201c\u201d\u2018\u2019\u00ab\u00bb]", value):
        advice.append(mistake("shell-typographic-quotes"))
    return Pasted(value, order, programs[-1].command, tuple(dict.fromkeys(advice)), gpus)


def _unknown(reason: str, text: str, trace: Trace) -> Pasted:
    advice = (*trace.advice, *_misspelt(text, {}, limited=True))
    return Pasted(None, None, (), advice, unknown=reason)


def _is_text(text: str) -> bool:
    """Return whether it is more than a value: it names or sets a variable, or starts a program."""
    head = text[:LONGEST].strip()
    if cleaning.names_variable(text) or _misspelt_in(head):
        return True
    first, *others = head.split(None, 1) or [""]
    starts = first in PROGRAMS or first in STARTERS or _STARTS.fullmatch(first) is not None
    return bool(others) and (starts or _ASSIGNS.match(head) is not None)


def _misspelt_in(text: str) -> list[str]:
    return [*dict.fromkeys(filter(is_misspelt, _WORDS.findall(text[:LONGEST])))]


def _misspelt(text: str, beside: dict[str, str], *, limited: bool) -> list[Finding]:
    """Return advice on names meant to be CUDA_VISIBLE_DEVICES; `beside` holds what counts."""
    return [name_advice(name, Environ(beside), limited=limited) for name in _misspelt_in(text)]


def _certain(value: PastedValue) -> str | None:
    if isinstance(value, Unknown):
        raise UndecidedError(value.reason)
    return value


def _sets(text: str, own: dict[str, str]) -> bool:
    without = {name: value for name, value in own.items() if name != NAME}
    try:
        return _only(_read(text, without, Trace()))[0] == own[NAME]
    except NotKnownError:
        return False


def _read(text: str, inherited: Mapping[str, str], trace: Trace) -> list[StartedProgram]:
    """Return the programs that a text starts: at least one."""
    if len(text) > LONGEST:
        raise UnclearError(f"it is longer than {LONGEST} characters")
    if _LONG_NUMBER.search(text):
        raise UnclearError("it has a number of more than 1,000 digits")
    plain, language = cleaning.unfenced(cleaning.lines_of(text))
    plain, prompted = cleaning.without_prompts(plain)
    cleaning.check_characters(plain)
    variables = Variables(inherited)
    if re.search(NAME + r"=[\"']?\$[0-9]", plain):
        trace.say(mistake("shell-dollar"))
    if language in _LANGUAGES or prompted == "python" or looks_like_python(plain):
        if re.search(r"(?m)^[ \t]*[%!]", plain):
            raise UnclearError("IPython's commands and Python stand in one text")
        follow_python(plain, variables, trace, follow_shell)
        return trace.started
    if _PYTHON.match(plain):
        raise UnclearError("it is not complete Python")
    config = read_config(plain)
    if config is not None:
        return [_configured(config)]
    if re.match(r"\s*\[[\w:.-]+\]\s*\n", plain):
        raise UnclearError("gputop does not know this kind of configuration")
    if re.search(r"(?m)^#SBATCH\s.*(?:--gres|--gpus|-G)", plain):
        raise UndecidedError(SLURM_SETS)
    posix = cleaning.one_line(to_posix(plain, windows=prompted == "cmd"))
    follow_shell(posix, variables, trace)
    return trace.started or [_behind(plain, variables)]


def _configured(config: list[tuple[str, str]]) -> StartedProgram:
    values: dict[str, str] = {}
    for name, value in config:
        if values.setdefault(name, value) != value:
            raise UndecidedError("it sets several values")
    gpus = values.get(GPUS, values.get(CONTAINER))
    return StartedProgram(values.get(NAME), values.get(ORDER), gpus)


def _behind(text: str, variables: Variables) -> StartedProgram:
    """Return a program as it would start after a text that starts none itself."""
    plain = re.sub(r"#.*", "", text)
    misspelt = _misspelt_in(plain)
    if not misspelt and re.search(rf"(?<![$\w]){NAME}\b", plain) is None:
        raise NoProgramError("it starts none that gputop knows, and sets nothing")
    if re.match(r"\s*(?:echo|printf|printenv|grep)\b", text) or variables.ended:
        raise NoProgramError("it sets nothing either")
    value = variables.get(NAME)
    removes = re.search(r"\bunset\b|\bexport\s+-n|-u\b|-e\b|Remove-Item", text)
    if value is None and not removes and not misspelt:
        raise NoProgramError("what it sets is gone at its end")
    if NAME not in variables.exported and "||" in plain:
        raise NoProgramError("what it sets is not exported")
    return StartedProgram(value, variables.get(ORDER))


def _only(programs: list[StartedProgram]) -> tuple[str | None, str | None, str | None]:
    """Return the value, order and GPUs of all programs; UndecidedError if they differ."""
    values = {(_certain(p.value), _certain(p.order), _certain(p.gpus)) for p in programs}
    if len(values) > 1:
        raise UndecidedError("it starts several programs, with different values")
    return values.pop()
