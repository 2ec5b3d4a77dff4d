"""Which GPUs a build of PyTorch, TensorFlow or JAX has kernels for. Without any, programs end with
"no kernel image is available for execution on the device".

Kernels run on the compute capability that they were made for and on later ones of the same major
number, not on others (NVIDIA's CUDA C++ Programming Guide, Binary Compatibility, as quoted).

Sources: pytorch/pytorch RELEASE.md, "PyTorch CUDA Support Matrix" of releases 2.9 to 2.14, in pull
requests 164471, 175253 and 182849 and issue 190355; issue 157517 for 2.8 (no Maxwell and Pascal
with CUDA 12.8), issue 190385 (CUDA 13 cannot build for GPUs before Turing; CUDA 12.6 ends with
2.14). They cover PyTorch's own builds; nothing is known of others (NVIDIA's containers).
TensorFlow's announcement of 8.9 kernels (Maxwell: stay with 2.16), and its .bazelrc (`compute_90`
is the last; newer GPUs compile their kernels from it). Builds for a CUDA before 12.6 are assumed to
end with Hopper as those for 12.6 do: PyTorch's test-infra#7046 adds Blackwell to 12.8 alone.
"""

from __future__ import annotations

from typing import NamedTuple

from gputop.model.doctor.cuda_builds import Build, major_minor, torch_advice

_TURING, _PASCAL, _VOLTA, _BLACKWELL = (7, 5), (6, 0), (7, 0), (10, 0)
_GENERATIONS = (
    (_BLACKWELL, "Blackwell"),
    ((9, 0), "Hopper"),
    ((8, 0), "Ampere or Ada"),
    (_TURING, "Turing"),
    (_VOLTA, "Volta"),
    (_PASCAL, "Pascal"),
    ((5, 0), "Maxwell"),
    ((3, 0), "Kepler"),
)


class Lack(NamedTuple):
    """Why a build does not run on a GPU as it should."""

    text: str
    advice: str
    grave: bool = True
    """False if it runs all the same, but starts slowly."""


def generation(capability: str) -> str:
    """Return the generation of a compute capability, as `Blackwell`."""
    number = major_minor(capability)
    return next((name for least, name in _GENERATIONS if number >= least), "older than Kepler")


def lack(build: Build, capability: str, driver: str | None = None) -> Lack | None:
    """Return what a build with CUDA lacks for GPUs of a compute capability, as `12.0`; None if
    nothing is known to be missing. `driver`: the newest CUDA that the driver runs."""
    number, cuda = major_minor(capability), major_minor(build.cuda or "")
    if cuda == (0, 0) or number == (0, 0):
        return None
    if cuda >= (13, 0) and number < _TURING:
        return _none(build, capability, _older(build))
    if build.name == "torch":
        return _torch(build, capability, driver)
    if build.name == "tensorflow":
        return _tensorflow(build, capability)
    return None


def _torch(build: Build, capability: str, driver: str | None) -> Lack | None:
    number, cuda = major_minor(capability), major_minor(build.cuda or "")
    version, _, local = build.version.partition("+")
    if local and not local.startswith("cu"):
        return None  # not PyTorch's own build
    if number >= _BLACKWELL:
        tag = "cu130" if driver is None or major_minor(driver) >= (13, 0) else "cu128"
        return _none(build, capability, torch_advice(tag)) if cuda < (12, 8) else None
    release = major_minor(version)
    first = _TURING if release >= (2, 11) else _VOLTA
    if cuda >= (12, 8) and release >= (2, 8) and number < first:
        return _none(build, capability, torch_advice("cu126"))
    return None


def _tensorflow(build: Build, capability: str) -> Lack | None:
    number = major_minor(capability)
    if number < _PASCAL and major_minor(build.version) >= (2, 17):
        return _none(build, capability, "pip install 'tensorflow[and-cuda]<2.16'")
    if number >= _BLACKWELL and major_minor(build.cuda or "") < (12, 8):
        text = f"has no kernels for {_named(capability)}, and has to compile them first"
        return Lack(text, "the first start takes long, and may fail: it is a build's limit", False)
    return None


def _older(build: Build) -> str:
    if build.name == "torch":
        return torch_advice("cu126")
    return "pip install -U 'jax[cuda12]'" if build.name == "jax" else "take a build for CUDA 12"


def _none(build: Build, capability: str, advice: str) -> Lack:
    text = (
        f"has no kernels for {_named(capability)} in builds for CUDA {build.cuda}: programs end"
        ' with "no kernel image is available"'
    )
    return Lack(text, advice)


def _named(capability: str) -> str:
    return f"{generation(capability)} (compute capability {capability})"
