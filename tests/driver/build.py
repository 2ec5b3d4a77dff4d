"""Builds the driver and the scenarios' child program, once per content of the sources.

A compiler is `cc`, `gcc` or `clang`; without one, the `ziglang` wheel, which is installed if it
is not there. (Of 80 MB, it is no dependency of the test extra: most machines have a compiler.)
Results are kept in a cache directory; any number of test workers may build at once.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ERAS = (390, 450, 535, 580)
SOURCES = Path(__file__).parent
LIBRARY = ("scenario.c", "call.c", "system.c", "device.c", "board.c", "links.c", "process.c",
           "health.c", "events.c", "gpm.c", "topology.c")  # fmt: skip
CUDA = ("scenario.c", "call.c", "cuda.c", "context.c")
# Moving values are worked out in Python, too: a multiply-add in one step rounds otherwise.
FLAGS = ("-std=gnu11", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")

_SHARED = ("-fPIC", "-shared")


class BuildError(RuntimeError):
    """The driver cannot be built; one line that says why and what to do."""


def library(directory: Path | None = None, era: int = 580) -> Path:
    """Path of `libnvidia-ml.so.1` as drivers of that era had it, built if need be.

    `libcuda.so.1` stands beside it.
    directory: where results are kept; the user's cache under the temporary directory if None.
    Raises BuildError when there is no compiler, when it fails, and for an unknown era.
    """
    if era not in ERAS:
        raise BuildError(f"no driver era {era}; there are {', '.join(map(str, ERAS))}")
    cuda(directory, era)
    return _built(directory, f"{era}/libnvidia-ml.so.1", LIBRARY, _shared(era), ("-lm",))


def cuda(directory: Path | None = None, era: int = 580) -> Path:
    """Path of `libcuda.so.1` of that era, built if need be: who has it loaded may be on a GPU."""
    return _built(directory, f"{era}/libcuda.so.1", CUDA, _shared(era), ("-lm",))


def loading_cuda() -> dict[str, str]:
    """Variables with which any program has `libcuda.so.1` loaded, as those on GPUs have: in a PID
    namespace below the first nothing else may show that a process is on one."""
    return {"LD_PRELOAD": str(cuda())}


def child(directory: Path | None = None) -> Path:
    """Path of the program that stands for the processes of a scenario, built if need be."""
    cuda(directory)  # which it maps
    return _built(directory, "child", ("child.c",), (), ())


def swollen(directory: Path | None = None) -> Path:
    """Path of the program that is too large to be read whole, built if need be."""
    cuda(directory)  # which it maps
    return _built(directory, "swollen", ("swollen.c",), ("-pthread",), ())


def blocked(directory: Path | None = None) -> Path:
    """Path of the program that nobody can read, built if need be."""
    return _built(directory, "blocked", ("blocked.c",), ("-pthread",), ())


def shared(source: Path, target: Path, *options: str) -> None:
    """Compile a library of one file, linked as the options say. With the options of the driver: for
    others a compiler that was just installed builds its own libraries, which takes a minute."""
    command = [*_compiler(), *FLAGS, "-Wno-error", *_SHARED, "-o", str(target), str(source)]
    _run([*command, *options])


def prepare() -> None:
    """Install a compiler where there is none, and build everything with it: that takes a minute.

    Raises BuildError.
    """
    if _installed_compiler() is None:
        with _locked("prepare"):
            child()
            swollen()
            blocked()
            for era in ERAS:
                library(era=era)


def _shared(era: int) -> tuple[str, ...]:
    return (f"-DERA={era}", *_SHARED, "-fvisibility=hidden", "-pthread")


def _built(
    directory: Path | None,
    name: str,
    sources: tuple[str, ...],
    options: tuple[str, ...],
    libraries: tuple[str, ...],
) -> Path:
    target = (directory or _cache()) / _fingerprint() / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Built aside and moved: another worker either sees all of it or none.
        handle, aside = tempfile.mkstemp(dir=target.parent)
        os.close(handle)
        try:
            paths = [str(SOURCES / source) for source in sources]
            _run([*_compiler(), *FLAGS, *options, "-o", aside, *paths, *libraries])
            Path(aside).chmod(0o755)
            Path(aside).replace(target)
        finally:
            Path(aside).unlink(missing_ok=True)
    return target


def _cache() -> Path:
    return Path(tempfile.gettempdir()) / f"gputop-test-driver-{os.getuid()}"


def _fingerprint() -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _compiler() -> list[str]:
    if path := _installed_compiler():
        return [path]
    # Other workers come here at the same time, and must not find it half installed.
    with _locked("ziglang"):
        importlib.invalidate_caches()
        if importlib.util.find_spec("ziglang") is None:
            _install_zig()
    return [sys.executable, "-m", "ziglang", "cc"]


def _installed_compiler() -> str | None:
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """One worker at a time."""
    _cache().mkdir(parents=True, exist_ok=True)
    with open(_cache() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_zig() -> None:
    print("no C compiler: installing the ziglang wheel into", sys.prefix, file=sys.stderr)
    try:
        _run([sys.executable, "-m", "pip", "install", "--quiet", "ziglang"])
    except BuildError as error:
        raise BuildError(f"no C compiler and no ziglang; install gcc or clang ({error})") from None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        reason = next((line for line in lines if "error" in line.lower()), lines[-1])
        raise BuildError(f"{Path(command[0]).name} failed with {done.returncode}: {reason}")
