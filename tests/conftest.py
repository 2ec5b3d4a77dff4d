"""Fixtures for all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Machine

MachineFactory = Callable[..., Machine]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither read nor write the settings and logs of whoever runs the tests."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[MachineFactory]:
    """Make simulated machines: `machine("h200x8")`; they end with the test."""
    with ExitStack() as stack:

        def make(scenario: str | dict[str, Any], **options: Any) -> Machine:
            return stack.enter_context(Machine(scenario, tmp_path, **options))

        yield make


def needed(program: str, package: str) -> str:
    """The path of a program of the system. Without it the gate fails; elsewhere the test is
    skipped, and the tests in a pty of our own cover most of what it shows."""
    path = shutil.which(program)
    if path is None:
        reason = f"this test needs {program}: apt-get install -y {package}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture
def tmux() -> str:
    """The path of tmux."""
    return needed("tmux", "tmux")
