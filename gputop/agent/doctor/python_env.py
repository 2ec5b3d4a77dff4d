"""What a Python environment has for GPUs. Nothing in it is imported: that is slow and may hang."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gputop.agent.program import run_program
from gputop.errors import UsageError
from gputop.model.doctor.cuda_builds import TESTED, Build, major_minor, runs_on
from gputop.model.doctor.kernels import lack
from gputop.model.machine.check import Check, CheckLevel
from gputop.model.machine.text import printable
from gputop.trust import (
    is_elevated,
    probe_environment,
    read_text,
    why_not,
    why_not_tree,
)

_LIMIT = 15.0
"""Seconds for an interpreter on a slow disk; it also loads some GB of libraries."""

# For any Python from 2.7 on. Nothing in the current directory may be imported.
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

_HOME = re.compile(r"^home *= *(.+?) *$", re.MULTILINE)
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
    folder: Path
    """The directory of site-packages."""
    metadata: str

    def text(self, *paths: str) -> str:
        return "".join(read_text(self.folder / path) for path in paths)


class _Answer(msgspec.Struct):
    version: str
    path: list[str]
    errors: dict[str, str]


def find_interpreter(given: str) -> str:
    """Return an interpreter, given as a path or as its environment's directory. UsageError."""
    folder = Path(os.path.expanduser(given))
    for path in (folder, folder / "bin/python", folder / "bin/python3"):
        if os.path.isfile(path) and os.access(path, os.X_OK):  # no name is too long for it
            return str(path.absolute())
    raise UsageError(
        f"--python {printable(given, 200)}: no interpreter and no environment is there; give its"
        " directory, or its bin/python"
    )


def python_checks(
    interpreter: str, cuda: str | None, gpus: Mapping[str, Sequence[int]] | None = None
) -> Iterator[Check]:
    """Check the environment of an interpreter. `cuda`: the newest version that the driver runs;
    `gpus`: indices by compute capability."""
    if refused := _refusal(interpreter):
        yield refused
        return
    answer = _ask(interpreter, ())
    if isinstance(answer, str):
        yield Check("problem", "Python", f"{interpreter} {answer}")
        return
    yield Check("ok", "Python", f"{answer.version} ({interpreter})")
    packages = _packages(answer.path)
    builds = [build for find in (_torch, _tensorflow, _jax) if (build := find(packages))]
    for build in builds:
        yield from _kernel_checks(build, cuda, gpus or {})
        yield from _build_checks(build, interpreter, packages, cuda, gpus or {})
    if not builds:
        yield Check("notice", "Python", "neither torch, tensorflow nor jax is in this environment")
    for name, package in packages.items():
        if name.startswith("nvidia-cudnn"):
            yield Check("ok", "cuDNN", f"{package.version} ({name}, in {package.folder})")


def _ask(interpreter: str, libraries: Sequence[str]) -> _Answer | str:
    """Return the answer of an interpreter that tries to load the libraries, or why it has none."""
    try:
        flags = ["-s"] if is_elevated() else []
        command = [interpreter, *flags, "-c", _CHILD, *libraries]
        done = run_program(command, _LIMIT, probe_environment())
        return msgspec.json.decode(done.output.strip().rpartition(b"\n")[2], type=_Answer)
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except msgspec.MsgspecError:
        last = done.output.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if done.status is None:
        return f"does not answer as Python within {_LIMIT:g} s"
    return f"does not answer as Python: status {done.status}, {last[:200] or 'no output'}"


def _refusal(interpreter: str) -> Check | None:
    """Return why root does not run an interpreter: starting it runs code from its environment
    (`.pth`, `sitecustomize`), loading libraries runs theirs, and others could change both."""
    if not is_elevated():
        return None
    try:
        reason = why_not(interpreter) or _why_not_code(_prefixes(interpreter))
    except OSError as error:
        reason = f"{error.filename} cannot be looked at: {error.strerror}"
    if reason is None:
        return None
    text = f"{interpreter} is not run as root, since others can change what it runs: {reason}"
    command = f"sudo -u {_owner(interpreter)} gputop doctor --python {shlex.quote(interpreter)}"
    return Check("problem", "Python", text, f"run it as its own user: {command}")


def _prefixes(interpreter: str) -> list[Path]:
    """Return the environment of an interpreter, and those that it was made from, found through
    links and pyvenv.cfg (PEP 405)."""
    paths = [interpreter, os.path.realpath(interpreter)]
    for path in tuple(paths):
        if home := _HOME.search(read_text(Path(path).parent.parent / "pyvenv.cfg")):
            paths.append(f"{home[1]}/python")
    return list(dict.fromkeys(Path(path).parent.parent for path in paths))


