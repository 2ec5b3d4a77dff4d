"""msgspec.json in plain Python, with Python's own json inside."""

from __future__ import annotations

import json
import math
from typing import Any, Generic, TypeVar

from gputop.sources.ssh.standin.convert import convert
from gputop.sources.ssh.standin.structs import MsgspecError, Struct, asdict, astuple, is_default

T = TypeVar("T")


class Decoder(Generic[T]):
    def __init__(self, type: Any = Any) -> None:  # noqa: A002 - msgspec's name
        self._type = type

    def decode(self, data: bytes | str) -> T:
        decoded: T = decode(data, type=self._type)
        return decoded


def encode(value: Any) -> bytes:
    """Return a value as JSON; TypeError if it has no form in JSON. NaN and infinity become null."""
    try:
        text = _dumps(value)
    except ValueError:
        text = _dumps(_finite(value))
    return text.encode()


class Encoder:
    encode = staticmethod(encode)


def decode(data: bytes | str, *, type: Any = Any) -> Any:  # noqa: A002 - msgspec's name
    """Return the value in JSON. MsgspecError if it is no JSON, or of another type."""
    try:
        text = data if isinstance(data, str) else data.decode()
        value = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise MsgspecError(f"JSON is malformed: {error}") from None
    return convert(value, type)


def _dumps(value: Any) -> str:
    return json.dumps(
        value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )


def _plain(value: Any) -> Any:
    """Return an unknown value in types that json knows; json asks for those inside by itself."""
    if not isinstance(value, Struct):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    config = value.__struct_config__
    if config.array_like:
        return astuple(value)
    members = asdict(value)
    if config.omit_defaults:
        members = {name: v for name, v in members.items() if not is_default(value, name, v)}
    return members if config.tag_field is None else {config.tag_field: config.tag, **members}


def _finite(value: Any) -> Any:
    """Return a value with null in place of NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return _finite(_plain(value)) if isinstance(value, Struct) else value


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")
