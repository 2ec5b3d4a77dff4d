"""Whether what is pasted is a value or a text, and what a text says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import msgspec

from gputop.model.cuda.advice import misspelt_in, text_advice
from gputop.model.cuda.pasted.python import read_python
from gputop.model.cuda.pasted.shell import NotUnderstoodError, Program, Shell, Unknown, named, shown
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.finding import Finding

_MOST_CHARACTERS = 16384
NEWLINE, CUT = "\u2424", "\u2026"
"""What an editor of one line shows for a line end, and at the end of a text that it cut."""
_PART_OF_VALUE = re.compile(r"[\"'\[({]*(?:[\d,.;:+~-]*|(?:GPU|MIG|gpu)-\S*)[\"'\])}]*")
_CODE = re.compile(r"[A-Z]+_[A-Z_]+=|.*\b[A-Za-z_]\w*[.(][\"'A-Za-z(\d]")
_FENCE = re.compile(r"(?ms)^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)")
_PROMPTED = re.compile(
    r"(?m)(?:^[ \t]*(?:(?:\([\w.+/-]+\) ?)?(?:[\w.-]+@[\w.-]+:?[^\s$#%>=]* ?(?:[~/][^\s$#%>=]* ?)?"
    r"[$#%>]|\[[\w.-]+@[^\]\n]*\] ?[$#%]|[$%>❯➜]|~/|[\w./~-]*[$%]|(?:PS |[A-Z]:\\)[^>\n]*>))[ \t]+"
    r"|^[ \t]*(?:>>>|\.\.\.|In ?\[\d*\]:|\.{3,}:)(?:[ \t]|$)|^(?P<own>[ \t]*!|[ \t]+@))"
    r"(?P<typed>(?:.*\\\n)*.*)"
)
_PYTHON = re.compile(r"(?m)^[ \t]*(?:import \w|from [\w.]+ import|(?:os\.)?environ\b|os\.\w+\()")
_NAME = rf"(?P<name>{NAME}|{ORDER})"
_VALUE = r"['\"]? *[:= ] *(?P<value>\"[^\"$%\n]*\"|'[^'$%\n]*'|-?\d\d?(?:,\d\d?)*|PCI\w+)['\"]? *"
_CONFIG = re.compile(
    r"(?m)(?:^ *(?:(?P<item>- +(?=\w+ *=))|- +['\"]?|ENV +|Environment=['\"]?)(?=\w+[= ])"
    rf"|(?:^ *|(?P<json>['\"]))(?=\w+['\"]? *:)){_NAME}{_VALUE}(?(json)(?=[,}}\n]|$)|$)"
)
"""Lines of YAML, JSON, a Dockerfile, systemd. Quotes within an `item` of a list are part of it."""
_CONTAINER = re.compile(r"(?m)^[ -]*(?:services|containers|image|deploy):|mentFile=|name: CUDA_V")
_FISH_CSH = re.compile(
    rf"(?mi)(?:^|;) *(?:set(?: +-\w+)* +-\w*x\w*|setenv) +(?=\w+ ){_NAME}{_VALUE}(?=;|$)"
)
_BATCH = re.compile(r"(?m)^#(?:SBATCH|PBS|BSUB|COBALT|\$[ \t])")
_ODD = re.compile(
    "[^\\S\n\t ]|[\0-\x08\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufffd"
    f"\ud800-\udfff]|&(?:quot|amp|lt|gt|nbsp|#\\w+);|=<[\\w -]*>|(?<={NAME})=[\\w,-]*[:.](?=\\s|$)"
)
"""What is not what it looks like: blanks that are none for a shell, a page's source, <GPU>."""


class Pasted(msgspec.Struct, frozen=True):
    """What a text does."""

    value: str | None
    """CUDA_VISIBLE_DEVICES of the program that it starts; None: unset."""
    order: str | None
    """CUDA_DEVICE_ORDER, likewise."""
    rest: tuple[str, ...]
    """The program's command line."""
    advice: tuple[Finding, ...]
    unknown: str | None = None
    """Why nothing can be claimed; None: the other fields hold."""


def read_pasted(text: str, inherited: Mapping[str, str] | None = None) -> Pasted | None:
    """Read a text; None if it is a value of CUDA_VISIBLE_DEVICES, not a text about it.

    `inherited` are the variables of the shell in which it would be pasted.
    """
    text = text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + CUT
    text = "\n".join(text.replace(NEWLINE, "\n").splitlines()).strip("\n")
    code = re.sub(r"(?m)(?:^|(?<=\s))#.*", "", text)
    parts = re.sub(r"(?<!\s)\s*,\s*", ",", text.strip()).split()
    is_value = "\n" not in text and (len(parts) < 2 or all(map(_PART_OF_VALUE.fullmatch, parts)))
    if is_value and not _names(text) and not _CODE.match(text):
        return None
    own, unknown, program = dict(inherited or {}), None, Program([], None, None)
    try:
        program = _only(_programs(text, code, own))
    except NotUnderstoodError as error:
        unknown = f"not understood: {error}"
    value, order = (item if isinstance(item, str) else None for item in program[1:])
    advice = text_advice(code, value, own.get(NAME), is_known=unknown is None)
    return Pasted(value, order, tuple(program.command), advice, unknown)


