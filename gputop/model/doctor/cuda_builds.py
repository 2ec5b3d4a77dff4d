"""What builds of TensorFlow, PyTorch and JAX need from CUDA.

Sources: tensorflow.org, "Tested build configurations" (Linux, GPU); its rows of 2.19 and 2.20 are
unverified, that of 2.21 is quoted from it; the names of the libraries in NVIDIA's toolkits. The
GPUs that a build has kernels for are in `kernels.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gputop.model.cuda.export import quoted

_TENSORFLOW = {
    "1.5 1.6 1.7 1.8 1.9 1.10 1.11 1.12": ("9.0", "7"),
    "1.13 1.14 1.15 2.0": ("10.0", "7.4"),
    "2.1 2.2 2.3": ("10.1", "7.6"),
    "2.4": ("11.0", "8.0"),
    "2.5 2.6 2.7 2.8 2.9 2.10 2.11": ("11.2", "8.1"),
    "2.12 2.13": ("11.8", "8.6"),
    "2.14": ("11.8", "8.7"),
    "2.15": ("12.2", "8.9"),
    "2.16 2.17": ("12.3", "8.9"),
    "2.18 2.19 2.20 2.21": ("12.5", "9.3"),
}
TESTED = {version: match for versions, match in _TENSORFLOW.items() for version in versions.split()}
"""The versions of CUDA and cuDNN that a version of TensorFlow is built for."""

_STEMS = "cudart", "cublas", "cufft", "curand", "cusparse", "cusolver"
_ENDS = {
    "9.0": "9.0 9.0 9.0 9.0 9.0 9.0",
    "10.0": "10.0 10.0 10.0 10.0 10.0 10.0",
    "10.1": "10.1 10 10 10 10 10",
    "10.2": "10.2 10 10 10 10 10",
    "11.0": "11.0 11 10 10 11 10",
    "11": "11.0 11 10 10 11 11",
    "12": "12 12 11 10 12 11",
    "13": "13 13 12 10 12 12",
}
"""Ends of the sonames of `_STEMS`, by toolkit; from 11.1 on, minor versions share them."""

_INDEX = "https://download.pytorch.org/whl/"


class Build(msgspec.Struct, frozen=True):
    """What one framework of a Python environment was built for."""

    name: str
    version: str
    cuda: str | None = None
    """None for a build without CUDA; empty if its version is not known."""
    cudnn: str | None = None
    """None if it is not known."""

    def libraries(self) -> tuple[str, ...]:
        """Return the sonames that it loads; empty if they are not known."""
        major, minor = major_minor(self.cuda or "")
        ends = _ENDS.get(f"{major}.{minor}") or _ENDS.get(str(major))
        pairs = zip(_STEMS, ends.split(), strict=True) if ends else ()
        names = [f"lib{stem}.so.{end}" for stem, end in pairs]
        if self.name == "jax":
            names = [name for name in names if "curand" not in name]
        return (*names, *([f"libcudnn.so.{self.cudnn.partition('.')[0]}"] if self.cudnn else []))

    def brings_libraries(self) -> bool:
        """Whether it finds the libraries in NVIDIA's wheels; TensorFlow before 2.14 does not, nor
        does 2.16.1 (tensorflow#63362)."""
        if self.name != "tensorflow":
            return True
        return major_minor(self.version) >= (2, 14) and self.version != "2.16.1"

    def advice(self, driver: str | None = None, capabilities: Iterable[str] = ()) -> str:
        """Return what to install to get its libraries, or a build with CUDA. `driver`: the newest
        CUDA that the driver runs; `capabilities`: the GPUs' compute capabilities."""
        if self.name == "torch":
            if self.cuda:
                return torch_advice(f"cu{''.join(map(str, major_minor(self.cuda)))}")
            return torch_advice(torch_tag(driver, capabilities))
        if self.name == "jax":
            return f"pip install -U 'jax[cuda{major_minor(self.cuda or '12')[0]}]'"
        if self.version == "2.16.1" and self.cuda is not None:
            return (
                "TensorFlow 2.16.1 does not find the libraries that pip installs beside it: take "
                "another version, as pip install 'tensorflow[and-cuda]>=2.17'"
            )
        if self.brings_libraries() or self.version == "2.16.1":
            return f"pip install {self._wheel('[and-cuda]')}"
        if self.cuda is None:
            return f"pip install {self._wheel(self._gpu())}"
        toolkit = ".".join(map(str, major_minor(self.cuda)))
        return (
            f"TensorFlow {self.version} needs CUDA {toolkit} and cuDNN {self.cudnn}, another CUDA"
            f" does not do: install them beside what is there, and put"
            f" /usr/local/cuda-{toolkit}/lib64 into LD_LIBRARY_PATH"
        )

    def _wheel(self, kind: str) -> str:
        """Return a word quoted for a shell: the version comes from a file of the environment."""
        name = f"tensorflow{kind}"
        return quoted(f"{name}=={self.version}") or quoted(name) or name

    def _gpu(self) -> str:
        """Return `-gpu` for versions whose wheels with CUDA had a name of their own on PyPI."""
        version = major_minor(self.version)
        return "" if version == (1, 15) or version >= (2, 1) else "-gpu"


def torch_tag(driver: str | None, capabilities: Iterable[str]) -> str:
    """Return the PyTorch index with the newest releases for these: `cu126`, `cu128` or `cu130`."""
    wanted = [major_minor(capability) for capability in capabilities]
    newest = major_minor(driver) if driver else (0, 0)
    if any(capability < (7, 5) for capability in wanted):
        return "cu126"
    if newest >= (13, 0):
        return "cu130"
    return "cu128" if any(capability >= (10, 0) for capability in wanted) else "cu126"


def torch_advice(tag: str) -> str:
    """Return how to install PyTorch from one of its indices; some lack newer releases."""
    last = {"cu126": "<2.15", "cu128": "<2.12"}.get(tag)
    package = f"'torch{last}'" if last else "torch"
    return f"pip install --force-reinstall {package} --index-url {_INDEX}{tag}"


def major_minor(version: str) -> tuple[int, int]:
    """Return (12, 4) for `12.4.131`, and (12, 0) for `12`."""
    numbers = [int(number) for number in re.findall("[0-9]+", version)]
    first, second = (*numbers, 0, 0)[:2]
    return first, second


def runs_on(cuda: str, driver: str) -> bool:
    """Whether a driver for CUDA up to `driver` runs a build for `cuda`.

    From CUDA 11 on, it does within one major version (CUDA Compatibility, minor version).
    """
    build, most = major_minor(cuda), major_minor(driver)
    return build <= most or (build[0] >= 11 and build[0] == most[0])
