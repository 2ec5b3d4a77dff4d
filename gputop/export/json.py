"""`gputop --json`: a frame as one line of JSON; see model/machine/frame.py and the manual."""

from __future__ import annotations

import re

from msgspec.structs import replace

from gputop.model.health.free import not_free
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.protocol.codec import encode

_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")


class JsonGpu(Gpu, frozen=True, kw_only=True):
    """A GPU, and whether gputop counts it as free."""

    free: bool | None
    """Whether it is free by `model.health.free`; None if that cannot be found out."""
    not_free: str | None
    """Why it is not free, or why that is not known; None if it is free."""


def frame_json(frame: Frame) -> str:
    """Return a line without its break; what a terminal would act on, or hide, becomes \\uXXXX."""
    gpus = tuple(_judged(frame, gpu) for gpu in frame.gpus)
    text = encode(replace(frame, gpus=gpus)).decode()
    if text.isascii() and "\x7f" not in text:
        return text
    return _NOT_PLAIN.sub(_escaped, text)  # such characters are only inside strings


def _judged(frame: Frame, gpu: Gpu) -> JsonGpu:
    fields = {name: getattr(gpu, name) for name in gpu.__struct_fields__}
    objection = not_free(frame, gpu)
    if objection is None:
        return JsonGpu(**fields, free=True, not_free=None)
    return JsonGpu(**fields, free=False if objection.is_sure else None, not_free=objection.text)


def _escaped(match: re.Match[str]) -> str:
    """Escape DEL, C1, bidi, zero-width, private and unassigned characters; the value is kept."""
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[k]:02x}{units[k + 1]:02x}" for k in range(0, len(units), 2))