def _names(text: str) -> bool:
    """Return whether a text names the variable, or gives a value to a misspelt one."""
    return bool(re.search(rf"(?<!\w){NAME}(?!\w)", _ODD.sub("", text)) or misspelt_in(text))


def _only(programs: list[Program]) -> Program:
    """Return the program that stands for all; NotUnderstoodError if they differ."""
    if len({program[1:] for program in programs}) > 1:
        words: dict[object, str] = {None: "unset", "": "none"}
        words |= {p.value: "not known" for p in programs if isinstance(p.value, Unknown)}
        each = [f"{shown(p.command) or 'it'}: {words.get(p.value, p.value)}" for p in programs[:8]]
        raise NotUnderstoodError(f"several programs or values: {'; '.join(each)}")
    for value in programs[-1][1:]:
        if isinstance(value, Unknown):
            raise NotUnderstoodError(value.reason)
    return programs[-1]


def _programs(text: str, code: str, own: dict[str, str]) -> list[Program]:
    """Return the programs that a text starts: at least one; `code` is without its comments."""
    blocks = [match[2] for match in _FENCE.finditer(text) if _names(match[2])]
    for wrong, why in (
        (text.endswith(CUT), f"it is longer than {_MOST_CHARACTERS} characters, or was cut"),
        (not _names(text), f"it does not name {NAME}"),
        (_BATCH.search(text), "a batch system decides which GPUs its jobs get"),
        (not _names(code), "it names the variable in comments only"),
        (odd := _ODD.search(code), f"it holds {odd and odd[0]!a}, which a shell reads differently"),
        (
            blocks and re.search(rf"{NAME}\s*=", _FENCE.sub("", text)),
            "it is set outside of the code blocks",
        ),
    ):
        if wrong:
            raise NotUnderstoodError(why)
    return [program for part in blocks or [text] for program in _block(part, own)]


def _block(pasted: str, own: dict[str, str]) -> list[Program]:
    sets = r"$ export \1=\2" if re.search(r"(?m)^\s*!", pasted) else r"os.environ['\1'] = '\2'"
    text = re.sub(r"(?m)^%(?:set_)?env (\w+)[ =] ?([\w,.-]*)$", sets, pasted)
    text = _typed(re.sub(r"\A\s*`([^`]*)`\s*\Z|\\\s*\Z", r"\1", text))
    text = re.sub(rf"(?m)^%(?!run|.*{NAME}).*\n?", "", text)
    is_python = "<<" not in text and (_PYTHON.search(text) or "environ" in text)
    values = read_python(text, own) if is_python else None
    if values is not None:
        return [Program(re.findall(r"cuda:\d+", text), values[NAME], values[ORDER])]
    settings = [*_CONFIG.finditer(text)]
    if _PYTHON.match(text.lstrip()):
        raise NotUnderstoodError("it is not complete Python")
    if settings and (not settings[0]["json"] or text.lstrip()[0] in '{["'):
        if _CONTAINER.search(text) or named(re.sub(r"(?m)^[ \t]*#.*", "", _CONFIG.sub("", text))):
            raise NotUnderstoodError("which GPUs a container gets is not in the text")
        each = (match.group("name", "value", "item") for match in settings)
        text = "\n".join(f"export {n}={shlex.quote(v) if item else v}" for n, v, item in each)
        own = {}  # of this shell's variables it gets none
    shell = Shell(_FISH_CSH.sub(r"\nexport \g<name>=\g<value>", text), own)
    if not (shell.programs or shell.settings):
        raise NotUnderstoodError("it starts no program and sets nothing")
    if shell.programs:
        return [*shell.inside, *shell.programs]
    if shell.inside and not isinstance(shell.settings[-1].value, Unknown):
        raise NotUnderstoodError(f"what {shown(shell.inside[0].command)} starts is not followed")
    return shell.settings


def _typed(text: str) -> str:
    """Return what was typed behind prompts, if there are any."""
    lines = [*_PROMPTED.finditer(text)]
    if lines and named(_PROMPTED.sub("", text)):
        raise NotUnderstoodError("commands and their output are mixed")
    if any(match["own"] and re.match(r"(?:export|unset)\b", match["typed"]) for match in lines):
        raise NotUnderstoodError("what it sets is lost when its line has run")
    return "\n".join(match["typed"] for match in lines) or text
