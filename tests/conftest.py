"""Fixtures for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Machine

MachineFactory = Callable[..., Machine]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[MachineFactory]:
    """Make simulated machines: `machine("h200x8")`; they end with the test."""
    with ExitStack() as stack:

        def make(scenario: str | dict[str, Any], **options: Any) -> Machine:
            return stack.enter_context(Machine(scenario, tmp_path, **options))

        yield make


@pytest.fixture
def tmux() -> str:
    """The path of tmux; a test that needs it fails with what to install."""
    path = shutil.which("tmux")
    if path is None:
        pytest.fail("this test needs tmux: apt-get install tmux")
    return path
