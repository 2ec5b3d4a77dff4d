"""What a Python environment has for GPUs: nothing of it is imported, which is slow and may hang."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gputop.agent.host import read_file
from gputop.agent.program import run_program
from gputop.errors import UsageError
from gputop.model.check import Check
from gputop.model.cuda_builds import TESTED, Build, major_minor, runs_on
from gputop.model.text import printable

_LIMIT = 15.0
"""Seconds for an interpreter on a slow disk; it also loads some GB of libraries."""

# For any Python from 2.7 on. What is in the current directory is not to be imported.
_CHILD = """
import sys
sys.path[:1] = [place for place in sys.path[:1] if place]
import ctypes, json
errors = {}
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    except OSError as error:
        errors[name] = str(error)
print("\\n" + json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])), "path": sys.path, "errors": errors
}))
"""

_INFO = re.compile(r"(.+?)-([0-9][^-]*)(?:-py[0-9.]+)?(?:-[^-]+)?\.(?:dist|egg)-info\Z")
_TORCH = re.compile(r"^cuda\b[^=\n]*= *['\"]([0-9.]+)", re.MULTILINE)
_IS_CUDA = re.compile(r"is_cuda_build['\"]? *[,:=] *(True|False)")
_VERSIONS = re.compile(r"(cuda|cudnn)_version(?:_number)?['\"]? *[,:=] *['\"]([0-9.]+)")
_CUDNN = re.compile(r"^Requires-Dist: *nvidia-cudnn[^;\n]*?[>=]=? *([0-9]+)", re.MULTILINE)
_PLUGIN = re.compile(r"jax-cuda([0-9]+)-plugin\Z")
_JAXLIB = re.compile(r"\+cuda([0-9]+)\.cudnn([0-9])")
_TENSORFLOWS = "tensorflow-gpu", "tensorflow", "tensorflow-cpu", "tf-nightly"


class _Package(NamedTuple):
    version: str
    place: Path
    """The directory of site-packages."""
    metadata: str

    def text(self, *paths: str) -> str:
        return "".join(read_file(self.place / path) or "" for path in paths)


class _Answer(msgspec.Struct):
    version: str
    path: list[str]
    errors: dict[str, str]


def find_interpreter(given: str) -> str:
    """An interpreter, or that of an environment's directory; UsageError where there is none."""
    place = Path(os.path.expanduser(given))
    for path in (place, place / "bin/python", place / "bin/python3"):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.absolute())
    raise UsageError(
        f"--python {printable(given, 200)}: no interpreter and no environment is there; give its"
        " directory, or its bin/python"
    )


def python_checks(interpreter: str, cuda: str | None) -> Iterator[Check]:
    """Of the environment of an interpreter; `cuda`: the newest that the driver runs."""
    answer = _ask(interpreter, ())
    if isinstance(answer, str):
        yield Check("problem", "Python", f"{interpreter} {answer}")
        return
    yield Check("ok", "Python", f"{answer.version} ({interpreter})")
    packages = _packages(answer.path)
    builds = [build for look in (_torch, _tensorflow, _jax) if (build := look(packages))]
    for build in builds:
        yield from _build_checks(build, interpreter, packages, cuda)
    if not builds:
        yield Check("notice", "Python", "neither torch, tensorflow nor jax is in this environment")
    for name, package in packages.items():
        if name.startswith("nvidia-cudnn"):
            yield Check("ok", "cuDNN", f"{package.version} ({name}, in {package.place})")


def _ask(interpreter: str, libraries: Sequence[str]) -> _Answer | str:
    """What an interpreter says once it has tried to load those; or why it says nothing."""
    try:
        done = run_program([interpreter, "-c", _CHILD, *libraries], _LIMIT)
        return msgspec.json.decode(done.output.strip().rpartition(b"\n")[2], type=_Answer)
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except msgspec.MsgspecError:
        last = done.output.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if done.status is None:
        return f"does not answer as Python within {_LIMIT:g} s"
    return f"does not answer as Python: status {done.status}, {last[:200] or 'no output'}"


def _packages(path: Sequence[str]) -> dict[str, _Package]:
    """By the normalized names of what is installed; the first of a name counts, as in imports."""
    found: dict[str, _Package] = {}
    for place in map(Path, path):
        for info in sorted(place.glob("*-info")):
            if match := _INFO.match(info.name):
                name = re.sub("[-_.]+", "-", match[1]).lower()
                metadata = read_file(info / "METADATA") or ""
                found.setdefault(name, _Package(match[2], place, metadata))
    return found


