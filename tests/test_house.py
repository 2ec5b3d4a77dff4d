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


def parsed(package: Path) -> dict[str, ast.Module]:
    """Return the modules of a package by their paths in it."""
    return {
        str(path.relative_to(package)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(package.rglob("*.py"))
    }


def used_twice(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Return the type names that mean more than one thing, with the modules that define them.

    A private name means a second thing as well.
    """
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for path, module in modules.items():
        for name in type_names(module):
            paths[name.lstrip("_")].append(path)
    return {name: where for name, where in paths.items() if len(where) > 1}


def variables(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Return line and name of what the functions of a module bind."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    left: list[tuple[ast.AST, bool]] = [(module, False)]
    while left:
        node, inside = left.pop()
        inside = inside or isinstance(node, functions)
        if inside and isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif inside and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        left.extend((child, inside) for child in ast.iter_child_nodes(node))


def riddles(modules: dict[str, ast.Module]) -> list[str]:
    """Return where a variable is not named for the thing."""
    names = {"one", "found", "told", "known", "place", "thing"}
    return [
        f"{path}:{line} {name}"
        for path, module in modules.items()
        for line, name in sorted(variables(module))
        if name in names
    ]


def test_no_type_name_means_two_things_and_a_variable_is_named_for_the_thing() -> None:
    """One test, since most of the time goes into parsing."""
    modules = parsed(PACKAGE)
    assert used_twice(modules) == {}
    assert riddles(modules) == []


def test_a_second_meaning_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Line: ...\nT = TypeVar('T')\nLIMIT = 3\n")
    (tmp_path / "two.py").write_text("Line = list[str]\nT = TypeVar('T')\nLIMIT = 4\n")
    (tmp_path / "three.py").write_text("class Page:\n    class Chosen: ...\n")
    (tmp_path / "four.py").write_text("_Chosen: TypeAlias = str\n")
    assert used_twice(parsed(tmp_path)) == {
        "Chosen": ["four.py", "three.py"],
        "Line": ["one.py", "two.py"],
    }


def test_a_riddle_is_found(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "one = 1\n\ndef f(told):\n    return lambda known: [\n        0 for one in ()]\n"
    )
    assert riddles(parsed(tmp_path)) == ["odd.py:3 told", "odd.py:4 known", "odd.py:5 one"]
