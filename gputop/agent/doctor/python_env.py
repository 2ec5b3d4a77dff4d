"""What a Python environment has for GPUs. Nothing in it is imported: that is slow and may hang."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gputop.agent.program import run_program
from gputop.errors import UsageError
from gputop.model.doctor.builds import Build, kernels_for, runs_on
from gputop.model.machine.finding import Finding, Level
from gputop.model.machine.text import printable
from gputop.trust import (
    is_elevated,
    probe_environment,
    read_text,
    reason_tree_untrusted,
    reason_untrusted,
)

_LIMIT = 15.0
"""Seconds for an interpreter on a slow disk; it also loads some GB of libraries."""

# For any Python from 2.7 on. Nothing in the current directory may be imported. The first argument
# is a file that PyTorch's list of architectures stands in, as text.
_CHILD = r"""
import sys
sys.path[:1] = [place for place in sys.path[:1] if place]
import ctypes, json, re
errors, lists = {}, []
for name in sys.argv[2:]:
    try:
        ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    except OSError as error:
        errors[name] = str(error)
if sys.argv[1:] and sys.argv[1]:
    with open(sys.argv[1], "rb") as file:
        lists = re.findall(b"\0((?:(?:sm|compute)_[0-9]+[af]? ?)+)(?=\0)", file.read())
print("\n" + json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])), "path": sys.path, "errors": errors,
    "architectures": max(lists, key=len).decode().split() if lists else []
}))
"""

_HOME = re.compile(r"^home *= *(.+?) *$", re.MULTILINE)
_INFO = re.compile(r"(.+?)-([0-9][^-]*)(?:-py[0-9.]+)?(?:-[^-]+)?\.(?:dist|egg)-info\Z")
_TORCH = re.compile(r"^cuda\b[^=\n]*= *['\"]([0-9.]+)", re.MULTILINE)
_IS_CUDA = re.compile(r"is_cuda_build['\"]? *[,:=] *(True|False)")
_VERSIONS = re.compile(r"(cuda|cudnn)_version(?:_number)?['\"]? *[,:=] *['\"]([0-9.]+)")
_CAPABILITIES = re.compile(r"cuda_compute_capabilities['\"]? *[,:=] *\[([^]]*)")
_WHEELS = re.compile(r"^Requires-Dist: *nvidia-", re.MULTILINE)
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
    architectures: list[str]


def find_interpreter(given: str) -> str:
    """Return an interpreter, given as a path or as its environment's directory. UsageError."""
    folder = Path(os.path.expanduser(given))
    for path in (folder, folder / "bin/python", folder / "bin/python3"):
        if os.path.isfile(path) and os.access(path, os.X_OK):  # no name is too long for it
            return str(path.absolute())
    raise UsageError(
        f"--python {printable(given, 200)}: there is no interpreter or environment there; give its"
        " directory, or its bin/python"
    )


def python_checks(
    interpreter: str, cuda: str | None, gpus: Mapping[str, Sequence[int]] | None = None
) -> Iterator[Finding]:
    """Check the environment of an interpreter. `cuda`: the newest version that the driver runs;
    `gpus`: indices by compute capability."""
    if refused := _refusal(interpreter):
        yield refused
        return
    answer = _ask(interpreter)
    if isinstance(answer, str):
        yield Finding("error", "Python", f"{interpreter} {answer}")
        return
    yield Finding("ok", "Python", f"{answer.version} ({interpreter})")
    packages = _packages(answer.path)
    builds = [build for find in (_torch, _tensorflow, _jax) if (build := find(packages))]
    for build in builds:
        yield from _build_checks(build, interpreter, packages, cuda, gpus or {})
    if not builds:
        yield Finding("info", "Python", "neither torch, tensorflow nor jax is in this environment")
    for name, package in packages.items():
        if name.startswith("nvidia-cudnn"):
            yield Finding("ok", "cuDNN", f"{package.version} ({name}, in {package.folder})")


