"""Packs the agent for another machine's Python: its modules, and what they import.

msgspec's compiled module fits one minor version of Python, architecture and libc. It is carried if
it fits; otherwise a slower stand-in takes its place. psutil is always replaced by its stand-in,
which is a tenth of its size.
"""

from __future__ import annotations

import importlib.util
import marshal
import threading
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gputop.errors import SourceError
from gputop.sources.ssh.start import RemotePython

_PACKAGE = Path(__file__).resolve().parent.parent.parent
_MODULES = (
    "__init__.py", "__main__.py", "cli.py", "deadline.py", "errors.py", "files.py",
    "output.py", "proc.py", "trust.py", "variables.py", "agent/**/*.py", "model/__init__.py",
    "model/machine/*.py", "model/cuda/__init__.py",
    "model/doctor/__init__.py", "model/health/__init__.py", "model/cuda/enumeration.py",
    "model/cuda/inventory.py", "model/doctor/builds.py",
    "model/health/activity.py", "model/health/throttle.py", "model/health/unaccounted.py",
    "protocol/__init__.py", "protocol/codec.py", "protocol/messages.py", "protocol/split.py",
    "protocol/versions.py", "reservations/__init__.py", "reservations/folder.py",
    "reservations/locks.py", "sources/__init__.py", "sources/ssh/__init__.py",
)  # fmt: skip
"""The agent's modules, and those of gputop that they import; every host is sent these."""
_STANDIN = "sources/ssh/standin/*.py"
_PSUTIL = "sources/ssh/standin/psutil.py"
_LEVEL = 6
"""The level of compression: 9 takes three times as long for a hundredth less."""
_FORMAT = 2
"""The format of marshal: one that every Python 3 reads."""
_lock = threading.Lock()

Module = tuple[str, str, bytes]
"""Name, kind and content, as `loader` takes them."""


def payload(python: RemotePython) -> bytes:
    """Return what that Python runs; its first `loader_size()` bytes are the loader."""
    with _lock:  # many hosts of one kind ask at once
        return _payload(fitting(python))


def loader_size() -> int:
    return len(_loader())


def fitting(python: RemotePython) -> Path | None:
    """Return msgspec's compiled module if that Python can load it."""
    [*compiled] = _folder("msgspec").glob("_core*.so")
    fits = (path for path in compiled if path.name.removeprefix("_core") in python.suffixes)
    return next(fits, None)


@cache
def _payload(compiled: Path | None) -> bytes:
    modules = (*_gputop(), *_libraries(), *_msgspec(compiled))
    contents = {name: (kind, content) for name, kind, content in modules}
    data = zlib.compress(marshal.dumps(contents, _FORMAT), _LEVEL)
    return b"%s%d\n%s" % (_loader(), len(data), data)


@cache
def _loader() -> bytes:
    return (_PACKAGE / "sources/ssh/loader.py").read_bytes()


def _gputop() -> Iterator[Module]:
    for pattern in _MODULES:
        yield from (_source(path, _PACKAGE) for path in sorted(_PACKAGE.glob(pattern)))


def _libraries() -> Iterator[Module]:
    yield "psutil", "module", (_PACKAGE / _PSUTIL).read_bytes()
    yield "pynvml", "module", Path(_origin("pynvml")).read_bytes()


def _msgspec(compiled: Path | None) -> Iterator[Module]:
    """Yield the stand-in, and msgspec if its compiled module fits. The stand-in is there in any
    case: a module that fits by its name may want a newer libc."""
    yield from (_source(path, _PACKAGE) for path in sorted(_PACKAGE.glob(_STANDIN)))
    if compiled is not None:
        folder = _folder("msgspec")
        yield from (_source(path, folder) for path in sorted(folder.glob("*.py")))
        yield "msgspec._core", "compiled", compiled.read_bytes()


def _source(path: Path, package: Path) -> Module:
    parts = path.relative_to(package.parent).with_suffix("").parts
    kind = {"__init__": "package", "__main__": "program"}.get(parts[-1], "module")
    return ".".join(parts[:-1] if kind == "package" else parts), kind, path.read_bytes()


def _folder(package: str) -> Path:
    return Path(_origin(package)).parent


def _origin(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SourceError(f"{module} cannot be found: install gputop again")
    return spec.origin
