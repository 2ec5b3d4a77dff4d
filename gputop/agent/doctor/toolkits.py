"""Which CUDA toolkits, cuDNN and container runtimes a machine has."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gputop.agent.doctor.installation import container
from gputop.agent.host import read_file
from gputop.agent.program import run_program
from gputop.model.check import Check
from gputop.model.cuda_builds import runs_on

_ROOT = Path("/")
_LIMIT = 5.0
"""Seconds for a program to tell its version."""
_RELEASE = re.compile(r"release [0-9.]+, V([0-9.]+)")
_TEXT = re.compile(r"CUDA Version ([0-9.]+)")
_CUDNN = re.compile(r"libcudnn\.so\.[0-9][^ ]* .*=> (.+)")
_MACRO = re.compile(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) ([0-9]+)")
_SYSTEM = "usr/include", "usr/include/x86_64-linux-gnu", "usr/include/aarch64-linux-gnu"


def toolkit_checks(
    cuda: str | None, root: Path = _ROOT, environ: Mapping[str, str] = os.environ
) -> Iterator[Check]:
    """Of what is installed for CUDA beside the driver, which runs CUDA up to `cuda`."""
    kits = _toolkits(root, environ)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        place = environ.get(variable)
        if place and not Path(place).is_dir():
            text = f"{variable}={place} is no directory"
            yield Check("problem", "toolkit", text, "unset it, or set it to where a toolkit is")
    for place, version in kits.items():
        yield _toolkit(place, version, cuda)
    if not kits:
        yield Check("notice", "toolkit", "none: only who compiles CUDA code needs one, and"
                    " TensorFlow before 2.14; wheels bring their own libraries")  # fmt: skip
    yield from _cudnn(kits, root, environ)
    yield from _runtimes(container(root, environ), environ)


def _toolkits(root: Path, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Versions by the place of each, without the links to it."""
    found: dict[str, str | None] = {}
    variables = [environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    for path in [*map(Path, variables), *sorted((root / "usr/local").glob("cuda*"))]:
        if path.is_dir():
            place = path.resolve()
            found[str(place)] = _version(place)
    nvcc = shutil.which("nvcc", path=environ.get("PATH", ""))
    if nvcc is not None:
        home = str(Path(nvcc).resolve().parent.parent)
        said = _RELEASE.search(_said([nvcc, "--version"]))
        if found.get(home) is None:
            found[home if home in found else nvcc] = said[1] if said else None
    return found


def _version(place: Path) -> str | None:
    """As the toolkit's own files say, else as the directory is called."""
    try:
        found: object = json.loads((place / "version.json").read_bytes())["cuda"]["version"]
        return str(found)
    except (OSError, ValueError, LookupError, TypeError):
        pass
    said = _TEXT.search(read_file(place / "version.txt") or "")
    called = re.search(r"cuda-([0-9.]+)\Z", place.name)
    return said[1] if said else called[1] if called else None


def _toolkit(place: str, version: str | None, cuda: str | None) -> Check:
    text = f"CUDA {version or 'of no known version'} ({place})"
    if version is None or cuda is None or runs_on(version, cuda):
        return Check("ok", "toolkit", text)
    text += f": what it compiles does not run on this driver, which runs CUDA up to {cuda}"
    return Check("notice", "toolkit", text, "update the driver, or take an older toolkit")


def _cudnn(kits: Iterable[str], root: Path, environ: Mapping[str, str]) -> Iterator[Check]:
    """By the libraries that the loader finds, and by headers."""
    ldconfig = shutil.which("ldconfig", path=f"{environ.get('PATH', '')}:/sbin:/usr/sbin")
    listed = _CUDNN.findall(_said([ldconfig, "-p"])) if ldconfig else []
    own = environ.get("LD_LIBRARY_PATH", "").split(":")
    beside = [path for folder in own if folder for path in Path(folder).glob("libcudnn.so.[0-9]*")]
    paths = {path.resolve() for path in (*map(Path, listed), *beside)}
    for path in sorted(paths):
        yield Check("ok", "cuDNN", f"{path.name.partition('.so.')[2]} ({path})")
    folders = [root / place for place in _SYSTEM] + [Path(kit) / "include" for kit in kits]
    for header in (folder / name for folder in folders for name in ("cudnn_version.h", "cudnn.h")):
        if numbers := _MACRO.findall(read_file(header) or ""):
            yield Check("ok", "cuDNN", f"{'.'.join(numbers)} ({header})")
            paths.add(header)
    if not paths:
        yield Check("ok", "cuDNN", "none but what wheels bring")


def _runtimes(inside: str | None, environ: Mapping[str, str]) -> Iterator[Check]:
    found = {}
    for name in ("docker", "podman", "nvidia-ctk"):
        if program := shutil.which(name, path=environ.get("PATH", "")):
            said = re.search(r"[0-9]+(?:\.[0-9]+)+", _said([program, "--version"]))
            found[name] = f"{name} {said[0]}" if said else name
    if found.keys() & {"docker", "podman"} and "nvidia-ctk" not in found and not inside:
        yield Check("notice", "containers", f"{', '.join(found.values())}, without nvidia-ctk",
                    "to use GPUs in containers, install nvidia-container-toolkit")  # fmt: skip
    else:
        yield Check("ok", "containers", ", ".join(found.values()) or "no runtime")


def _said(command: Sequence[str]) -> str:
    """What a program writes, empty where it fails."""
    try:
        done = run_program(command, _LIMIT)
    except OSError:
        return ""
    return done.output.decode("utf-8", "replace") if done.status == 0 else ""
