"""What builds of PyTorch, TensorFlow and JAX say of themselves, against a driver and its GPUs.

There is no table of releases here. Sources of the rules: NVIDIA's CUDA Compatibility ("minor
version compatibility"); CUDA C++ Programming Guide, Binary Compatibility and PTX Compatibility; the
names of the runtime library in NVIDIA's toolkits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Kernels = Literal["compiled", "ptx", "none"]
"""Whether a build has kernels for a GPU, has PTX that the driver compiles first, or neither."""

_ARCHITECTURE = re.compile(r"(sm|compute)_([0-9]+)([0-9])([af]?)\Z", re.ASCII)
_PAGES = {
    "torch": "https://pytorch.org/get-started/locally/",
    "tensorflow": "https://www.tensorflow.org/install/pip",
    "jax": "https://docs.jax.dev/en/latest/installation.html",
}


class Build(msgspec.Struct, frozen=True):
    """What the files of one framework in a Python environment say of it."""

    name: str
    version: str
    cuda: str | None = None
    """The CUDA that it is built for; None for a build without CUDA, empty if it is not known."""
    cudnn: str | None = None
    """The version of cuDNN, or its beginning; None if it is not known."""
    architectures: tuple[str, ...] = ()
    """What it has kernels (`sm_90`) and PTX (`compute_90`) for; empty if it is not known."""
    uses_wheels: bool = False
    """Whether its metadata names NVIDIA's wheels: then it finds the libraries in them."""

    @property
    def page(self) -> str:
        """The address of the page that says how to install it, for which CUDA."""
        return _PAGES[self.name]

    def libraries(self) -> Iterator[str]:
        """Yield the sonames of CUDA's runtime and of cuDNN, as far as they are known."""
        if self.cuda:
            major, minor = major_minor(self.cuda)
            before_12 = f".{minor if major < 11 else 0}" if major < 12 else ""
            yield f"libcudart.so.{major}{before_12}"
        if self.cudnn:
            yield f"libcudnn.so.{self.cudnn.partition('.')[0]}"


def kernels_for(architectures: Iterable[str], capability: str) -> Kernels:
    """Return what a build for these architectures has for a compute capability, as `12.0`.

    Kernels run on their own compute capability and on later ones of the same major number, PTX on
    any later one; those of `sm_90a` run on 9.0 alone.
    """
    number = major_minor(capability)
    kernels: Kernels = "none"
    for match in filter(None, map(_ARCHITECTURE.match, architectures)):
        made_for = int(match[2]), int(match[3])
        runs = made_for == number if match[4] == "a" else made_for <= number
        if runs and match[1] == "sm" and made_for[0] == number[0]:
            return "compiled"
        if runs and match[1] == "compute":
            kernels = "ptx"
    return kernels


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
