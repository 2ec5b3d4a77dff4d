"""Which GPU a user names: by its index, or by the beginning of its UUID."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.machine.gpu import Gpu

_PREFIX = "gpu-"


def is_named(gpu: Gpu, word: str) -> bool:
    """Return whether a word is the index of a GPU, or a beginning of its UUID in any case."""
    if word.isascii() and word.isdecimal():
        return str(gpu.index) == (word.lstrip("0") or "0")
    return bool(word) and (gpu.uuid or "").casefold().startswith(word.casefold())


def gpus_named(gpus: Iterable[Gpu], word: str) -> list[Gpu]:
    """Return the GPUs that a word names; none for what every UUID begins with."""
    if _PREFIX.startswith(word.casefold()):
        return []
    return [gpu for gpu in gpus if is_named(gpu, word)]