def _ask(interpreter: str, arguments: Sequence[str] = ()) -> _Answer | str:
    """Return the answer of an interpreter that runs `_CHILD`, or why it has none."""
    try:
        flags = ["-s"] if is_elevated() else []
        command = [interpreter, *flags, "-c", _CHILD, *arguments]
        done = run_program(command, _LIMIT, probe_environment())
        return msgspec.json.decode(done.output.strip().rpartition(b"\n")[2], type=_Answer)
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except msgspec.MsgspecError:
        last = done.output.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if done.status is None:
        return f"did not answer as a Python interpreter within {_LIMIT:g} s"
    words = last[:200] or "no output"
    return f"did not answer as a Python interpreter: status {done.status}, {words}"


def _refusal(interpreter: str) -> Finding | None:
    """Return why root does not run an interpreter: starting it runs code from its environment
    (`.pth`, `sitecustomize`), loading libraries runs theirs, and others could change both."""
    if not is_elevated():
        return None
    try:
        reason = reason_untrusted(interpreter) or _reason_code_untrusted(_prefixes(interpreter))
    except OSError as error:
        reason = f"{error.filename} cannot be checked: {error.strerror}"
    if reason is None:
        return None
    text = f"{interpreter} is not run as root, since others can change what it runs: {reason}"
    command = f"sudo -u {_owner(interpreter)} gputop doctor --python {shlex.quote(interpreter)}"
    return Finding("error", "Python", text, f"run it as its own user: {command}")


def _prefixes(interpreter: str) -> list[Path]:
    """Return the environment of an interpreter, and those that it was made from, found through
    links and pyvenv.cfg (PEP 405)."""
    paths = [interpreter, os.path.realpath(interpreter)]
    for path in tuple(paths):
        if home := _HOME.search(read_text(Path(path).parent.parent / "pyvenv.cfg")):
            paths.append(f"{home[1]}/python")
    return list(dict.fromkeys(Path(path).parent.parent for path in paths))


def _reason_code_untrusted(prefixes: Sequence[Path]) -> str | None:
    for prefix in prefixes:
        files = [prefix / "pyvenv.cfg", *prefix.glob("lib/*.so*")]
        folders = [*prefix.glob("lib*/python*"), *prefix.glob("local/lib*/python*")]
        for file in files:
            if file.exists() and (reason := reason_untrusted(str(file))):
                return reason
        for folder in folders:
            if folder.is_dir() and (
                reason := reason_tree_untrusted(str(folder)) or _reason_added_untrusted(folder)
            ):
                return reason
    return None


def _reason_added_untrusted(folder: Path) -> str | None:
    for file in folder.glob("*-packages/*.pth"):
        for line in read_text(file).splitlines():
            added = file.parent / line.strip()
            is_path = line.strip() and not line.startswith(("import ", "import\t", "#"))
            if is_path and added.is_dir() and (reason := reason_untrusted(str(added))):
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
    return Build("torch", package.version, said[1] if said else local and f"{local[1]}.{local[2]}")


def _tensorflow(packages: Mapping[str, _Package]) -> Build | None:
    name = next((name for name in _TENSORFLOWS if name in packages), None)
    if name is None:
        return None
    package = packages[name]
    file = "python/platform/build_info.py"
    info = package.text(f"tensorflow/{file}", f"tensorflow_core/{file}")
    said = _IS_CUDA.search(info)
    if said[1] == "False" if said else name == "tensorflow-cpu":
        return Build("tensorflow", package.version)
    own, listed = dict(_VERSIONS.findall(info)), _CAPABILITIES.search(info)
    return Build(
        "tensorflow",
        package.version,
        own.get("cuda", ""),
        own.get("cudnn"),
        tuple(re.findall(r"\w+", listed[1])) if listed else (),
        _WHEELS.search(package.metadata) is not None,
    )


def _jax(packages: Mapping[str, _Package]) -> Build | None:
    package = packages.get("jaxlib")
    if package is None:
        return None
    for name, plugin in packages.items():
        if match := _PLUGIN.match(name):
            needs, wheels = _CUDNN.search(plugin.metadata), _WHEELS.search(plugin.metadata)
            cudnn = needs[1] if needs else None
            return Build("jax", package.version, match[1], cudnn, uses_wheels=wheels is not None)
    local = _JAXLIB.search(package.version)
    cuda, cudnn = (local[1], local[2]) if local else (None, None)
    return Build("jax", package.version, cuda, cudnn)


