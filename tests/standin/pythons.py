"""The Pythons that there are, beside the one that runs the tests."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

MINORS = range(10, 15)
_CHILD = Path(__file__).parent / "child.py"


def python_of(minor: int) -> str | None:
    """The path of a Python 3.MINOR that runs."""
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in (*sorted(pyenv.glob(f"versions/3.{minor}.*/bin/{name}")), shutil.which(name)):
        if path is not None and _runs(path):
            return str(path)
    return None


def _runs(path: str | Path) -> bool:
    command = [path, "-I", "-S", "-c", "import ctypes, zlib"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@functools.cache
def pythons() -> list[str]:
    """One of each minor version that there is, this one among them."""
    others = (python_of(minor) for minor in MINORS if minor != sys.version_info.minor)
    return [sys.executable, *filter(None, others)]


def bare(python: str, *words: str) -> list[str]:
    """The command that runs `child` by a Python that finds nothing that is installed."""
    return [python, "-I", "-S", "-B", str(_CHILD), *words]
