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
from gputop.model.doctor.cuda_builds import TESTED, Build, runs_on
from gputop.model.machine.check import Check
from tests.driver import build

NEVER = "raise SystemExit('imported')\n"
CUDA_10_0 = [
    f"lib{stem}.so.10.0" for stem in ("cudart", "cublas", "cufft", "curand", "cusparse", "cusolver")
]
CUDA_12 = ["libcudart.so.12", "libcublas.so.12", "libcufft.so.11", "libcurand.so.10",
           "libcusparse.so.12", "libcusolver.so.11"]  # fmt: skip


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

    def checks(
        self, cuda: str | None = "13.0", gpus: dict[str, list[int]] | None = None
    ) -> list[Check]:
        """Of its frameworks."""
        found = list(python_checks(find_interpreter(str(self.place)), cuda, gpus))
        assert found[0].subject == "Python"
        return found[1:]

    def check(self, cuda: str | None = "13.0") -> Check:
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


@pytest.mark.system
def test_the_message_of_article_000(environment: Environment, libraries: Libraries) -> None:
    """tensorflow-gpu 1.14 beside CUDA 10.1: it opens libcudnn.so.7, and nothing of CUDA."""
    environment.install("tensorflow_gpu", "1.14.0", tensorflow__python__tf2=NEVER)
    libraries("libcudart.so.10.1", "libcublas.so.10", "libcudnn.so.7")
    check = environment.check()
    assert (check.level, check.subject) == ("problem", "tensorflow")
    assert check.text.startswith(
        f"tensorflow 1.14.0 is built for CUDA 10.0 and cannot load {', '.join(CUDA_10_0)}, so it"
        " uses no GPU (Could not dlopen library: libcudart.so.10.0: cannot open shared object"
        " file: No such file or directory; LD_LIBRARY_PATH: "
    )
    assert "TensorFlow 1.14.0 needs CUDA 10.0 and cuDNN 7.4" in (check.advice or "")
    assert "/usr/local/cuda-10.0/lib64 into LD_LIBRARY_PATH" in (check.advice or "")


@pytest.mark.system
def test_when_all_of_it_is_there(environment: Environment, libraries: Libraries) -> None:
    environment.install("tensorflow-gpu", "1.14.0")
    libraries(*CUDA_10_0, "libcudnn.so.7")
    assert environment.check().level == "ok"
    [check] = environment.checks(cuda="9.2")[:1]
    assert (check.level, check.advice) == ("problem", "update the driver, or take an older build")


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "version", "cuda"),
    [
        ("tensorflow", "1.14.0", None),
        ("tensorflow", "1.15.5", "10.0"),
        ("tensorflow", "2.0.4", None),
        ("tensorflow", "2.1.0", "10.1"),
        ("tensorflow_cpu", "2.15.0", None),
        ("tensorflow", "2.10.1", "11.2"),
        ("tensorflow_gpu", "1.12.0", "9.0"),
    ],
)
def test_tensorflow_by_its_name(
    name: str, version: str, cuda: str | None, environment: Environment
) -> None:
    environment.install(name, version)
    check = environment.check()
    assert check.level == "problem"
    said = "is a build without CUDA" if cuda is None else f"is built for CUDA {cuda}"
    assert said in check.text


@pytest.mark.system
@pytest.mark.parametrize(
    ("info", "cuda"),
    [
        ("build_info = {}\nis_cuda_build = False\n", None),
        ("is_cuda_build = True\ncuda_version_number = '10.2'\n", "10.2"),
        ("OrderedDict([('cuda_version', '12.5.1'), ('is_cuda_build', True)])", "12.5.1"),
        ("OrderedDict([('is_cuda_build', False), ('is_rocm_build', True)])", None),
    ],
)
def test_tensorflow_by_its_build(info: str, cuda: str | None, environment: Environment) -> None:
    environment.install("tensorflow", "2.18.0", tensorflow__python__platform__build_info=info)
    said = "is a build without CUDA" if cuda is None else f"is built for CUDA {cuda}"
    assert said in environment.check().text


@pytest.mark.system
def test_tensorflow_that_nobody_knows(environment: Environment) -> None:
    environment.install("tensorflow", "2.99.0")
    check = environment.check()
    assert check.level == "ok"
    assert check.text.endswith("built for CUDA (not known which): what it loads is not known")


