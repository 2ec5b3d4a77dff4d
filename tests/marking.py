"""Which tests are `system` tests: those that start real processes, and so take most of the time.

It is read from the code that a test reaches among the tests, fixtures and helpers included; so it
holds for tests that are yet to be written, and for those of a file that has both kinds.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from gputop.sources.agent_process import AgentProcess
from gputop.sources.local import LocalSource

_READ = ("tests.", "bench.", "gputop.agent.")
"""The packages whose code is read: of gputop, the one that runs the programs of others."""
_MODULES = {"subprocess", "pty", "venv", "multiprocessing"}
"""Who uses these starts processes."""
_CALLS = {"fork", "forkpty", "posix_spawn", "unshare"}
"""And who uses these of `os`."""
_OURS = (LocalSource, AgentProcess)
"""What of gputop starts its agent."""


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark the system tests."""
    for item in items:
        if isinstance(item, pytest.Function) and _is_system(item):
            item.add_marker("system")


def _is_system(item: pytest.Function) -> bool:
    ahead, read = [function for value in _beginnings(item) for function in _functions(value)], set()
    while ahead:
        function = ahead.pop()
        if function not in read:
            read.add(function)
            starts, more = _read(function)
            if starts:
                return True
            ahead.extend(more)
    return False


def _beginnings(item: pytest.Function) -> Iterator[Any]:
    """The test, its fixtures and what it is called with."""
    yield item.function
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        yield from (definition.func for definition in definitions)
    if hasattr(item, "callspec"):
        yield from item.callspec.params.values()


@cache
def _read(function: FunctionType) -> tuple[bool, list[FunctionType]]:
    """Whether a function starts processes by itself, and which others it names."""
    names = set(_names(function.__code__))
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [value for value in found if isinstance(value, ModuleType)]
    found += [getattr(ours, name, None) for ours in modules if _is_read(ours) for name in names]
    others = {module.__name__ for module in modules}
    starts = bool(others & _MODULES) or ("os" in others and bool(names & _CALLS))
    starts = starts or any(value is kind for value in found for kind in _OURS)
    return starts, [function for value in found for function in _functions(value)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _functions(value: Any) -> list[FunctionType]:
    """What is to be read of a value: a function's own code, all of a class."""
    if isinstance(value, property):
        return _functions(value.fget)
    if isinstance(value, type):
        members = vars(value).values() if _is_read(value) else ()
        return [function for member in members for function in _functions(member)]
    given = getattr(value, "hypothesis", None)  # @given puts a function of its own in front
    value = inspect.unwrap(getattr(given, "inner_test", getattr(value, "__func__", value)))
    return [value] if isinstance(value, FunctionType) and _is_read(value) else []


def _is_read(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return f"{name}.".startswith(_READ)
