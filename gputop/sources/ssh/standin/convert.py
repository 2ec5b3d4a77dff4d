"""Converts JSON values to given types, strictly: "1" is no number, 1.5 no integer."""

from __future__ import annotations

import math
import re
import sys
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

from gputop.sources.ssh.standin.structs import Meta, MsgspecError, Struct

_SURROGATE = re.compile("[\ud800-\udfff]")


def convert(value: Any, type_: Any) -> Any:
    """Return a value that Python's json decoded, as a type. MsgspecError if it does not fit."""
    if type_ is Any:
        return value
    origin = get_origin(type_) or type_
    if origin in _CONVERTERS:
        return _CONVERTERS[origin](value, get_args(type_))
    if isinstance(origin, type) and issubclass(origin, Struct):
        return _struct(value, origin)
    return _scalar(value, origin)


def _checked(kind: Any, value: Any) -> Any:
    return value if isinstance(value, kind) else _fail(kind, value)


def _fail(type_: Any, value: Any) -> NoReturn:
    raise MsgspecError(f"Expected {type_}, got {type(value).__name__}")


def _scalar(value: Any, type_: Any) -> Any:
    if type_ is float and type(value) is int and abs(value) <= sys.float_info.max:
        value = float(value)
    if type(value) is not type_ and not (value is None and type_ in (None, type(None))):
        _fail(type_, value)
    if type_ is float and not math.isfinite(value):
        raise MsgspecError("Number out of range")
    if type_ is str and _SURROGATE.search(value):
        raise MsgspecError("Invalid unicode surrogate")
    return value


def _annotated(value: Any, arguments: tuple[Any, ...]) -> Any:
    value = convert(value, arguments[0])
    for meta in arguments[1:]:
        if isinstance(meta, Meta) and not meta.ge <= value <= meta.le:
            raise MsgspecError(f"Expected a number from {meta.ge} to {meta.le}")
    return value


def _union(value: Any, choices: tuple[Any, ...]) -> Any:
    """Return the value as the first type that it fits; at most one Struct has its tag."""
    for choice in choices:
        try:
            return convert(value, choice)
        except MsgspecError:
            continue
    _fail(choices, value)


def _list(value: Any, arguments: tuple[Any, ...]) -> list[Any]:
    return [convert(item, arguments[0]) for item in _checked(list, value)]


def _tuple(value: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if arguments[-1] is ...:
        return tuple(_list(value, arguments))
    _checked(list, value)
    if len(value) != len(arguments):
        raise MsgspecError(f"Expected an array of {len(arguments)}, got {len(value)}")
    return tuple(map(convert, value, arguments))


def _dict(value: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    members = _checked(dict, value).items()
    return {_scalar(key, str): convert(inner, arguments[1]) for key, inner in members}


def _struct(value: Any, type_: Any) -> Any:
    config, hints = type_.__struct_config__, _hints(type_)
    if config.array_like:
        value = dict(zip(type_.__struct_fields__, _checked(list, value), strict=False))
    _checked(dict, value)
    if config.tag_field is not None and value.get(config.tag_field) != config.tag:
        raise MsgspecError(f"Invalid value for {config.tag_field}")
    named = {name: convert(value[name], hints[name]) for name in hints if name in value}
    try:
        return type_(**named)
    except TypeError as error:
        raise MsgspecError(str(error)) from None


@lru_cache(maxsize=256)
def _hints(type_: Any) -> Mapping[str, Any]:
    hints = get_type_hints(type_, include_extras=True)
    return {name: hints[name] for name in type_.__struct_fields__}


_CONVERTERS: Mapping[Any, Callable[[Any, tuple[Any, ...]], Any]] = {
    Annotated: _annotated,
    Union: _union,
    getattr(types, "UnionType", Union): _union,  # of int | str, not before Python 3.10
    list: _list,
    tuple: _tuple,
    dict: _dict,
}
