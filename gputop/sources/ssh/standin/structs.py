"""msgspec's Struct in plain Python: fields are what is annotated, values are in `__dict__`."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, TypeVar


class MsgspecError(Exception):
    """The text is not JSON, or the value does not have the type that was asked for."""


class Meta(NamedTuple):
    """The least and the largest value of an annotated number."""

    ge: float
    le: float


class StructConfig(NamedTuple):
    """The options of a Struct that have an effect here."""

    tag_field: str | None = None
    tag: str | None = None
    omit_defaults: bool = False
    array_like: bool = False


class Struct:
    """Values under names. The options of a class, as `tag="ping"`, are in `__struct_config__`.

    Types are not checked here, nor what may be changed, and wrong names of arguments only raise
    TypeError: msgspec checks all of it where gputop is tested.
    """

    __struct_fields__: ClassVar[tuple[str, ...]] = ()
    __struct_config__: ClassVar[StructConfig] = StructConfig()
    _defaults: ClassVar[dict[str, Any]] = {}
    _fresh: ClassVar[tuple[str, ...]] = ()
    """Fields whose default is a list or a dict: each instance gets its own copy."""

    def __init_subclass__(cls, **options: Any) -> None:
        names = [name for name in cls.__annotations__ if name not in cls.__struct_fields__]
        own = {name: vars(cls)[name] for name in cls.__annotations__ if name in vars(cls)}
        config = {name: options[name] for name in StructConfig._fields if name in options}
        cls.__struct_fields__ += tuple(names)
        cls.__struct_config__ = cls.__struct_config__._replace(**config)
        cls._defaults = {**cls._defaults, **own}
        cls._fresh = tuple(n for n, value in cls._defaults.items() if type(value) in (list, dict))

    def __init__(self, *values: Any, **named: Any) -> None:
        state = self.__dict__
        state.update(self._defaults)
        for name in self._fresh:
            state[name] = state[name].copy()
        state.update(zip(self.__struct_fields__, values, strict=False))
        state.update(named)
        _check(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or type(self) is not type(other):
            return NotImplemented
        return astuple(self) == astuple(other)

    def __hash__(self) -> int:
        return hash(astuple(self))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in asdict(self).items())
        return f"{type(self).__name__}({values})"


S = TypeVar("S", bound=Struct)


def _check(struct: Struct) -> None:
    """Raise TypeError for a field that is missing, or one too many."""
    if len(struct.__dict__) != len(struct.__struct_fields__):
        odd = struct.__dict__.keys() ^ set(struct.__struct_fields__)
        raise TypeError(f"{type(struct).__name__}: missing or unknown: {', '.join(sorted(odd))}")


def astuple(struct: Struct) -> tuple[Any, ...]:
    return tuple(map(struct.__dict__.__getitem__, struct.__struct_fields__))


def asdict(struct: Struct) -> dict[str, Any]:
    """Return the values by name; those of a Struct inside stay in it."""
    return dict(zip(struct.__struct_fields__, astuple(struct), strict=True))


def replace(struct: S, /, **changes: Any) -> S:
    """Return a copy of a Struct with some values changed."""
    new = object.__new__(type(struct))
    new.__dict__.update(asdict(struct), **changes)
    _check(new)
    return new


def is_default(struct: Struct, name: str, value: Any) -> bool:
    """Return whether a value is a field's default by msgspec's rule: the same object, or as
    empty."""
    default = struct._defaults.get(name, struct)
    if name in struct._fresh:
        return type(value) is type(default) and not value
    return value is default
