"""What is carried to every host: what the agent imports, and little else, in few bytes."""

from __future__ import annotations

import ast
import bz2
import importlib
import marshal
import re
import sys
import types
from itertools import chain
from pathlib import Path

import pynvml
import pytest

import gputop
from gputop.sources.ssh.carry import _MODULES, _gputop, parcel
from gputop.sources.ssh.minify import only_mentioned, without_texts
from tests.standin.child import STANDIN

HERE = Path(gputop.__file__).parent
PACKAGE = HERE.parent
STARTS_IT = {"gputop.__main__", "gputop.cli", "gputop.output", "gputop.variables"}

FOR_PROGRAMS = {"gputop.api", "gputop.export.json", "gputop.export.table"}
"""What `import gputop` and a frame load for programs; an agent is none."""


def path_of(module: str) -> Path | None:
    """The file of a module of gputop; None where there is none of that name."""
    path = PACKAGE.joinpath(*module.split("."))
    paths = (path / "__init__.py", path.with_suffix(".py"))
    return next((path for path in paths if path.exists()), None)


def imported(module: str) -> set[str]:
    """The modules of gputop that one imports, at any time, and the packages around it."""
    path = path_of(module)
    assert path
    names = {module.rpartition(".")[0]} - {""}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    own = {name for name in names - FOR_PROGRAMS if name.startswith("gputop")}
    return {name for name in own if path_of(name)}


def test_all_that_the_agent_imports_is_carried_and_little_else() -> None:
    needed, left = set[str](), {"gputop.agent.serve"}
    while left:
        needed |= left
        left = {name for module in left for name in imported(module)} - needed
    carried = {name for name, _, _ in _gputop() if not name.startswith("gputop.sources")}
    assert needed <= carried
    assert carried - needed <= STARTS_IT


def test_all_that_it_imports_of_msgspec_is_in_the_stand_in() -> None:
    for _, _, source in _gputop():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msgspec"):
                stand_in = importlib.import_module(str(node.module).replace("msgspec", STANDIN))
                assert [a.name for a in node.names if not hasattr(stand_in, a.name)] == []


def test_how_much_it_is() -> None:
    agent = parcel("bz2")
    assert len(agent.archive) < 110_000
    assert len(agent.loader) + len(agent.offer) < 2000
    assert len(parcel("zlib").archive) < 135_000


def meaning(source: bytes) -> str:
    """A source as Python 3.9 understands it, and where its statements are; docstrings are alike."""
    tree = ast.parse(source, feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")
    lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return f"{ast.dump(tree)}{lines}"


@pytest.mark.long
def test_sources_mean_the_same_without_their_texts() -> None:
    for path in chain.from_iterable(map(HERE.glob, (*_MODULES, "sources/ssh/loader.py"))):
        source = path.read_bytes()
        assert meaning(without_texts(source)) == meaning(source), path


MODULE = b"""\
# License
import os
A = 1
B = (
    A
)
@decorator
@other(
    "x")
def used(): return B

E_1 = 3
if os: D = unused
def unused():
    return C
class Odd: pass
C = 2
"""
ODD = b'''
def gone():
    """
text at the margin
    """
A = 1
'''
ASKED = re.compile(rb"\bpynvml\.(\w+)")


def test_what_nothing_mentions_is_left_out() -> None:
    lines = MODULE.splitlines()
    left = only_mentioned(MODULE, {b"used"}, b"E_").splitlines()
    assert left == [b"" if line == b"class Odd: pass" else line for line in lines]
    left = only_mentioned(MODULE, {b"B"}, b"E_").splitlines()
    assert left == [*lines[:6], *[b""] * 5, *left[11:15], b"", b"C = 2"]
    assert only_mentioned(ODD, {b"A"}, b"E_") == ODD, "a module that it does not understand"


def test_pynvml_has_all_that_the_agent_asks_it_for() -> None:
    sources = [path.read_bytes() for path in PACKAGE.glob("gputop/agent/**/*.py")]
    asked = {name.decode() for source in sources for name in ASKED.findall(source)}
    assert len(asked) > 100
    kind, carried = marshal.loads(bz2.decompress(parcel("bz2").archive))["pynvml"]
    module = types.ModuleType("pynvml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", module)
        exec(carried, vars(module))
    errors = {name for name in dir(pynvml) if name.startswith(("NVML_ERROR", "NVMLError"))}
    assert kind == "module"
    assert {name for name in asked | errors if hasattr(pynvml, name)} <= set(dir(module))
    assert len(dir(module)) < len(dir(pynvml)) / 3
