"""Values in Python text: known only where nothing else can have changed them."""

from __future__ import annotations

import pytest

from gputop.model.cuda.pasted.reading import read_pasted
from gputop.model.machine.environment import NAME


def refusal(*lines: str) -> str | None:
    pasted = read_pasted("\n".join(("import os, sys", *lines)))
    assert pasted is not None
    return pasted.unknown


@pytest.mark.parametrize("value", ["{[]: 1}", "{[]}"])
def test_a_value_that_python_itself_refuses(value: str) -> None:
    assert refusal(f"os.environ['{NAME}'] = {value}") is not None
    assert refusal(f"x = {value}", f"os.environ['{NAME}'] = x") is not None


def test_more_than_whether_it_is_the_program_decides() -> None:
    sets = f"    os.environ['{NAME}'] = '1'"
    assert refusal("if __name__ == '__main__':", sets) is None
    assert refusal("if __name__ == '__main__' and len(sys.argv) > 1:", sets) is not None


@pytest.mark.parametrize(
    "line", ["from config import *", "globals().update(x='1')", "setattr(sys, 'x', '1')"]
)
def test_what_may_give_any_name_another_value(line: str) -> None:
    sets = f"os.environ['{NAME}'] = x"
    assert refusal("x = '0'", sets) is None
    assert refusal("x = '0'", line, sets) is not None


@pytest.mark.parametrize(
    "line",
    [
        f"if len(sys.argv) > 1:\n    del os.environ['{NAME}']",
        f"with open(os.devnull):\n    del os.environ['{NAME}'], sys.path[0]",
        f"os.environ['{NAME}'], x = '1', '2'",
        f"os.environ['{NAME}']: str = '1'",
        f"os.environ['{NAME}'] *= 2",
        f"for os.environ['{NAME}'] in '12':\n    pass",
        "for key in [*os.environ]:\n    del os.environ[key]",
    ],
)
def test_where_the_variable_is_stored_or_deleted_in_another_form(line: str) -> None:
    sets = f"os.environ['{NAME}'] = '0'"
    assert refusal(sets, "for key in '1':\n    os.environ['OTHER'] = key") is None
    assert refusal(sets, line) is not None
