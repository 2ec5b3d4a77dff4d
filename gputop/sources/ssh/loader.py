"""Runs an agent whose modules come on standard input: nothing of it is written to disk.

`carry` sends this file's text first, and another machine's Python runs it as its main program. It
imports nothing of gputop until the modules have come, as zlib and marshal data, `{name: (kind,
content)}`. The kinds "package", "module" and "program", which is run, are Python source; "compiled"
is a shared library, which is loaded from memory.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import marshal
import os
import sys
import zlib
from collections.abc import Sequence
from types import ModuleType
from typing import BinaryIO

_MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}
"""The number of the system call, for a Python that was built without os.memfd_create."""
_CLOSE_ON_EXEC = 1
_NOWHERE = "/dev/null/"
"""The path that modules claim to have: it cannot exist, whatever others do."""
_STANDIN = "gputop.sources.ssh.standin"
"""Takes msgspec's place if its compiled part does not fit."""


class Carried:
    """Finds and loads the modules that came along (see importlib.abc for both)."""

    def __init__(self, data: bytes) -> None:
        self._modules: dict[str, tuple[str, bytes]] = marshal.loads(data)
        [self.program] = (name for name, (kind, _) in self._modules.items() if kind == "program")

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        kind, data = self._modules.get(name, ("", b""))
        if kind == "compiled":
            path = f"/proc/self/fd/{_in_memory(name, data)}"
            loader = importlib.machinery.ExtensionFileLoader(name, path)
            return importlib.util.spec_from_file_location(name, path, loader=loader)
        if kind:
            return importlib.util.spec_from_loader(name, self, is_package=kind == "package")  # type: ignore[arg-type]
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave that to importlib."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__file__ = f"{_NOWHERE}{name.replace('.', '/')}.py"
        # Else the future import above would make strings of annotations, which gputop reads.
        code = compile(self._modules[name][1], module.__file__, "exec", dont_inherit=True)
        exec(code, module.__dict__)

    def forget(self, package: str) -> None:
        """Remove a package, and what of it was imported."""
        for name in [*self._modules, *sys.modules]:
            if name == package or name.startswith(package + "."):
                self._modules.pop(name, None)
                sys.modules.pop(name, None)


def _in_memory(name: str, data: bytes) -> int:
    """Return the descriptor of a file that is only in memory; it stays open. OSError."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name)
    else:
        import ctypes

        number = _MEMFD_CREATE.get(os.uname().machine, -1)
        descriptor = ctypes.CDLL(None).syscall(number, name.encode(), _CLOSE_ON_EXEC)
        if descriptor < 0:
            raise OSError("no file can be made in memory")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    return descriptor


def _take_msgspec(carried: Carried) -> None:
    """Import msgspec, or what takes its place."""
    try:
        import msgspec  # noqa: F401
    except (ImportError, OSError):
        carried.forget("msgspec")
        for part in ("", ".json", ".structs"):
            sys.modules["msgspec" + part] = importlib.import_module(_STANDIN + part)


def run(stdin: BinaryIO) -> None:
    """Read the modules and run the agent; its reader's requests follow on `stdin`."""
    carried = Carried(zlib.decompress(stdin.read(int(stdin.readline()))))
    sys.meta_path.insert(0, carried)
    sys.argv = ["gputop", "agent", *sys.argv[2:]]
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # as in __main__.py
    _take_msgspec(carried)
    importlib.import_module(carried.program).run()


if __name__ == "__main__":
    run(sys.stdin.buffer)