@pytest.mark.system
def test_wheels_of_libraries_and_who_looks_into_them(environment: Environment) -> None:
    environment.bring("nvidia/all/lib", *CUDA_12, "libcudnn.so.8")
    environment.install("tensorflow", "2.15.0")
    assert environment.check().level == "ok"
    shutil.rmtree(environment.site / "tensorflow-2.15.0.dist-info")
    info = "is_cuda_build = True\ncuda_version = '12.2'\n"
    environment.install("tensorflow", "2.13.0", tensorflow__python__platform__build_info=info)
    assert environment.check().level == "problem"


def torch_version(cuda: str | None) -> dict[str, str]:
    text = (
        f"from typing import Optional\ncuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n"
    )
    return {"torch__version": text}


@pytest.mark.system
def test_torch_without_cuda(environment: Environment) -> None:
    environment.install("torch", "2.5.1+cpu", **torch_version(None))
    check = environment.check()
    assert check.level == "problem"
    assert check.text == "torch 2.5.1+cpu is a build without CUDA: it sees no GPU"
    assert "https://download.pytorch.org/whl/cu" in (check.advice or "")


@pytest.mark.system
def test_torch_of_pypi(environment: Environment) -> None:
    needs = "Requires-Dist: nvidia-cudnn-cu12==9.1.0.70; platform_system == 'Linux'\n"
    environment.install("torch", "2.5.1", needs, **torch_version("12.4"))
    environment.bring("nvidia/all/lib", *CUDA_12)
    check = environment.check(cuda="12.2")  # minor versions agree
    assert check.level == "problem"
    assert "built for CUDA 12.4 and cannot load libcudnn.so.9, so" in check.text
    assert (check.advice or "").endswith("https://download.pytorch.org/whl/cu124")
    environment.bring("nvidia/cudnn/lib", "libcudnn.so.9")
    environment.install("nvidia_cudnn_cu12", "9.1.0.70")
    torch, cudnn = environment.checks()
    assert (torch.level, cudnn.level, cudnn.subject) == ("ok", "ok", "cuDNN")
    assert cudnn.text.startswith("9.1.0.70 (nvidia-cudnn-cu12, in ")
    assert environment.checks(cuda="11.8")[0].level == "problem"


@pytest.mark.system
def test_torch_without_kernels_for_the_gpus(environment: Environment) -> None:
    """CUDA 12.6 has no Blackwell, CUDA 13 nothing before Turing; PyPI has CUDA 13 since 2.11."""
    environment.install("torch", "2.11.0", **torch_version("13.0"))
    found = environment.checks(gpus={"7.0": [0, 1]})
    lacking = [check for check in found if "no kernel image is available" in check.text]
    assert [check.level for check in lacking] == ["problem"]
    assert "Volta (compute capability 7.0)" in lacking[0].text
    assert lacking[0].text.endswith("(GPU 0, 1)")
    assert "whl/cu126" in (lacking[0].advice or "")
    mixed = environment.checks(gpus={"7.0": [0], "9.0": [1, 2]})
    assert [check.level for check in mixed if "no kernel image" in check.text] == ["notice"]
    assert not any("kernel" in check.text for check in environment.checks(gpus={"9.0": [0]}))


@pytest.mark.system
def test_a_build_without_cuda_is_replaced_by_one_that_fits(environment: Environment) -> None:
    environment.install("torch", "2.5.1+cpu", **torch_version(None))
    for cuda, capability, tag in (("13.0", "12.0", "cu130"), ("13.0", "7.0", "cu126")):
        [check] = environment.checks(cuda, {capability: [0]})
        assert (check.advice or "").endswith(tag)


@pytest.mark.system
def test_tensorflow_2_16_1_does_not_find_its_wheels(environment: Environment) -> None:
    """tensorflow#63362."""
    environment.install("tensorflow", "2.16.1", tensorflow__python__platform__build_info=(
        "is_cuda_build = True\ncuda_version = '12.3'\ncudnn_version = '8'\n"))  # fmt: skip
    environment.bring("nvidia/all/lib", *CUDA_12, "libcudnn.so.8")
    check = environment.check()
    assert check.level == "problem"
    assert "cannot load libcudart.so.12" in check.text
    assert "TensorFlow 2.16.1 does not find the libraries that pip installs" in (check.advice or "")


