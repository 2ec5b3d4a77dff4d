"""What libraries import and do not need here: a third of an agent's start would go into it."""

import importlib
import sys
from types import ModuleType


def go_without() -> None:
    """Before anything is imported, in a process that loads no Textual."""
    # msgspec takes what typing has, from an older time, where this is missing.
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    # pynvml asks it only on Windows; it brings subprocess, shutil and what they need.
    later = ModuleType("ctypes.util")
    later.find_library = _find_library  # type: ignore[attr-defined]
    sys.modules["ctypes.util"] = later


def _find_library(name: str) -> str | None:
    """The real one, if somebody asks after all."""
    sys.modules.pop("ctypes.util", None)
    path: str | None = importlib.import_module("ctypes.util").find_library(name)
    return path
