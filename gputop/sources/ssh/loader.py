"""Runs an agent whose modules come on standard input: nothing of it is written to disk, unless its
reader allows that.

`carry` sends this file first, and another machine's Python runs it as its main program. A line
follows: the size of the archive, its SHA-256, the module that unpacks it, and 1 if it may be kept
in the user's cache. Lines of standard output tell how many bytes of it are missing, down to 0: none
are where the file in the cache has that sum, and otherwise all come now. The archive is marshal
data, `{name: (kind, content)}`; the kinds are "package", "module" and "program", which is run.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import marshal
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import CodeType, ModuleType
from typing import Any, BinaryIO

_NOWHERE = "/dev/null/"
"""The path that modules claim to have: it cannot exist, whatever others do."""
_STANDIN = "gputop.sources.ssh.standin"
"""Takes msgspec's place."""
_PYTHON39 = f"{_STANDIN}.python39"
_PIECE = 1 << 14
"""Bytes of the archive between two lines."""
_NAME = "agent"


class Carried:
    """Finds and loads the modules that came along (see importlib.abc for both)."""

    def __init__(self, data: bytes) -> None:
        self._modules: dict[str, tuple[str, bytes]] = marshal.loads(data)
        [self.program] = (name for name, (kind, _) in self._modules.items() if kind == "program")
        self._python39: dict[str, Any] = {}
        """What that module defines, where it is needed."""
        if sys.version_info < (3, 10):  # noqa: UP036
            exec(_compiled(self._modules[_PYTHON39][1], _PYTHON39), self._python39)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        kind, _ = self._modules.get(name, ("", b""))
        if kind:
            return importlib.util.spec_from_loader(name, self, is_package=kind == "package")  # type: ignore[arg-type]
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave that to importlib."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__file__ = f"{_NOWHERE}{name.replace('.', '/')}.py"
        module.__dict__.update(self._python39.get("NAMES", {}))
        compiled = self._python39.get("compiled", _compiled)
        exec(compiled(self._modules[name][1], module.__file__), module.__dict__)


def _compiled(source: bytes, path: str) -> CodeType:
    # Else the future import above would make strings of annotations, which gputop reads.
    return compile(source, path, "exec", dont_inherit=True)


def _cache() -> int:
    """Open gputop's folder in the user's cache, which is made if need be. OSError, also if it is a
    link, another user's, or open to others."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    path = os.path.join(base, "gputop")
    with suppress(FileExistsError):
        os.makedirs(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    about = os.fstat(folder)
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        os.close(folder)
        raise PermissionError(path)
    return folder


def _kept(size: int, digest: str) -> bytes:
    """Return the archive in the cache; nothing if it is not there, or not that one."""
    from hashlib import sha256

    data = b""
    with suppress(OSError):
        folder = _cache()
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with open(os.open(_NAME, flags, dir_fd=folder), "rb") as file:
                data = file.read(size)
        finally:
            os.close(folder)
    return data if data and sha256(data).hexdigest() == digest else b""


def _keep(data: bytes) -> None:
    """Write the archive to the cache, if that can be done."""
    from gputop.files import Folder

    with suppress(OSError), Folder(_cache(), "the cache") as folder:
        folder.publish(_NAME, data, None)


def _received(stdin: BinaryIO, size: int) -> bytes:
    data = b""
    while missing := size - len(data):
        _tell(missing)
        piece = stdin.read(min(_PIECE, missing))
        if not piece:
            sys.exit("the agent did not arrive")
        data += piece
    return data


def _tell(missing: int) -> None:
    print(missing, flush=True)  # noqa: T201


def run(stdin: BinaryIO) -> None:
    """Read the modules and run the agent; its reader's requests follow on `stdin`."""
    size, digest, packer, keeps = stdin.readline().decode().split()
    kept = _kept(int(size), digest) if keeps == "1" else b""
    archive = kept or _received(stdin, int(size))
    _tell(0)
    carried = Carried(importlib.import_module(packer).decompress(archive))
    sys.meta_path.insert(0, carried)
    sys.argv = ["gputop", "agent", *sys.argv[2:]]
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # as in __main__.py
    for part in ("", ".json", ".structs"):
        sys.modules["msgspec" + part] = importlib.import_module(_STANDIN + part)
    if keeps == "1" and not kept:
        _keep(archive)
    importlib.import_module(carried.program).run()


if __name__ == "__main__":
    run(sys.stdin.buffer)
