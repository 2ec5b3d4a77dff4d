"""Python environments: what is a CUDA build, and which of its libraries cannot be loaded.

The environments are real, the frameworks in them a few files, the libraries empty ones.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.agent.doctor import python_env
from gputop.agent.doctor.python_env import find_interpreter, python_checks
from gputop.errors import UsageError
from gputop.model.machine.finding import Finding
from tests.driver import build

NEVER = "raise SystemExit('imported')\n"
CUDA_12 = "libcudart.so.12", "libcublas.so.12"


class Environment:
    """A virtual environment that frameworks are put into."""

    def __init__(self, place: Path, base: Path, empty: Path) -> None:
        self.place, self._empty = place, empty
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.site = place / "lib" / version / "site-packages"
        self.site.mkdir(parents=True)
        (place / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
        (place / "bin").mkdir()
        (place / "bin/python").symlink_to(base)

    def install(self, name: str, version: str, metadata: str = "", **files: str) -> None:
        """A package; `files` by their paths, with __ for /."""
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n{metadata}")
        for path, text in files.items():
            file = self.site / f"{path.replace('__', '/')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            (file.parent / "__init__.py").write_text(NEVER)

    def bring(self, folder: str, *names: str) -> None:
        """Libraries, below site-packages."""
        (self.site / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(self._empty, self.site / folder / name)

    def bring_torch(self, listed: str, *needs: str) -> None:
        """PyTorch's own libraries: one needs others, one has a list of architectures."""
        self.bring("torch/lib")
        self.bring("../link", *needs)  # only to link with
        link, lib = self.site.parent / "link", self.site / "torch/lib"
        (link / "torch.c").write_text("int nothing;\n")
        build.shared(
            link / "torch.c", lib / "libtorch_cuda.so", "-Wl,--no-as-needed", f"-L{link}",
            *(f"-l:{name}" for name in needs), "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/all/lib",
        )  # fmt: skip
        shutil.rmtree(link)  # a linker may have noted the folder
        listing = b"\x7fELF\0an sm_10 sm_20\0" + listed.encode() + b"\0sm_90\0\xff"
        (lib / "libtorch_python.so").write_bytes(listing)

    def checks(
        self, cuda: str | None = "13.0", gpus: dict[str, list[int]] | None = None
    ) -> list[Finding]:
        """Of its frameworks."""
        found = list(python_checks(find_interpreter(str(self.place)), cuda, gpus))
        assert found[0].code == "Python"
        return found[1:]

    def check(self, cuda: str | None = "13.0") -> Finding:
        """The only one."""
        [found] = self.checks(cuda)
        return found


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that can be loaded under any name."""
    place = tmp_path_factory.mktemp("library")
    (place / "empty.c").write_text("int nothing;\n")
    library = place / "empty.so"
    build.shared(place / "empty.c", library)
    return library


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has its standard library alone: root looks through all that is
    installed there, at each check. One that cannot be copied is taken as it is."""
    place, standard = tmp_path_factory.mktemp("base"), Path(sysconfig.get_path("stdlib"))
    library = place / "lib" / standard.name
    library.mkdir(parents=True)
    for path in standard.iterdir():
        if not path.name.endswith("-packages"):
            (library / path.name).symlink_to(path)
    (place / "bin").mkdir()
    original = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    copied = Path(shutil.copy(original, place / "bin/python"))
    done = subprocess.run([copied, "-c", "import ctypes"], capture_output=True)
    return copied if done.returncode == 0 else original


@pytest.fixture
def environment(tmp_path: Path, base: Path, empty: Path) -> Environment:
    return Environment(tmp_path / "venv", base, empty)


Libraries = Callable[..., None]


@pytest.fixture
def libraries(tmp_path: Path, empty: Path, monkeypatch: pytest.MonkeyPatch) -> Libraries:
    """Put libraries where LD_LIBRARY_PATH leads."""

    def bring(*names: str) -> None:
        folder = tmp_path / "lib64"
        folder.mkdir(exist_ok=True)
        for name in names:
            shutil.copy(empty, folder / name)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))

    return bring


