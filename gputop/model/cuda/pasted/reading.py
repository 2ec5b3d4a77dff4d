"""Whether what is pasted is a value or a text, and what a text, or Python in it, says."""

from __future__ import annotations

import ast
import builtins
import re
import sys
import textwrap
import warnings
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from gputop.model.cuda.advice import misspelt_in, text_advice
from gputop.model.cuda.pasted.shell import Program, Shell, UnclearError, Value, named, shown
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
    r"[$#%>]|\[[\w.-]+@[^\]\n]*\] ?[$#%]|[$%>❯➜]|~/|[\w./~-]*[$%]))[ \t]+|^[ \t]*(?:>>>|\.\.\.|In ?"
    r"\[\d*\]:|\.{3,}:)(?:[ \t]|$)|^(?P<own>[ \t]*!|[ \t]+@))(?P<typed>(?:.*\\\n)*.*)"
)
_PYTHON = re.compile(r"(?m)^[ \t]*(?:import \w|from [\w.]+ import|(?:os\.)?environ\b|os\.\w+\()")
_SETTINGS = re.compile(rf"(?m)^[ \t{{-]*['\"]?(?:{NAME}['\"]? *:|E[nx]\w+=)|^ *- .?{NAME}=\S*$")
_BATCH = re.compile(r"(?m)^#(?:SBATCH|PBS|BSUB|COBALT|\$[ \t])")
_ODD = re.compile(
    "[^\\S\n\t ]|[\0-\x08\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufffd"
    f"\ud800-\udfff]|&(?:quot|amp|lt|gt|nbsp|#\\w+);|=<[\\w -]*>|(?<={NAME})=[\\w,-]*[:.](?=\\s|$)"
)
"""What is not what it looks like: blanks that are none for a shell, a page's source, <GPU>."""
# These search the lines of `ast.unparse`, which has one form for each statement.
_NAME = rf"'({NAME}|{ORDER})'"
_SETS = re.compile(
    rf"(?:\w+\.)?(?:environ\[{_NAME}\] = (.*)|(?:environ\.setdefault|putenv)\({_NAME}, (.*)\)"
    rf"|environ\.update\(\{{{_NAME}: (.*)\}}\)|environ\.update\(({NAME})=(.*)\)"
    rf"|environ\.pop\({_NAME}.*\))|del (?:\w+\.)?environ\[{_NAME}\]"
)
_READS = re.compile(
    rf"(?:environ\.get|getenv)\({_NAME}[^()]*\)|{_NAME} (?:not )?in|^[ \t]*(?:(?:print|raise \w+"
    r"|\w+\.(?:info|debug|warning|warn|error|add_argument))\(|[\"']).*|(?<!del os\.)(?<!del )"
    rf"(?<!for os\.)(?<!for )environ\[{_NAME}\](?! ?[^\s\w)]?=|[,:]| in\b)"
)
_CHANGES = re.compile(
    r"environ(?:\.(?:clear|popitem)\(|\.update\((?!\{'|\w+=)| \|?= |\[[^'])|load_dotenv\(.*override"
)
_HARMLESS = {*sys.stdlib_module_names, *dir(builtins), "ArgumentParser", "Path", "load_dotenv"}
_HARMLESS |= {"logger", "mp", "np", "numpy", "pandas", "parser", "pd", "torch.manual_seed"}
_HARMLESS -= {"__import__", "eval", "exec", "globals", "importlib", "runpy", "setattr", "vars"}
"""What a call begins with that does not start CUDA; any other may."""


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
    except UnclearError as error:
        unknown = f"not understood: {error}"
    value, order = (item if isinstance(item, str) else None for item in program[1:])
    advice = text_advice(code, value, own.get(NAME), is_known=unknown is None)
    return Pasted(value, order, tuple(program.command), advice, unknown)


def _names(text: str) -> bool:
    """Return whether a text names the variable, or gives a value to a misspelt one."""
    return bool(re.search(rf"(?<!\w){NAME}(?!\w)", _ODD.sub("", text)) or misspelt_in(text))


def _only(programs: list[Program]) -> Program:
    """Return the program that stands for all; UnclearError if they differ."""
    if len({tuple(map(repr, program[1:])) for program in programs}) > 1:
        words: dict[object, str] = {None: "unset", "": "none"}
        words |= {p.value: "not known" for p in programs if isinstance(p.value, UnclearError)}
        each = [f"{shown(p.command) or 'it'}: {words.get(p.value, p.value)}" for p in programs[:8]]
        raise UnclearError(f"several programs or values: {'; '.join(each)}")
    for value in programs[-1][1:]:
        if isinstance(value, UnclearError):
            raise value
    return programs[-1]