def _torch(packages: Mapping[str, _Package]) -> Build | None:
    package = packages.get("torch")
    if package is None:
        return None
    said = _TORCH.search(package.text("torch/version.py"))
    local = re.search(r"\+cu([0-9]+)([0-9])\Z", package.version)
    cuda = said[1] if said else f"{local[1]}.{local[2]}" if local else None
    bundled = sorted((package.place / "torch/lib").glob("libcudnn.so.[0-9]"))
    needs = _CUDNN.search(package.metadata)
    cudnn = bundled[0].name[-1] if bundled else needs[1] if needs else None
    return Build("torch", package.version, cuda, cudnn)


def _tensorflow(packages: Mapping[str, _Package]) -> Build | None:
    name = next((one for one in _TENSORFLOWS if one in packages), None)
    if name is None:
        return None
    package = packages[name]
    file = "python/platform/build_info.py"
    info = package.text(f"tensorflow/{file}", f"tensorflow_core/{file}")
    version = major_minor(package.version)
    # On PyPI, `tensorflow` itself has CUDA in 1.15 and from 2.1 on.
    named = name == "tensorflow-gpu" or (
        name == "tensorflow" and (version == (1, 15) or version >= (2, 1))
    )
    said = _IS_CUDA.search(info)
    if not (said[1] == "True" if said else named):
        return Build("tensorflow", package.version)
    tested = TESTED.get(".".join(map(str, version)), (None, None))
    own = dict(_VERSIONS.findall(info))
    cuda, cudnn = own.get("cuda") or tested[0] or "", tested[1] or own.get("cudnn")
    return Build("tensorflow", package.version, cuda, cudnn)


def _jax(packages: Mapping[str, _Package]) -> Build | None:
    package = packages.get("jaxlib")
    if package is None:
        return None
    for name, plugin in packages.items():
        if match := _PLUGIN.match(name):
            needs = _CUDNN.search(plugin.metadata)
            return Build("jax", package.version, match[1], needs[1] if needs else None)
    local = _JAXLIB.search(package.version)
    return Build("jax", package.version, *(local.groups() if local else ()))


def _build_checks(
    build: Build, interpreter: str, packages: Mapping[str, _Package], cuda: str | None
) -> Iterator[Check]:
    title = f"{build.name} {build.version}"
    if build.cuda is None:
        yield Check("problem", build.name, f"{title} is a build without CUDA: it sees no GPU",
                    build.advice())  # fmt: skip
        return
    if cuda is not None and not runs_on(build.cuda, cuda):
        text = f"{title} is built for CUDA {build.cuda}, and the driver runs CUDA up to {cuda}"
        yield Check("problem", build.name, text, "update the driver, or take an older build")
    wanted, built = _found(build, packages), f"built for CUDA {build.cuda or '(not known which)'}"
    answer = _ask(interpreter, wanted)
    if isinstance(answer, str):
        yield Check("problem", build.name, f"{title}: loading {', '.join(wanted)}: it {answer}")
        return
    names = [Path(name).name for name in wanted]
    failed = {Path(name).name: error for name, error in answer.errors.items()}
    if failed:
        first = next(iter(failed.values()))
        search = os.environ.get("LD_LIBRARY_PATH")
        yield Check("problem", build.name, f"{title} is {built} and cannot load"
                    f" {', '.join(failed)}, so it uses no GPU (Could not dlopen library: {first};"
                    f" LD_LIBRARY_PATH: {search or 'not set'})", build.advice())  # fmt: skip
    else:
        loaded = f"{', '.join(names)} can be loaded" if names else "what it loads is not known"
        yield Check("ok", build.name, f"{title}, {built}: {loaded}")


def _found(build: Build, packages: Mapping[str, _Package]) -> list[str]:
    """The libraries to load, by path where wheels bring them.

    Older wheels of PyTorch have some in torch/lib, and all others built in: then those count.
    """
    lib = packages["torch"].place / "torch/lib" if build.name == "torch" else None
    if lib is not None and any(lib.glob("libcudart-*.so.*")):
        names = [name.partition(".so")[0] for name in build.libraries()]
        return [str(path) for name in names for path in sorted(lib.glob(f"{name}[-.]*so.*"))]
    wheels: dict[str, str] = {}
    for place in {package.place for package in packages.values() if build.brings_libraries()}:
        wheels |= {path.name: str(path) for path in place.glob("nvidia/*/lib/lib*.so.*")}
    # Those that others need come first: not all wheels say where theirs are.
    first = [wheels[name] for name in wheels if name.startswith(("libnvJitLink", "libcublasLt"))]
    return first + [wheels.get(name, name) for name in build.libraries()]