def build_info(cuda: str | None, cudnn: str = "", listed: str = "") -> dict[str, str]:
    """As `tf.sysconfig.get_build_info()` has it."""
    words = [("is_cuda_build", cuda is not None), ("is_rocm_build", False)]
    if cuda:
        words += [("cuda_version", cuda), ("cudnn_version", cudnn)]  # type: ignore[list-item]
    if listed:
        words.append(("cuda_compute_capabilities", listed.split()))  # type: ignore[arg-type]
    return {"tensorflow__python__platform__build_info": f"build_info = OrderedDict({words})\n"}


@pytest.mark.system
def test_the_message_of_article_000(environment: Environment, libraries: Libraries) -> None:
    """tensorflow beside another CUDA than its own, which its build_info tells."""
    files = build_info("10.1", "7") | {"tensorflow__python__tf2": NEVER}
    environment.install("tensorflow_gpu", "2.3.1", **files)
    libraries("libcudart.so.10.0", "libcublas.so.10", "libcudnn.so.7")
    check = environment.check()
    assert (check.level, check.code) == ("error", "tensorflow")
    assert check.text.startswith(
        "tensorflow 2.3.1, built for CUDA 10.1, cannot load libcudart.so.10.1, so it uses no GPU"
        " (Could not dlopen library: libcudart.so.10.1: cannot open shared object file: No such"
        " file or directory; LD_LIBRARY_PATH: "
    )
    assert "put that version of them into LD_LIBRARY_PATH" in (check.advice or "")
    libraries("libcudart.so.10.1")
    assert environment.check().text == (
        "tensorflow 2.3.1, built for CUDA 10.1: libcudart.so.10.1, libcudnn.so.7 can be loaded"
    )
    [check] = environment.checks(cuda="9.2")[:1]
    assert (check.level, check.advice) == ("error", "update the driver, or install an older build")


@pytest.mark.system
@pytest.mark.parametrize(
    ("info", "said"),
    [
        ("build_info = {}\nis_cuda_build = False\n", "is a build without CUDA"),
        ("is_cuda_build = True\ncuda_version_number = '10.2'\n", "built for CUDA 10.2, cannot"),
        ("OrderedDict([('cuda_version', '12.5.1'), ('is_cuda_build', True)])", "CUDA 12.5.1, "),
        ("OrderedDict([('is_cuda_build', False), ('is_rocm_build', True)])", "without CUDA"),
    ],
)
def test_tensorflow_by_its_build(info: str, said: str, environment: Environment) -> None:
    environment.install("tensorflow", "2.18.0", tensorflow__python__platform__build_info=info)
    assert said in environment.check().text


@pytest.mark.system
def test_tensorflow_that_does_not_say_its_cuda(environment: Environment) -> None:
    environment.install("tensorflow", "1.14.0")
    check = environment.check()
    assert check.level == "warning"
    assert check.text == (
        "tensorflow 1.14.0, which does not say what CUDA it is built for: what it loads is not"
        " known"
    )
    assert "https://www.tensorflow.org/" in (check.advice or "")


@pytest.mark.system
def test_tensorflow_for_the_cpu(environment: Environment) -> None:
    environment.install("tensorflow_cpu", "2.15.0")
    assert "is a build without CUDA" in environment.check().text


@pytest.mark.system
def test_wheels_of_libraries_and_who_looks_into_them(environment: Environment) -> None:
    environment.bring("nvidia/all/lib", *CUDA_12, "libcudnn.so.8")
    needs = 'Requires-Dist: nvidia-cudnn-cu12==8.9.7.29; extra == "and-cuda"\n'
    environment.install("tensorflow", "2.15.0", needs, **build_info("12.2", "8"))
    assert environment.check().level == "ok"
    shutil.rmtree(environment.site / "tensorflow-2.15.0.dist-info")
    environment.install("tensorflow", "2.13.0")
    assert environment.check().level == "error"


