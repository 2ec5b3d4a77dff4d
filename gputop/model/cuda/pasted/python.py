"""What the top level of a Python program sets before CUDA may have started."""

from __future__ import annotations

import ast
import builtins
import re
import sys
import textwrap
import warnings
from collections.abc import Mapping
from contextlib import suppress

from gputop.model.cuda.pasted.shell import NotUnderstoodError, Value, named, shown
from gputop.model.machine.environment import NAME, ORDER

# These search the lines of `ast.unparse`, which has one form for each statement.
_NAME = rf"'({NAME}|{ORDER})'"
_SETS = re.compile(
    rf"(?:\w+\.)?(?:environ\[{_NAME}\] = (.*)|(?:environ\.setdefault|putenv)\({_NAME}, (.*)\)"
    rf"|environ\.update\(\{{{_NAME}: (.*)\}}\)|environ\.update\(({NAME})=(.*)\)"
    rf"|environ\.pop\({_NAME}.*\))|del (?:\w+\.)?environ\[{_NAME}\]"
)
_READS = re.compile(
    rf"(?:environ\.get|getenv)\({_NAME}[^()]*\)|environ\[{_NAME}\](?! ?[-+|]?=)|{_NAME} (?:not )?in"
    r"|^[ \t]*(?:(?:print|\w+\.(?:info|debug|warning|warn|error|add_argument)|raise \w+)\(|[\"']).*"
)
_CHANGES = re.compile(
    r"environ(?:\.(?:clear|popitem)\(|\.update\((?!\{'|\w+=)| \|?= )|load_dotenv\(.*override"
)
_HARMLESS = {*sys.stdlib_module_names, *dir(builtins), "ArgumentParser", "Path", "load_dotenv"}
_HARMLESS |= {"logger", "mp", "np", "numpy", "pandas", "parser", "pd", "torch.manual_seed"}
_HARMLESS -= {"__import__", "eval", "exec", "importlib", "runpy"}
"""What a call begins with that does not start CUDA; any other may."""


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
            raise NotUnderstoodError("it is nested too deeply") from None
    if not script.sets and named(text):
        raise NotUnderstoodError(f"nothing in it sets {NAME}")
    return script.values


class _Script:
    def __init__(self, inherited: Mapping[str, str]) -> None:
        self.values: dict[str, Value] = {NAME: None, ORDER: None, **inherited}
        self.sets = False
        self._known = dict[str, object]()
        self._late = ""

    def follow(self, body: list[ast.stmt]) -> None:
        for statement in body:
            code = ast.unparse(statement)
            match = _SETS.fullmatch(code)
            if isinstance(statement, ast.If) and code.startswith("if __name__ == '__main__'"):
                self.follow(statement.body)
            elif match and self._late:
                raise NotUnderstoodError(f"too late: it may already be fixed by {self._late}")
            elif match:
                name, *value = filter(None, match.groups())
                self.sets = True
                if "setdefault" not in code or self.values[name] is None:
                    self.values[name] = self._value(value[0]) if value else None
            else:
                self._pass(statement, code)

    def _value(self, code: str) -> str:
        inner = re.sub(r"^str\((.*)\)$", r"\1", code)
        with suppress(SyntaxError, ValueError):
            value = self._known[inner] if inner in self._known else ast.literal_eval(inner)
            if isinstance(value, str) or (isinstance(value, int) and inner != code):
                return str(value)
        raise NotUnderstoodError(f"{shown(code)} is not a string that the text spells out")

    def _pass(self, statement: ast.stmt, code: str) -> None:
        """Note what a statement gives names, and whether it may start CUDA."""
        for line in code.splitlines():
            if named(_READS.sub("", line)) or _CHANGES.search(line):
                raise NotUnderstoodError(f"it depends on a condition or a call: {shown(line)}")
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        for node in ast.walk(statement):
            name = getattr(node, "asname", None) or getattr(node, "name", None)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            self._known[str(name)] = value.value if isinstance(value, ast.Constant) else None
        body = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        run = [
            each for each in body if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        calls = [node.func for each in run for node in ast.walk(each) if isinstance(node, ast.Call)]
        if "autoinit" in code or not all(map(_is_harmless, calls)):
            self._late = self._late or shown(code.split())


def _is_harmless(called: ast.expr) -> bool:
    call = ast.unparse(called)
    return call in _HARMLESS or call[0] in "'\"" or re.split(r"\W", call)[0] in _HARMLESS
