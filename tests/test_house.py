"""What the code holds itself to, as far as it can be counted."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import gputop

PACKAGE = Path(gputop.__file__).parent
_CAPITALISED = re.compile(r"_?[A-Z][a-z]\w*")


def type_names(module: ast.Module) -> Iterator[str]:
    """Return the names of the types that a module defines: classes anywhere in it, and aliases.

    TypeVars are left out: a T is a T in every module.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for statement in module.body:
        if isinstance(statement, ast.AnnAssign):
            targets: list[ast.expr] = [statement.target]
        else:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from filter(_CAPITALISED.fullmatch, names)


def used_twice(package: Path) -> dict[str, list[str]]:
    """Return the type names that mean more than one thing, with the modules that define them.

    A private name means a second thing as well.
    """
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name in type_names(ast.parse(path.read_text(encoding="utf-8"))):
            modules[name.lstrip("_")].append(str(path.relative_to(package)))
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def test_no_type_name_means_two_things() -> None:
    assert used_twice(PACKAGE) == {}


def test_a_second_meaning_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Line: ...\nT = TypeVar('T')\nLIMIT = 3\n")
    (tmp_path / "two.py").write_text("Line = list[str]\nT = TypeVar('T')\nLIMIT = 4\n")
    (tmp_path / "three.py").write_text("class Page:\n    class Chosen: ...\n")
    (tmp_path / "four.py").write_text("_Chosen: TypeAlias = str\n")
    assert used_twice(tmp_path) == {
        "Chosen": ["four.py", "three.py"],
        "Line": ["one.py", "two.py"],
    }


def variables(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[str]:
    """Return the names that a function, and what is in it, binds."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_a_variable_is_named_for_the_thing() -> None:
    riddles = {"one", "found", "told", "known", "place", "thing"}
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    uses = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, functions)
        for name in variables(node)
        if name in riddles
    ]
    assert uses == []
