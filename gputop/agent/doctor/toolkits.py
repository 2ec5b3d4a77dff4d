"""Which CUDA toolkits, cuDNN and container runtimes a machine has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gputop.agent.program import answer_of
from gputop.model.doctor.builds import runs_on
from gputop.model.machine.finding import Finding
from gputop.trust import find_program, read_text

_ROOT = Path("/")
_LIMIT = 5.0
"""Seconds that a program has to print its version."""
_RELEASE = re.compile(r"release [0-9.]+, V([0-9.]+)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_TEXT = re.compile(r"CUDA Version ([0-9.]+)")
_CUDNN = re.compile(r"libcudnn\.so\.[0-9][^ ]* .*=> (.+)")
_MACRO = re.compile(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) ([0-9]+)")
_SYSTEM = "usr/include", "usr/include/x86_64-linux-gnu", "usr/include/aarch64-linux-gnu"


def toolkit_checks(
    cuda: str | None,
    inside: str | None,
    root: Path = _ROOT,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Finding]:
    """Check what is installed for CUDA besides the driver, which runs CUDA up to `cuda`, `inside` a
    `container` or on a machine itself."""
    kits = _toolkits(root, environ)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        folder = environ.get(variable)
        if folder and not Path(folder).is_dir():
            text = f"{variable}={folder} is not a directory"
            yield Finding("error", "toolkit", text, "unset it, or set it to where a toolkit is")
    for folder, version in kits.items():
        yield _toolkit(folder, version, cuda)
    if not kits:
        yield Finding("info", "toolkit", "none: compiling CUDA code needs one; most wheels bring"
                      " their own libraries")  # fmt: skip
    yield from _cudnn(kits, root, environ)
    yield from _runtimes(inside, environ)


def _toolkits(root: Path, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return versions by folder, or by the path of nvcc; links are resolved, except nvcc's own."""
    versions: dict[str, str | None] = {}
    variables = [environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    for path in [*map(Path, variables), *sorted((root / "usr/local").glob("cuda*"))]:
        if path.is_dir():
            folder = path.resolve()
            versions[str(folder)] = _version(folder)
    nvcc, _ = find_program("nvcc", search=environ.get("PATH", ""))
    if nvcc is not None:
        home = str(Path(nvcc).resolve().parent.parent)
        said = _RELEASE.search(answer_of([nvcc, "--version"], _LIMIT))
        if versions.get(home) is None:
            versions[home if home in versions else nvcc] = said[1] if said else None
    return versions


def _version(folder: Path) -> str | None:
    """Return the version from the toolkit's own files, otherwise from its directory's name."""
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        return str(json.loads(read_text(folder / "version.json"))["cuda"]["version"])
    said = _TEXT.search(read_text(folder / "version.txt"))
    called = re.search(r"cuda-([0-9.]+)\Z", folder.name)
    return said[1] if said else called[1] if called else None


def _toolkit(folder: str, version: str | None, cuda: str | None) -> Finding:
    text = f"CUDA {version or 'of unknown version'} ({folder})"
    if version is None or cuda is None or runs_on(version, cuda):
        return Finding("ok", "toolkit", text)
    text += f": what it compiles does not run on this driver, which runs CUDA up to {cuda}"
    return Finding("warning", "toolkit", text, "update the driver, or install an older toolkit")


def _cudnn(kits: Iterable[str], root: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Find cuDNN by the libraries that the loader finds, and by headers."""
    ldconfig, _ = find_program("ldconfig", ("/sbin", "/usr/sbin"), environ.get("PATH", ""))
    listed = _CUDNN.findall(answer_of([ldconfig, "-p"], _LIMIT)) if ldconfig else []
    own = environ.get("LD_LIBRARY_PATH", "").split(":")
    beside = [path for folder in own if folder for path in Path(folder).glob("libcudnn.so.[0-9]*")]
    paths = {path.resolve() for path in (*map(Path, listed), *beside)}
    for path in sorted(paths):
        yield Finding("ok", "cuDNN", f"{path.name.partition('.so.')[2]} ({path})")
    folders = [root / folder for folder in _SYSTEM] + [Path(kit) / "include" for kit in kits]
    for header in (folder / name for folder in folders for name in ("cudnn_version.h", "cudnn.h")):
        if numbers := _MACRO.findall(read_text(header)):
            yield Finding("ok", "cuDNN", f"{'.'.join(numbers)} ({header})")
            paths.add(header)
    if not paths:
        yield Finding("ok", "cuDNN", "none, apart from what wheels bring")


def _runtimes(inside: str | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    versions = {}
    for name in ("docker", "podman", "nvidia-ctk"):
        program, refused = find_program(name, search=environ.get("PATH", ""))
        if program:
            said = _NUMBER.search(answer_of([program, "--version"], _LIMIT))
            versions[name] = f"{name} {said[0]}" if said else name
        elif refused:
            yield Finding("warning", "containers", refused)
    if versions.keys() & {"docker", "podman"} and "nvidia-ctk" not in versions and not inside:
        text = f"{', '.join(versions.values())}, without nvidia-ctk"
        yield Finding("warning", "containers", text,
                      "to use GPUs in containers, install nvidia-container-toolkit")  # fmt: skip
    else:
        yield Finding("ok", "containers", ", ".join(versions.values()) or "no runtime")
