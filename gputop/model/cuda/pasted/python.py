"""Python that sets the variable: os.environ and copies of it, read with Python's own grammar.

It follows assignments of what is spelt out, `if`, and what subprocess or os.system starts. It does
not follow a loop, a function or another library that is given the variable: the name in it is then
not accounted for, and nothing is claimed.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy

from gputop.model.cuda.advice import mistake
from gputop.model.cuda.pasted.outcome import (
    CONCERNED,
    PastedValue,
    StartedProgram,
    Trace,
    UnclearError,
    UndecidedError,
    Unknown,
    mentions,
)
from gputop.model.cuda.pasted.variables import DEPENDS, Variables
from gputop.model.machine.environment import NAME, ORDER

FollowShell = Callable[[str, Variables, Trace], None]
"""Follows a text that Python starts in a shell."""
Environment = dict[str, PastedValue]
"""What os.environ or a copy of it holds; a variable that is not in it is unset."""
_OWN = "os.environ"
_STARTS = re.compile(
    r"(?:subprocess\.)?(?:run|call|check_call|check_output|Popen)"
    r"|(?:os|subprocess)\.(?:system|popen|getoutput|getstatusoutput)"
)
_COPIES = ("dict", "copy", "copy.copy", "copy.deepcopy", "deepcopy")
_METHODS = ("update", "setdefault", "pop", "copy", "clear", "__setitem__")
_READERS = re.compile(r"(?:.*\.)?environ\.get|(?:os\.)?getenv|print")
_MARK = re.compile(
    r"\benviron\b|os\.putenv|monkeypatch|subprocess|os\.system|^[ \t]*(?:import|from)\s",
    re.MULTILINE,
)
_DEVICES = re.compile(r"[\"'](?:cuda|/?(?:device:)?gpu):[0-9]+[\"']|set_device\([0-9]+\)", re.I)
_ANY = Unknown("it is not followed")
_CALCULATED = Unknown("it is calculated")
_NESTED = Unknown("it is a list of lists")
_ADDED = Unknown("variables are added that the text does not tell")
_SEVERAL = Unknown("it is set twice: which holds depends on when CUDA is used first")


def looks_like_python(text: str) -> bool:
    """Return whether a text is Python, not just a shell's line that Python can parse."""
    return _MARK.search(text) is not None and _parse(text) is not None


def follow_code(text: str, variables: Variables, trace: Trace, follow_shell: FollowShell) -> None:
    """Follow a whole program; raises NotKnownError. What it sets stays in `variables`."""
    tree = _parse(text)
    if tree is None:
        raise UnclearError("it is not complete Python")
    _Program(variables, trace, follow_shell).follow(tree)


def follow_python(text: str, variables: Variables, trace: Trace, follow_shell: FollowShell) -> None:
    """Follow a pasted program, and note what it starts, or the program itself if it starts none."""
    follow_code(text, variables, trace, follow_shell)
    if not trace.started:
        value, order = variables.inherited(NAME), variables.inherited(ORDER)
        trace.started.append(StartedProgram(value, order, None, tuple(_DEVICES.findall(text))))