def _why_not_code(prefixes: Sequence[Path]) -> str | None:
    for prefix in prefixes:
        files = [prefix / "pyvenv.cfg", *prefix.glob("lib/*.so*")]
        folders = [*prefix.glob("lib*/python*"), *prefix.glob("local/lib*/python*")]
        for file in files:
            if file.exists() and (reason := why_not(str(file))):
                return reason
        for folder in folders:
            if folder.is_dir() and (reason := why_not_tree(str(folder)) or _why_not_added(folder)):
                return reason
    return None


def _why_not_added(folder: Path) -> str | None:
    for file in folder.glob("*-packages/*.pth"):
        for line in read_text(file).splitlines():
            added = file.parent / line.strip()
            is_path = line.strip() and not line.startswith(("import ", "import\t", "#"))
            if is_path and added.is_dir() and (reason := why_not(str(added))):
                return reason
    return None


def _owner(interpreter: str) -> str:
    uid = os.lstat(os.path.dirname(interpreter)).st_uid
    try:
        return pwd.getpwuid(uid).pw_name if uid else "USER"
    except KeyError:
        return f"'#{uid}'"


def _packages(path: Sequence[str]) -> dict[str, _Package]:
    """Return what is installed, by normalized name; the first of a name counts, as in imports."""
    packages: dict[str, _Package] = {}
    for folder in map(Path, path):
        for info in sorted(folder.glob("*-info")):
            if match := _INFO.match(info.name):
                name = re.sub("[-_.]+", "-", match[1]).lower()
                metadata = read_text(info / "METADATA")
                packages.setdefault(name, _Package(match[2], folder, metadata))
    return packages


def _torch(packages: Mapping[str, _Package]) -> Build | None:
    package = packages.get("torch")
    if package is None:
        return None
    said = _TORCH.search(package.text("torch/version.py"))
    local = re.search(r"\+cu([0-9]+)([0-9])\Z", package.version)
    cuda = said[1] if said else f"{local[1]}.{local[2]}" if local else None
    bundled = sorted((package.folder / "torch/lib").glob("libcudnn.so.[0-9]"))
    needs = _CUDNN.search(package.metadata)
    cudnn = bundled[0].name[-1] if bundled else needs[1] if needs else None
    return Build("torch", package.version, cuda, cudnn)


def _tensorflow(packages: Mapping[str, _Package]) -> Build | None:
    name = next((name for name in _TENSORFLOWS if name in packages), None)
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


def _kernel_checks(
    build: Build, cuda: str | None, gpus: Mapping[str, Sequence[int]]
) -> Iterator[Check]:
    """Yield a problem if the build has kernels for none of the GPUs, otherwise notices."""
    lacking = [
        (indices, missing)
        for capability, indices in gpus.items()
        if (missing := lack(build, capability, cuda))
    ]
    for indices, missing in lacking:
        level: CheckLevel = "problem" if missing.grave and len(lacking) == len(gpus) else "notice"
        where = f"GPU {', '.join(map(str, indices))}"
        text = f"{build.name} {build.version} {missing.text} ({where})"
        yield Check(level, build.name, text, missing.advice)


def _build_checks(
    build: Build,
    interpreter: str,
    packages: Mapping[str, _Package],
    cuda: str | None,
    gpus: Iterable[str],
) -> Iterator[Check]:
    title = f"{build.name} {build.version}"
    if build.cuda is None:
        yield Check("problem", build.name, f"{title} is a build without CUDA: it sees no GPU",
                    build.advice(cuda, gpus))  # fmt: skip
        return
    if cuda is not None and not runs_on(build.cuda, cuda):
        text = f"{title} is built for CUDA {build.cuda}, and the driver runs CUDA up to {cuda}"
        yield Check("problem", build.name, text, "update the driver, or take an older build")
    wanted = _libraries(build, packages)
    built = f"built for CUDA {build.cuda or '(not known which)'}"
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


def _libraries(build: Build, packages: Mapping[str, _Package]) -> list[str]:
    """Return the libraries that a build loads, as paths if wheels bring them. Older PyTorch wheels
    have some in torch/lib, and the others built in: then only torch/lib counts."""
    lib = packages["torch"].folder / "torch/lib" if build.name == "torch" else None
    if lib is not None and any(lib.glob("libcudart-*.so.*")):
        names = [name.partition(".so")[0] for name in build.libraries()]
        return [str(path) for name in names for path in sorted(lib.glob(f"{name}[-.]*so.*"))]
    wheels: dict[str, str] = {}
    for folder in {package.folder for package in packages.values() if build.brings_libraries()}:
        wheels |= {path.name: str(path) for path in folder.glob("nvidia/*/lib/lib*.so.*")}
    # Libraries that others need come first: not all wheels know where those are.
    first = [wheels[name] for name in wheels if name.startswith(("libnvJitLink", "libcublasLt"))]
    return first + [wheels.get(name, name) for name in build.libraries()]