@pytest.mark.system
def test_torch_with_libraries_of_its_own(environment: Environment) -> None:
    environment.install("torch", "2.1.0+cu118")
    environment.bring("torch/lib", "libcudart-d0da41ae.so.11.0", "libcublas.so.11", "libcudnn.so.8")
    check = environment.check()
    assert (check.level, check.text) == (
        "ok",
        "torch 2.1.0+cu118, built for CUDA 11.8: libcudart-d0da41ae.so.11.0, libcublas.so.11,"
        " libcudnn.so.8 can be loaded",
    )
    (environment.site / "torch/lib/libcudnn.so.8").write_text("half a download")
    assert "cannot load libcudnn.so.8, so it uses no GPU" in environment.check().text
    assert "libcudnn.so.8: file too short" in environment.check().text or (
        "invalid ELF header" in environment.check().text
    )


@pytest.mark.system
def test_jax(environment: Environment) -> None:
    environment.install("jaxlib", "0.4.35")
    check = environment.check()
    assert (check.level, check.advice) == ("problem", "pip install -U 'jax[cuda12]'")
    needs = 'Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.1; extra == "with-cuda"\n'
    environment.install("jax_cuda12_plugin", "0.4.35", needs)
    assert "libcudnn.so.9, so it uses no GPU" in environment.check().text
    environment.bring("nvidia/all/lib", *CUDA_12, "libcudnn.so.9")
    assert environment.check().level == "ok"
    assert "curand" not in environment.check().text


@pytest.mark.system
def test_jax_of_old(environment: Environment) -> None:
    environment.install("jaxlib", "0.4.13+cuda12.cudnn89")
    assert "cannot load libcudart.so.12, " in environment.check().text
    assert "libcudnn.so.8, so" in environment.check().text


@pytest.mark.system
def test_several_frameworks_and_none(environment: Environment) -> None:
    assert environment.check().level == "notice"
    environment.install("torch", "2.5.1+cpu")
    environment.install("tensorflow", "2.0.0")
    assert [check.subject for check in environment.checks()] == ["torch", "tensorflow"]


@pytest.mark.system
def test_nothing_of_the_current_directory_is_imported(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "ctypes"):
        (tmp_path / f"{name}.py").write_text(NEVER)
    monkeypatch.chdir(tmp_path)
    assert environment.check().level == "notice"


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
    assert check.level == "problem"
    assert "does not answer as Python" in check.text
    assert words in check.text


@pytest.mark.system
def test_a_library_that_crashes_the_interpreter(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "crash.c"
    source.write_text("__attribute__((constructor)) void go(void) { *(volatile int *)0 = 1; }\n")
    environment.install("torch", "2.1.0+cu118")
    environment.bring("torch/lib", "libcudart-1.so.11.0")
    target = environment.site / "torch/lib/libcudnn.so.8"
    build.shared(source, target)
    check = environment.check()
    assert check.level == "problem"
    assert "libcudnn.so.8: it does not answer as Python: status -11" in check.text


def test_old_pythons_can_run_the_child() -> None:
    ast.parse(python_env._CHILD, feature_version=(3, 4))


def test_the_table_of_tested_builds() -> None:
    assert TESTED["1.14"] == ("10.0", "7.4")
    assert TESTED["2.18"] == ("12.5", "9.3")
    for version, (cuda, cudnn) in TESTED.items():
        names = Build("tensorflow", version, cuda, cudnn).libraries()
        assert len(names) == 7
        assert names[-1] == f"libcudnn.so.{cudnn[0]}"


def test_libraries_by_toolkit() -> None:
    assert Build("torch", "1", "9.2", "7.0").libraries() == ("libcudnn.so.7",)
    assert "libcusolver.so.10" in Build("tensorflow", "2.4", "11.0", "8.0").libraries()
    assert "libcusolver.so.11" in Build("tensorflow", "2.5", "11.2", "8.1").libraries()
    assert "libcudart.so.10.1" in Build("tensorflow", "2.3", "10.1", "7.6").libraries()
    assert "libcublas.so.10" in Build("tensorflow", "2.3", "10.1", "7.6").libraries()


@pytest.mark.parametrize(
    ("cuda", "driver", "runs"),
    [("10.1", "10.0", False), ("10.0", "13.0", True), ("12.8", "12.2", True),
     ("13.0", "12.9", False), ("11.8", "11.0", True), ("12", "12.4", True)],
)  # fmt: skip
def test_which_driver_runs_which_build(cuda: str, driver: str, runs: bool) -> None:
    assert runs_on(cuda, driver) is runs