def _parse(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


class _Program:
    def __init__(self, variables: Variables, trace: Trace, follow_shell: FollowShell) -> None:
        self._variables = variables
        self._trace = trace
        self._follow_shell = follow_shell
        self._names: dict[str, object] = {_OWN: variables.all_inherited()}
        """What the program's names hold: texts, numbers, lists, environments, or Unknown."""
        self._accounted: set[int] = set()
        self._was_set: set[str] = set()
        self._busy = False
        """Whether something was called since the variable was set."""

    def follow(self, tree: ast.Module) -> None:
        """Follow the program; each mention of the variable must be accounted for."""
        before = len(self._trace.started)
        self._body(tree.body)
        for node in ast.walk(tree):
            if _mentions(node) and id(node) not in self._accounted:
                line = getattr(node, "lineno", 1)
                raise UnclearError(f"gputop does not know what line {line} does with the variable")
        if len(self._trace.started) == before and any(map(self._differs, self._names.values())):
            raise UndecidedError("what is started with these variables is not in the text")
        for name, value in self._own.items():
            self._variables.set(name, value, export=True)

    @property
    def _own(self) -> Environment:
        own = self._names[_OWN]
        assert isinstance(own, dict)
        return own

    def _account(self, nodes: Iterable[ast.AST]) -> None:
        self._accounted.update(id(part) for node in nodes for part in ast.walk(node))

    def _differs(self, value: object) -> bool:
        return isinstance(value, dict) and any(
            value.get(name) != self._own.get(name) for name in CONCERNED
        )

    # --- statements ----------------------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            self._trace.step(len(self._names))
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AugAssign):
            self._add(node.target, self._evaluated(node.value))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self._assignment(targets, node.value)
        elif isinstance(node, ast.Expr):
            self._lose(self._evaluated(node.value))
        elif isinstance(node, ast.Delete) and all(map(self._removes, node.targets)):
            return
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, ast.Try):
            self._body(node.body)
            self._other(*node.handlers, *node.orelse, *node.finalbody)
        elif isinstance(node, ast.With):
            self._other(*node.items)
            self._body(node.body)
        elif isinstance(node, ast.For | ast.While) and any(map(_mentions, ast.walk(node))):
            raise UndecidedError("a loop may set it to another value in each round")
        else:
            self._other(node)

    def _if(self, node: ast.If) -> None:
        if re.fullmatch(r"__name__ == ['\"]__main__['\"]", ast.unparse(node.test)):
            self._body(node.body)
            return
        self._other(node.test)
        before = deepcopy(self._names)
        self._body(node.body)
        then, self._names = self._names, before
        self._body(node.orelse)
        self._names = _joined(then, self._names)

    def _assignment(self, targets: Sequence[ast.expr], source: ast.expr | None) -> None:
        if source is None:  # `name: str`
            return
        value = self._evaluated(source)
        for target in targets:
            variable = self._variable(target)
            if variable is not None:
                self._set(*variable, self._text(value, source))
            elif isinstance(target, ast.Name):
                self._names[target.id] = value
            else:
                self._lose({NAME: _ANY} if _is_environ(target) else value)
                self._other(target)

    def _add(self, target: ast.expr, value: object) -> None:
        variable = self._variable(target)
        if isinstance(target, ast.Name | ast.Attribute):
            before = self._evaluated(target, load=True)
            if isinstance(before, dict) and isinstance(value, dict):
                self._update(before, value)
            else:
                self._other(target)
        elif variable is not None:
            self._set(*variable, Unknown("something is added to it"))
        else:
            self._lose(value)
            self._other(target)

    def _removes(self, target: ast.expr) -> bool:
        variable = self._variable(target)
        if variable is not None:
            self._set(*variable, None)
        return variable is not None

    def _variable(self, target: ast.expr) -> tuple[Environment, str] | None:
        if not isinstance(target, ast.Subscript):
            return None
        environment = self._evaluated(target.value)
        return (environment, self._key(target.slice)) if isinstance(environment, dict) else None

    def _key(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            raise UndecidedError("a variable is set under a name that is not told")
        self._accounted.add(id(node))
        return node.value

    def _set(self, environment: Environment, name: str, value: PastedValue) -> None:
        if environment is self._own:
            if name in self._was_set and self._busy and value != environment.get(name):
                if name == NAME:
                    self._trace.say(mistake("python-late"))
                value = _SEVERAL
            self._was_set.add(name)
            self._busy = False
        environment[name] = value

    def _update(self, environment: Environment, given: Environment) -> None:
        for name, value in given.items():
            self._set(environment, name, value)

    def _other(self, *nodes: ast.AST) -> None:
        """Pass over other code: it may read the variable; names that it may set are forgotten."""
        for node in (part for top in nodes for part in ast.walk(top)):
            self._account_readings(node)
            self._busy |= isinstance(node, ast.Call)
            if isinstance(node, ast.Dict) and any(map(_mentions, filter(None, node.keys))):
                self._lose({NAME: _ANY})
            if isinstance(node, ast.alias):
                self._forget(node.asname or node.name)
            elif isinstance(node, ast.Name):
                value = self._names.get(node.id)
                if self._differs(value):
                    raise UnclearError(f"gputop does not know what is done with {node.id}")
                if isinstance(node.ctx, ast.Store) or isinstance(value, list):
                    self._forget(node.id)

    def _lose(self, *values: object) -> None:
        """Raise UnclearError if an environment goes where it is not followed."""
        if any(map(self._differs, values)):
            raise UnclearError("gputop does not know what is done with these variables")

    def _forget(self, name: str) -> None:
        self._names[name] = Unknown(f"the text does not tell the value of {name}")

    def _account_readings(self, node: ast.AST) -> None:
        """Account for what only looks a variable up or prints its name."""
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            self._account([node.slice] if _is_environ(node.value) else ())
        elif isinstance(node, ast.Compare) and any(map(_is_environ, node.comparators)):
            self._account([node.left])
        elif isinstance(node, ast.Call) and _READERS.fullmatch(ast.unparse(node.func)):
            self._account(node.args)

    # --- values --------------------------------------------------------------------------------

    def _evaluated(self, node: ast.expr, *, load: bool = False) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if _is_environ(node):
            return self._own
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._names[node.id]
        if isinstance(node, ast.List | ast.Tuple):
            values = [self._evaluated(element) for element in node.elts]
            self._lose(*values)
            values = [_NESTED if isinstance(value, list) else value for value in values]
            return next((value for value in values if isinstance(value, Unknown)), values)
        if isinstance(node, ast.Dict):
            return self._dictionary(node)
        if isinstance(node, ast.FormattedValue) and not node.format_spec and node.conversion < 0:
            return self._evaluated(node.value)
        if isinstance(node, ast.UnaryOp | ast.BinOp | ast.JoinedStr):
            return self._operation(node)
        value = self._call(node) if isinstance(node, ast.Call) else None
        if value is not None:
            return value
        if not load:
            self._other(node)
        return Unknown(f"the text does not tell what {ast.unparse(node)[:40]} is")

    def _operation(self, node: ast.UnaryOp | ast.BinOp | ast.JoinedStr) -> object:
        """Work out -1, "0" + ",1", f"{gpu},1" and os.environ | {...}."""
        if isinstance(node, ast.JoinedStr):
            parts = [self._evaluated(part) for part in node.values]
            texts = all(isinstance(part, str | int) for part in parts)
            return self._join("", map(str, parts)) if texts else Unknown("it is formatted")
        if isinstance(node, ast.UnaryOp):
            value = self._evaluated(node.operand)
            return -value if isinstance(node.op, ast.USub) and isinstance(value, int) else (
                _CALCULATED)  # fmt: skip
        left, right = self._evaluated(node.left), self._evaluated(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str):
            return self._join("", (left, right))
        if isinstance(node.op, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
            return {**left, **right}
        return _CALCULATED

    def _join(self, separator: str, parts: Iterable[str]) -> str:
        """Join texts after their characters are counted."""
        parts = list(parts)
        self._trace.spend(sum(len(part) + len(separator) for part in parts))
        return separator.join(parts)

    def _dictionary(self, node: ast.Dict) -> object:
        """Read {**os.environ, "NAME": "1"}; nothing in another dictionary is accounted for."""
        if not any(key is None or _mentions(key) for key in node.keys):
            self._other(*(part for part in (*node.keys, *node.values) if part is not None))
            return {}
        environment: Environment = {}
        for key, source in zip(node.keys, node.values, strict=True):
            value = self._evaluated(source)
            if key is not None:
                self._set(environment, self._key(key), self._text(value, source))
            elif isinstance(value, dict):
                environment.update(value)
            else:
                return _ADDED
        return environment

    # --- calls ---------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> object:
        name = ast.unparse(call.func)
        method = name.rpartition(".")[2]
        if _STARTS.fullmatch(name):
            return self._starts(call)
        if name in _COPIES and (call.args or call.keywords):
            return self._merged(call)
        if name in ("os.putenv", "putenv", "monkeypatch.setenv") and len(call.args) == 2:
            return self._keeps(call, self._own, "__setitem__")
        if name in ("os.unsetenv", "unsetenv") and len(call.args) == 1:
            return self._keeps(call, self._own, "pop")
        if isinstance(call.func, ast.Attribute) and method in _METHODS:
            environment = self._evaluated(call.func.value, load=True)
            return self._keeps(call, environment, method) if isinstance(environment, dict) else None
        return self._calculated(call, name)

    def _keeps(self, call: ast.Call, environment: Environment, method: str) -> object:
        if method == "copy":
            return dict(environment)
        if method == "clear":
            environment.clear()
        elif method == "update":
            given = self._merged(call)
            if isinstance(given, Unknown):
                raise UndecidedError(given.reason)
            self._update(environment, given)
        elif call.args:
            name = self._key(call.args[0])
            source = call.args[1] if len(call.args) > 1 else ast.Constant(None)
            if method == "pop":
                self._set(environment, name, None)
            elif method == "__setitem__" or environment.get(name) is None:
                self._set(environment, name, self._text(self._evaluated(source), source))
        return Unknown("the text does not tell what it gives")

    def _merged(self, call: ast.Call) -> Environment | Unknown:
        """Read dict(os.environ, NAME="1"), os.environ.update({...}, NAME="1")."""
        environment: Environment = {}
        for source in (*call.args, *(k.value for k in call.keywords if k.arg is None)):
            value = self._evaluated(source)
            if not isinstance(value, dict):
                return _ADDED
            environment.update(value)
        for keyword in call.keywords:
            if keyword.arg is not None:
                self._accounted.add(id(keyword))
                value = self._evaluated(keyword.value)
                self._lose(value)
                text = self._text(value, keyword.value) if keyword.arg in CONCERNED else ""
                self._set(environment, keyword.arg, text)
        return environment

    def _starts(self, call: ast.Call) -> Unknown:
        environment: object = self._own
        for keyword in call.keywords:
            if keyword.arg == "env" and ast.unparse(keyword.value) != "None":
                environment = self._evaluated(keyword.value)
            elif keyword.arg != "args":
                self._other(keyword)
        if not isinstance(environment, dict):
            raise UndecidedError("the variables of a program that is started are not told")
        inner = Variables({})
        for name in CONCERNED:
            inner.set(name, environment.get(name), export=True)
        self._runs([*call.args[:1], *(k.value for k in call.keywords if k.arg == "args")], inner)
        return Unknown("it is what a program prints")

    def _runs(self, command: list[ast.expr], inner: Variables) -> None:
        value = self._evaluated(command[0]) if command else None
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = self._join(" ", map(shlex.quote, value))
        if isinstance(value, str):
            self._account(command[:1])
            self._follow_shell(value, inner, self._trace)
            return
        self._lose(value)
        self._other(*command)
        started = StartedProgram(inner.inherited(NAME), inner.inherited(ORDER))
        self._trace.started.append(started)

    def _calculated(self, call: ast.Call, name: str) -> object:
        """Work out str(1), ",".join(["0", "1"]) and ",".join(map(str, [0, 1]))."""
        if name not in ("str", "','.join", "map") or not call.args:
            return None
        value = self._evaluated(call.args[-1])
        self._lose(value)
        if name == "map" and ast.unparse(call.args[0]) == "str" and isinstance(value, list):
            return [str(element) for element in value]
        if name == "str" and isinstance(value, str | int):
            return str(value)
        if name == "','.join" and isinstance(value, list):
            return self._join(",", value) if all(isinstance(part, str) for part in value) else None
        return value if isinstance(value, Unknown) else None

    def _text(self, value: object, source: ast.expr) -> PastedValue:
        """Return a value as a variable's; Python raises an error for anything but a text."""
        if isinstance(value, str | Unknown):
            return value
        code = ast.unparse(source)
        quoted = code if isinstance(value, list | dict) else f'"{code}"'
        self._trace.say(mistake("python-type", value=quoted))
        return Unknown("os.environ takes strings only: the program ends with a TypeError")


def _joined(names: dict[str, object], others: dict[str, object]) -> dict[str, object]:
    """Join the names after two branches: only values that are equal in both stay known."""
    joined = dict(others)
    for name in {*names, *others}:
        left, right = names.get(name), others.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            joined[name] = _joined(left, right)
        elif left != right:
            joined[name] = DEPENDS
    return joined


def _is_environ(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return name == "environ"


def _mentions(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        return mentions(text)
    return isinstance(node, ast.keyword) and mentions(node.arg or "")