@pytest.mark.system
def test_tensorflow_and_the_kernels_it_has(environment: Environment) -> None:
    listed = "sm_60 sm_70 sm_80 sm_89 compute_90"
    environment.install("tensorflow", "2.18.0", **build_info("12.5.1", "9", listed))
    found = environment.checks(gpus={"8.0": [0], "12.0": [1, 2], "5.2": [3]})[:-1]
    assert [(check.level, check.text.partition(": ")[2]) for check in found] == [
        ("warning", "it compiles them first"),
        ("warning", 'programs end with "no kernel image is available"'),
    ]
    assert found[0].text.startswith(
        "tensorflow 2.18.0 has no kernels for compute capability 12.0 (GPU 1, 2), only for"
        f" {listed}"
    )


def torch_version(cuda: str | None) -> dict[str, str]:
    text = (
        f"from typing import Optional\ncuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n"
    )
    return {"torch__version": text}


@pytest.mark.system
def test_torch_without_cuda(environment: Environment) -> None:
    environment.install("torch", "2.5.1+cpu", **torch_version(None))
    check = environment.check()
    assert check.level == "error"
    assert check.text == "torch 2.5.1+cpu is a build without CUDA: it sees no GPU"
    assert check.advice == (
        "install one that is built for CUDA up to 13.0: https://pytorch.org/get-started/locally/"
    )


@pytest.mark.system
def test_torch_of_pypi(environment: Environment) -> None:
    environment.install("torch", "2.5.1", **torch_version("12.4"))
    environment.bring_torch("sm_50 sm_60", "libcudart.so.12", "libcudnn.so.9")
    environment.bring("nvidia/all/lib", "libcudart.so.12")
    check = environment.check(cuda="12.2")  # minor versions agree
    assert check.level == "error"
    assert check.text.startswith(
        "torch 2.5.1, built for CUDA 12.4, cannot load libtorch_cuda.so, so it uses no GPU (Could"
        " not dlopen library: libcudnn.so.9: cannot open shared object file"
    )
    environment.bring("nvidia/all/lib", "libcudnn.so.9")
    environment.install("nvidia_cudnn_cu12", "9.1.0.70")
    torch, cudnn = environment.checks()
    assert (torch.level, cudnn.level, cudnn.code) == ("ok", "ok", "cuDNN")
    assert torch.text == "torch 2.5.1, built for CUDA 12.4: libtorch_cuda.so can be loaded"
    assert cudnn.text.startswith("9.1.0.70 (nvidia-cudnn-cu12, in ")
    assert environment.checks(cuda="11.8")[0].level == "error"


@pytest.mark.system
def test_torch_with_libraries_of_its_own(environment: Environment) -> None:
    environment.install("torch", "2.1.0+cu118")
    environment.bring_torch("sm_80", "libcudart-d0da41ae.so.11.0", "libcudnn.so.8")
    environment.bring("torch/lib", "libcudart-d0da41ae.so.11.0", "libcudnn.so.8")
    assert environment.check().text == (
        "torch 2.1.0+cu118, built for CUDA 11.8: libtorch_cuda.so can be loaded"
    )
    (environment.site / "torch/lib/libcudnn.so.8").write_text("half a download")
    assert "cannot load libtorch_cuda.so, so it uses no GPU" in environment.check().text
    assert "libcudnn.so.8: file too short" in environment.check().text or (
        "invalid ELF header" in environment.check().text
    )


