"""The agent as bytes for another machine's Python: its modules, and what they import.

Compiled modules fit one architecture and libc, most of them one minor version of Python: they go
along where they do. Without msgspec's there is a stand-in for it, without psutil's the agent knows
less.
"""

from __future__ import annotations

import importlib.util
import json
import threading
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from gputop.errors import SourceError
from gputop.sources.ssh.start import RemotePython

_PACKAGE = Path(__file__).resolve().parent.parent.parent
_MODULES = (
    "__init__.py", "__main__.py", "allowed.py", "cli.py", "deadline.py", "errors.py", "files.py",
    "lean.py", "output.py", "trust.py", "agent/**/*.py", "model/__init__.py",
    "model/machine/*.py", "model/cuda/*.py", "model/health/*.py", "model/doctor/*.py",
    "protocol/*.py", "sources/__init__.py", "sources/ssh/__init__.py",
)  # fmt: skip
"""What the agent is, and what it imports of gputop."""
_STANDIN = "sources/ssh/standin.py", "sources/ssh/standin/**/*.py"
_LIBRARIES = {
    "msgspec": ("*.py",),
    "psutil": ("__init__.py", "_common.py", "_ntuples.py", "_pslinux.py", "_psposix.py"),
}
"""What those that have compiled modules are written in beside them."""
_LEVEL = 6
"""Of compression: 9 takes three times as long for a hundredth less."""
_lock = threading.Lock()

Module = tuple[str, str, bytes]
"""Name, kind and content, as `loader` takes them."""


def payload(python: RemotePython) -> bytes:
    """Return what that Python is to run; the number of its first bytes is `loader_size()`."""
    with _lock:  # many hosts of one kind ask at once
        return _payload(fitting(python))


def loader_size() -> int:
    """Return the bytes of the loader, which is what runs first."""
    return len(_loader())


def fitting(python: RemotePython) -> frozenset[Path]:
    """Return the files of our compiled modules that this Python can load."""
    if _kind(python.suffixes) is None or _kind(python.suffixes) != _kind(EXTENSION_SUFFIXES):
        return frozenset()
    compiled = (path for name in _LIBRARIES for path in _folder(name).glob("*.so"))
    return frozenset(path for path in compiled if _suffix(path) in python.suffixes)


def _suffix(compiled: Path) -> str:
    """Return what comes after the name of a module: `.abi3.so`."""
    return "." + compiled.name.partition(".")[2]


def _kind(suffixes: tuple[str, ...] | list[str]) -> str | None:
    """Return the architecture and libc of a Python, `x86_64-linux-gnu`."""
    for suffix in suffixes:
        _, dash, kind = suffix.removesuffix(".so").removeprefix(".cpython-").partition("-")
        if dash and suffix.startswith(".cpython-"):
            return kind
    return None


@cache
def _payload(compiled: frozenset[Path]) -> bytes:
    modules = [*_gputop(), *_pynvml(), *_libraries(compiled)]
    index = json.dumps([(name, kind, len(data)) for name, kind, data in modules]).encode()
    contents = (data for _, _, data in modules)
    data = zlib.compress(b"\n".join((index, b"".join(contents))), _LEVEL)
    return b"%s%d\n%s" % (_loader(), len(data), data)


@cache
def _loader() -> bytes:
    return (_PACKAGE / "sources/ssh/loader.py").read_bytes()


def _gputop() -> Iterator[Module]:
    for pattern in (*_MODULES, *_STANDIN):
        yield from (_source(path, _PACKAGE) for path in sorted(_PACKAGE.glob(pattern)))


def _pynvml() -> Iterator[Module]:
    yield "pynvml", "module", Path(_origin("pynvml")).read_bytes()


def _libraries(compiled: frozenset[Path]) -> Iterator[Module]:
    for name, patterns in _LIBRARIES.items():
        fitting_parts = [path for path in compiled if path.parent == _folder(name)]
        if name == "msgspec" and not fitting_parts:
            continue  # it is nothing without: the stand-in takes its place
        for pattern in patterns:
            yield from (_source(path, _folder(name)) for path in _folder(name).glob(pattern))
        for path in fitting_parts:
            yield f"{name}.{path.name.partition('.')[0]}", "compiled", path.read_bytes()


def _source(path: Path, package: Path) -> Module:
    parts = path.relative_to(package.parent).with_suffix("").parts
    if parts[-1] == "__init__":
        return ".".join(parts[:-1]), "package", path.read_bytes()
    return ".".join(parts), "module", path.read_bytes()


def _folder(package: str) -> Path:
    return Path(_origin(package)).parent


def _origin(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SourceError(f"{module} cannot be found: install gputop again")
    return spec.origin