def _programs(text: str, code: str, own: dict[str, str]) -> list[Program]:
    """Return the programs that a text starts: at least one; `code` is without its comments."""
    blocks = [match[2] for match in _FENCE.finditer(text) if _names(match[2])]
    apart = blocks and re.search(rf"{NAME}\s*=", _FENCE.sub("", text))
    for wrong, why in (
        (text.endswith(CUT), f"it is longer than {_MOST_CHARACTERS} characters, or was cut"),
        (not _names(text), f"it does not name {NAME}"),
        (_BATCH.search(text), "a batch system decides which GPUs its jobs get"),
        (not _names(code), "it names the variable in comments only"),
        (odd := _ODD.search(code), f"it holds {odd and odd[0]!a}, which a shell reads differently"),
        (apart, "it is set outside of the code blocks"),
    ):
        if wrong:
            raise UnclearError(why)
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
    if _PYTHON.match(text.lstrip()):
        raise UnclearError("it is not complete Python")
    if _SETTINGS.search(text):
        raise UnclearError("YAML, JSON and units are not read: paste the value alone")
    shell = Shell(text, own)
    if not shell.programs:
        raise UnclearError("it starts no program and sets nothing")
    alike = ORDER in shell.exported or (shell.look(NAME) and NAME not in shell.exported)
    order = shell.look(ORDER) if alike else None
    started = [program for program in shell.programs if program.command]
    return started or [setting._replace(order=order) for setting in shell.programs]


def _typed(text: str) -> str:
    """Return what was typed behind prompts, if there are any."""
    lines = [*_PROMPTED.finditer(text)]
    if lines and named(_PROMPTED.sub("", text)):
        raise UnclearError("commands and their output are mixed")
    if any(match["own"] and re.match(r"(?:export|unset)\b", match["typed"]) for match in lines):
        raise UnclearError("what it sets is lost when its line has run")
    return "\n".join(match["typed"] for match in lines) or text


def read_python(text: str, inherited: Mapping[str, str]) -> dict[str, Value] | None:
    """Return what a program has set when CUDA starts; None for text that is no Python."""
    script = _Script(inherited)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            script.follow(ast.parse(textwrap.dedent(text)).body)
        except (SyntaxError, ValueError):
            return None
        except (RecursionError, MemoryError):
            raise UnclearError("it is nested too deeply") from None
    if not script.sets and named(text):
        raise UnclearError(f"nothing in it sets {NAME}")
    return script.values


class _Script:
    def __init__(self, inherited: Mapping[str, str]) -> None:
        self.values: dict[str, Value] = {NAME: None, ORDER: None, **inherited}
        self.sets = False
        self._known = dict[str, str]()
        self._late = ""

    def follow(self, body: list[ast.stmt]) -> None:
        for statement in body:
            code = ast.unparse(statement)
            match = _SETS.fullmatch(code)
            if isinstance(statement, ast.If) and code.startswith("if __name__ == '__main__':"):
                self.follow(statement.body)
            elif match and self._late:
                raise UnclearError(f"too late: it may already be fixed by {self._late}")
            elif match:
                name, *value = filter(None, match.groups())
                self.sets = True
                if "setdefault" not in code or self.values[name] is None:
                    self.values[name] = self._value(value[0]) if value else None
            else:
                self._pass(statement, code)

    def _value(self, code: str) -> str:
        inner = re.sub(r"^str\((.*)\)$", r"\1", code)
        with suppress(SyntaxError, ValueError, TypeError):
            value = ast.literal_eval(self._known.get(inner, inner))
            if isinstance(value, str) or (isinstance(value, int) and inner != code):
                return str(value)
        raise UnclearError(f"{shown(code)} is not a string that the text spells out")

    def _pass(self, statement: ast.stmt, code: str) -> None:
        """Note what a statement gives names, and whether it may start CUDA."""
        for line in code.splitlines():
            if named(_READS.sub("", line)) or _CHANGES.search(line):
                raise UnclearError(f"it depends on a condition or a call: {shown(line)}")
        names = r"\w+(?= :=)" if isinstance(statement, ast.Expr) else r"[^\W\d]\w*"
        bound = self._known if "import *" in code else re.findall(names, code)
        self._known |= dict.fromkeys(bound, "")
        self._known |= dict(re.findall(r"\A(\w+)(?:: \w+)? = (.*)\Z", code))
        body = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        run = [
            each for each in body if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        calls = [
            ast.unparse(n.func) for each in run for n in ast.walk(each) if isinstance(n, ast.Call)
        ]
        may = [c for c in calls if c[0] not in "'\"" and not {c, re.split(r"\W", c)[0]} & _HARMLESS]
        if may or "autoinit" in code:
            self._late = self._late or shown(code.split())