@pytest.mark.system
def test_torch_without_kernels_for_the_gpus(environment: Environment) -> None:
    """By its own list of architectures, which stands in its library."""
    environment.install("torch", "2.11.0", **torch_version("13.0"))
    environment.bring_torch("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120")
    found = environment.checks(gpus={"7.0": [0, 1]})
    lacking = [check for check in found if "no kernel image is available" in check.text]
    assert [check.level for check in lacking] == ["error"]
    assert lacking[0].text.startswith(
        "torch 2.11.0 has no kernels for compute capability 7.0 (GPU 0, 1), only for sm_75 sm_80"
    )
    assert "https://pytorch.org/" in (lacking[0].advice or "")
    mixed = environment.checks(gpus={"7.0": [0], "9.0": [1, 2]})
    assert [check.level for check in mixed if "no kernel image" in check.text] == ["warning"]
    assert not any("kernel" in check.text for check in environment.checks(gpus={"9.0": [0]}))


@pytest.mark.system
def test_torch_that_lists_no_kernels(environment: Environment) -> None:
    environment.install("torch", "2.11.0", **torch_version("13.0"))
    [check] = environment.checks(gpus={"7.0": [0]})
    assert (check.level, check.text) == (
        "warning", "torch 2.11.0, built for CUDA 13.0: what it loads is not known"
    )  # fmt: skip


@pytest.mark.system
def test_jax(environment: Environment) -> None:
    environment.install("jaxlib", "0.4.35")
    check = environment.check()
    assert check.level == "error"
    assert "built for CUDA up to 13.0: https://docs.jax.dev/" in (check.advice or "")
    needs = 'Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.1; extra == "with-cuda"\n'
    environment.install("jax_cuda12_plugin", "0.4.35", needs)
    assert "cannot load libcudart.so.12, libcudnn.so.9, so" in environment.check().text
    environment.bring("nvidia/all/lib", *CUDA_12, "libcudnn.so.9")
    assert environment.check().level == "ok"


@pytest.mark.system
def test_jax_of_old(environment: Environment) -> None:
    environment.install("jaxlib", "0.4.13+cuda12.cudnn89")
    assert "cannot load libcudart.so.12, libcudnn.so.8, so" in environment.check().text


@pytest.mark.system
def test_several_frameworks_and_none(environment: Environment) -> None:
    assert environment.check().level == "info"
    environment.install("torch", "2.5.1+cpu")
    environment.install("tensorflow", "2.18.0", **build_info(None))
    assert [check.code for check in environment.checks()] == ["torch", "tensorflow"]


@pytest.mark.system
def test_nothing_of_the_current_directory_is_imported(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "ctypes"):
        (tmp_path / f"{name}.py").write_text(NEVER)
    monkeypatch.chdir(tmp_path)
    assert environment.check().level == "info"


@pytest.mark.system
def test_an_interpreter_and_its_directory(environment: Environment) -> None:
    python = str(environment.place / "bin/python")
    assert find_interpreter(str(environment.place)) == python
    assert find_interpreter(python) == python


@pytest.mark.parametrize("given", ["/nowhere", "/etc/passwd", "/etc", "a\x1b[2Jb\n"])
def test_what_is_no_environment(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        find_interpreter(given)
    assert str(caught.value).isprintable()


@pytest.mark.system
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "status 3, no output"),
        ("echo [1, 2]", "status 0, [1, 2]"),
        ("yes", "within 1 s"),
        ("sleep 100", "within 1 s"),
        ("kill -11 $$", "status -11"),
    ],
)
def test_what_is_no_python(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_env, "_LIMIT", 1.0)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    [check] = python_checks(str(program), None)
    assert check.level == "error"
    assert "did not answer as a Python interpreter" in check.text
    assert words in check.text


@pytest.mark.system
def test_a_library_that_crashes_the_interpreter(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "crash.c"
    source.write_text("__attribute__((constructor)) void go(void) { *(volatile int *)0 = 1; }\n")
    environment.install("torch", "2.1.0+cu118")
    environment.bring("torch/lib")
    build.shared(source, environment.site / "torch/lib/libtorch_cuda.so")
    check = environment.check()
    assert check.level == "error"
    assert "libtorch_cuda.so: it did not answer as a Python interpreter: status -11" in check.text


def test_old_pythons_can_run_the_child() -> None:
    ast.parse(python_env._CHILD, feature_version=(3, 4))
