"""gputop and its peers: how they are started, and what to look for on their screens."""

from __future__ import annotations

import compileall
import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import gputop
from bench.machines import Shape

_UP = b"\x1bOA"
_MOST_DOWN = 250
"""Keys up that reach the first process from any place the cursor may have."""


@dataclass(frozen=True)
class Screen:
    """A program with a screen, at an interval of a second."""

    command: list[str]
    gpu_row: str
    """Matches the row of a GPU that has its values; its first group is the index."""
    order: Callable[[int, Shape], tuple[int, ...]]
    """Returns the sort key of the n-th process."""
    down: bytes = b"\x1bOB"
    """The cursor keys, as the program has the terminal send them."""
    up: bytes = _UP
    home: bytes = b"\x1bOH"
    """The keys that move the cursor to the first process."""


@dataclass(frozen=True)
class Program:
    """A program that is compared."""

    name: str
    version: str
    screen: Screen | None = None
    looks: dict[str, list[str]] = field(default_factory=dict)
    """Commands that print one snapshot, by its form: text, json."""


def installed() -> list[Program]:
    """Return gputop, and the peers installed here.

    gputop is compiled first, as pip does when it installs: if Python may not write byte code, every
    start would compile it again."""
    compileall.compile_dir(Path(gputop.__file__).parent, quiet=1)
    python = [sys.executable, "-m"]
    found = [_gputop([*python, "gputop"])]
    if (version := _version("nvitop")) is not None:
        found.append(_nvitop([*python, "nvitop"], version))
    if (path := shutil.which("nvtop")) is not None:
        found.append(_nvtop(path))
    if (version := _version("gpustat")) is not None:
        found.append(Program("gpustat", version, looks={"json": [*python, "gpustat", "--json"]}))
    return found


def _gputop(command: list[str]) -> Program:
    screen = Screen(
        [*command, "--interval", "1"],
        gpu_row=r"^ *(\d+) +H200 .*\d/\d+G ",
        down=b"\x1b[B",
        up=b"\x1b[A",
        home=b"\x1b[H",
        order=_by_gpu,
    )
    looks = {"text": [*command, "--once"], "json": [*command, "--json"]}
    return Program("gputop", gputop.__version__, screen, looks)


def _nvitop(command: list[str], version: str) -> Program:
    screen = Screen(
        [*command, "--interval", "1"],
        gpu_row=r"^│ *(\d+) .*(\d+C .*iB / |│ [0-9A-F]{8}:)",  # one line, or the first of two
        order=_by_gpu,
    )
    return Program("nvitop", version, screen, {"text": [*command, "-1"]})


def _nvtop(path: str) -> Program:
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\d+(\.\d+)+", told)
    screen = Screen(
        [path, "-d", "10"],  # tenths of a second
        gpu_row=r"Device (\d+) *\[",
        order=_by_memory,
        home=_UP * _MOST_DOWN,
    )
    return Program("nvtop", version[0] if version else "?", screen, {"json": [path, "--snapshot"]})


def _by_gpu(n: int, shape: Shape) -> tuple[int, ...]:
    return (n % shape.gpus, n)


def _by_memory(n: int, shape: Shape) -> tuple[int, ...]:
    return (n,)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