def _build_checks(
    build: Build,
    interpreter: str,
    packages: Mapping[str, _Package],
    cuda: str | None,
    gpus: Mapping[str, Sequence[int]],
) -> Iterator[Finding]:
    title = f"{build.name} {build.version}"
    if build.cuda is None:
        limit = f" up to {cuda}" if cuda else ""
        yield Finding("error", build.name, f"{title} is a build without CUDA: it sees no GPU",
                      f"install one that is built for CUDA{limit}: {build.page}")  # fmt: skip
        return
    if cuda is not None and not runs_on(build.cuda, cuda):
        text = f"{title} is built for CUDA {build.cuda}, and the driver runs CUDA up to {cuda}"
        yield Finding("error", build.name, text, "update the driver, or install an older build")
    libraries, listing = _libraries(build, packages)
    answer = _ask(interpreter, [listing, *libraries])
    if isinstance(answer, str):
        yield Finding("error", build.name, f"{title}: loading {', '.join(libraries)}: it {answer}")
        return
    architectures = build.architectures or tuple(answer.architectures)
    yield from _kernel_checks(replace(build, architectures=architectures), gpus)
    yield _loaded(build, libraries, answer.errors)


def _libraries(build: Build, packages: Mapping[str, _Package]) -> tuple[list[str], str]:
    """Return the libraries that a build loads, as paths if wheels bring them, and the file that has
    its list of architectures, empty if there is none. PyTorch's own library needs all others: the
    loader says which is missing."""
    if build.name == "torch":
        lib = packages["torch"].folder / "torch/lib"
        library, listing = lib / "libtorch_cuda.so", lib / "libtorch_python.so"
        return [str(library)] * library.exists(), str(listing) if listing.is_file() else ""
    wheels: dict[str, str] = {}
    for folder in {package.folder for package in packages.values() if build.uses_wheels}:
        wheels |= {path.name: str(path) for path in folder.glob("nvidia/*/lib/lib*.so.*")}
    return [wheels.get(name, name) for name in build.libraries()], ""


def _kernel_checks(build: Build, gpus: Mapping[str, Sequence[int]]) -> Iterator[Finding]:
    """Yield an error if the build has kernels for none of the GPUs, otherwise warnings."""
    if not build.architectures:
        return
    kernels = {capability: kernels_for(build.architectures, capability) for capability in gpus}
    level: Level = "error" if set(kernels.values()) == {"none"} else "warning"
    listed = " ".join(build.architectures)
    for capability, available in kernels.items():
        if available == "compiled":
            continue
        text = (
            f"{build.name} {build.version} has no kernels for compute capability {capability} (GPU"
            f" {', '.join(map(str, gpus[capability]))}), only for {listed}: "
        )
        if available == "ptx":
            yield Finding("warning", build.name, f"{text}it compiles them first",
                          "the first start takes long")  # fmt: skip
        else:
            text += 'programs end with "no kernel image is available"'
            yield Finding(level, build.name, text, f"install a build that has them: {build.page}")


def _loaded(build: Build, libraries: Sequence[str], errors: Mapping[str, str]) -> Finding:
    """Return whether the libraries could be loaded, and what to do if not."""
    title = f"{build.name} {build.version}"
    built = f"built for CUDA {build.cuda}"
    names = [Path(name).name for name in libraries]
    if not build.cuda:
        built = "which does not say what CUDA it is built for"
    if errors:
        failed, first = [Path(name).name for name in errors], next(iter(errors.values()))
        search = os.environ.get("LD_LIBRARY_PATH")
        text = (
            f"{title}, {built}, cannot load {', '.join(failed)}, so it uses no GPU (Could not"
            f" dlopen library: {first}; LD_LIBRARY_PATH: {search or 'not set'})"
        )
        return Finding("error", build.name, text,
                       "install it again with its libraries, or put that version of them into"
                       f" LD_LIBRARY_PATH: {build.page}")  # fmt: skip
    if not names:
        return Finding("warning", build.name, f"{title}, {built}: what it loads is not known",
                       f"what it needs: {build.page}")  # fmt: skip
    return Finding("ok", build.name, f"{title}, {built}: {', '.join(names)} can be loaded")
