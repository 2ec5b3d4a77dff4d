"""The variables of a shell while a text is followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

from gputop.model.cuda.pasted.outcome import CONCERNED, PastedValue, Unknown

DEPENDS = Unknown("it depends on a condition")
_AMBIGUOUS = object()


class Variables:
    """A shell's names and values, which of them a program inherits, and the shell's state."""

    def __init__(self, inherited: Mapping[str, str]) -> None:
        self.values: dict[str, PastedValue] = {name: inherited.get(name) for name in CONCERNED}
        self.exported = {name: True for name in CONCERNED if name in inherited}
        """What programs inherit, and whether that is certain."""
        self.gpus: PastedValue = None
        """The GPUs of the container that the shell is in; None: it is in none."""
        self.functions: dict[str, Any] = {}
        self.export_all = False
        self.ended = False
        """Whether nothing that follows is run."""
        self.status: bool | None = True
        """Whether the last command succeeded; None: not known. A program is assumed to."""
        self.certain = True
        """Whether the status is more than an assumption."""

    def copy(self) -> Variables:
        """Return what a subshell starts with."""
        other = Variables({})
        other.become(self)
        return other

    def become(self, other: Variables) -> None:
        self.__dict__.update({name: copy(value) for name, value in vars(other).items()})

    def get(self, name: str) -> PastedValue:
        """Look a variable up; one that the text does not set has the environment's value."""
        return self.values.get(name, Unknown(f"the text does not tell the value of ${name}"))

    def set(self, name: str, value: PastedValue, *, export: bool = False) -> None:
        self.values[name] = value
        if value is None:
            self.keep(name)
        elif export or self.export_all:
            self.export(name)

    def export(self, name: str) -> None:
        """Let programs inherit a variable from now on."""
        self.exported[name] = True

    def keep(self, name: str) -> None:
        """Let no program inherit a variable from now on."""
        self.exported.pop(name, None)

    def restore(self, name: str, before: Variables) -> None:
        self.keep(name)
        self.values.pop(name, None)
        if name in before.values:
            self.values[name] = before.values[name]
        if name in before.exported:
            self.exported[name] = before.exported[name]

    def inherited(self, name: str) -> PastedValue:
        """Return the value of a variable in a program that is started now."""
        if name not in self.exported:
            return None
        value = self.get(name)
        return value if self.exported[name] or value is None else DEPENDS

    def all_inherited(self) -> dict[str, PastedValue]:
        """Return the inherited value of each variable that is followed."""
        return {name: self.inherited(name) for name in CONCERNED}

    def child(self) -> Variables:
        """Return the variables of a shell that is started as a program."""
        child = self.copy()
        inherited = {name: self.get(name) for name in self.values if name in self.exported}
        child.values = {**dict.fromkeys(CONCERNED), **inherited}
        child.functions, child.export_all = {}, False
        return child

    def clear(self) -> None:
        """Remove all, as `env -i` does."""
        self.values = dict.fromkeys((*self.values, *CONCERNED))
        self.exported = {}

    def exits(self, status: bool | None, *, certain: bool = True) -> None:
        self.status, self.certain = status, certain

    def join(self, other: Variables) -> None:
        """Keep what holds in both cases, if either may have happened."""
        if other.ended or self.ended:
            if self.ended:
                self.become(other)
            return
        for name in {*self.values, *other.values}:
            if self.get(name) != other.get(name):
                self.values[name] = DEPENDS
        for name in {*self.exported, *other.exported}:
            both = self.exported.get(name, False) and other.exported.get(name, False)
            self.exported[name] = both
        for name in {*self.functions, *other.functions}:
            if self.functions.get(name) is not other.functions.get(name):
                self.functions[name] = _AMBIGUOUS
        if self.gpus != other.gpus:
            self.gpus = DEPENDS
        self.export_all |= other.export_all
        self.status = self.status if self.status == other.status else None
        self.certain &= other.certain

    def same(self, other: Variables) -> bool:
        """Return whether both have the same values: a round of a loop changed nothing."""
        return (self.values, self.exported) == (other.values, other.exported)

    def forget(self, names: Iterable[str], why: str) -> None:
        """Treat some variables as not known from now on, for the reason `why`."""
        for name in names:
            self.values[name] = Unknown(why)
