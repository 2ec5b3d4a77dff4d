"""Tests that start processes are marked as such, however they come to do it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.agent.program import run_program
from gputop.sources.agent_process import AgentProcess
from gputop.sources.local import LocalSource
from tests import terminal
from tests.conftest import MachineFactory


def is_system(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("system") is not None


def nothing() -> str:
    return subprocess.run(["true"], capture_output=True, text=True, check=True).stdout


def nothing_at_all() -> str:
    def inner() -> str:
        return nothing()

    return inner()


@pytest.fixture
def output() -> str:
    return nothing_at_all()


def test_by_itself(request: pytest.FixtureRequest) -> None:
    assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0
    assert is_system(request)


def test_by_a_helper_of_a_helper(request: pytest.FixtureRequest) -> None:
    assert nothing_at_all() == ""
    assert is_system(request)


def test_by_a_fixture(request: pytest.FixtureRequest, output: str) -> None:
    assert output == ""
    assert is_system(request)


def test_by_a_machine(request: pytest.FixtureRequest, machine: MachineFactory) -> None:
    assert is_system(request)


def test_by_a_class_of_another_module(request: pytest.FixtureRequest) -> None:
    with terminal.Terminal(["true"]) as program:
        assert program.exit_code() == 0
    assert is_system(request)


def test_by_gputop_itself(request: pytest.FixtureRequest) -> None:
    assert issubclass(LocalSource, object)
    assert is_system(request)


def test_by_the_agent_of_gputop(request: pytest.FixtureRequest) -> None:
    assert isinstance(AgentProcess, type)
    assert is_system(request)


def test_by_a_program_that_gputop_runs(request: pytest.FixtureRequest) -> None:
    assert run_program(["true"], 5).status == 0
    assert is_system(request)


@pytest.mark.parametrize("run", [nothing_at_all])
def test_by_what_it_is_called_with(request: pytest.FixtureRequest, run: Callable[[], str]) -> None:
    assert run() == ""
    assert is_system(request)


@settings(max_examples=1)
@given(text=st.just(""))
def test_by_an_example(request: pytest.FixtureRequest, text: str) -> None:
    assert nothing() == text
    assert is_system(request)


def test_not_at_all(request: pytest.FixtureRequest) -> None:
    assert sys.executable
    assert not is_system(request)
