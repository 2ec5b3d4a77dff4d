"""What is carried to every host: what the agent imports, and little else."""

from __future__ import annotations

import ast
from pathlib import Path

import gputop
from gputop.sources.ssh.carry import _gputop

PACKAGE = Path(gputop.__file__).parent.parent
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
