"""What a user can set: defaults, then the file, then the environment, then flags.

The file is $XDG_CONFIG_HOME/gputop/config.toml (~/.config unless that is set), laid out as Settings
is; `gputop config` prints it with all that holds. A broken file is named with the line, and the
defaults are used.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from gputop.allowed import MAX_INTERVAL, MIN_INTERVAL, THEMES
from gputop.errors import UsageError

Glyphs = Literal["auto", "unicode", "ascii"]
Theme = Literal["ansi-dark", "ansi-light", "dark", "light", "colorblind"]
Pane = Literal["gpus", "processes", "mapping"]
PANES: tuple[Pane, ...] = ("gpus", "processes", "mapping")


class ProcessSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the process table."""

    columns: Annotated[
        tuple[str, ...],
        Meta(description="ids of the columns, in their order; empty: the usual ones"),
    ] = ()
    sort: Annotated[str, Meta(description="the column that processes are sorted by at first")] = (
        "gpu_memory"
    )
    idle_after: Annotated[
        float, Meta(description="seconds without work after which who holds memory is marked", gt=0)
    ] = 600.0


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From where on a value stands out."""

    hot: Annotated[float, Meta(description="degrees Celsius of a GPU", gt=0)] = 85.0
    full: Annotated[float, Meta(description="share of a GPU's memory in use", gt=0, le=1)] = 0.95


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As in the file; the descriptions are what `gputop config` says."""

    interval: Annotated[
        float, Meta(description="seconds between two looks", ge=MIN_INTERVAL, le=MAX_INTERVAL)
    ] = 1.0
    unfocused: Annotated[
        float,
        Meta(
            description="the same at least, while the terminal is not focused",
            ge=MIN_INTERVAL,
            le=MAX_INTERVAL,
        ),
    ] = 2.0
    theme: Annotated[Theme, Meta(description=", ".join(THEMES))] = "ansi-dark"
    glyphs: Annotated[
        Glyphs, Meta(description="auto, unicode or ascii: what bars are drawn with")
    ] = "auto"
    user: Annotated[
        str | None,
        Meta(description="whose processes are shown at first, me for your own; unset: everybody's"),
    ] = None
    readonly: Annotated[
        bool, Meta(description="no way to signal a process, also for gputop kill")
    ] = False
    keep: Annotated[
        bool,
        Meta(description="columns, order, panes and theme chosen on the screen are written here"),
    ] = True
    print_last: Annotated[
        bool, Meta(description="the last look is printed as text when the screen is left")
    ] = False
    panes: Annotated[tuple[Pane, ...], Meta(description="the panes that are shown at first")] = (
        PANES
    )
    processes: ProcessSettings = ProcessSettings()
    thresholds: Thresholds = Thresholds()
    keys: Annotated[
        dict[str, str], Meta(description='other keys by id, as "main.filter" = "slash,ctrl+f"')
    ] = {}


class Session(Settings, frozen=True):
    """Settings, and who uses them where."""

    me: str | None = None
    """Whose the own processes are."""
    path: Path | None = None
    """Where what is chosen is kept; None: nowhere."""


VARIABLES = {
    "interval": "GPUTOP_INTERVAL",
    "theme": "GPUTOP_THEME",
    "glyphs": "GPUTOP_GLYPHS",
    "user": "GPUTOP_USER",
    "readonly": "GPUTOP_READONLY",
}
"""The variables of the environment that set something."""


def settings_path(environ: Mapping[str, str]) -> Path:
    """The file of a user, which need not exist."""
    config = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):  # as the XDG specification wants it
        config = os.path.expanduser("~/.config")
    return Path(config, "gputop", "config.toml")


def read(environ: Mapping[str, str], columns: Collection[str]) -> Settings:
    """File and environment. UsageError for what is broken in either."""
    return from_environment(from_file(settings_path(environ), columns), environ)


def from_file(path: Path, columns: Collection[str]) -> Settings:
    """What the file sets; UsageError with the place and what is wrong there.

    `columns` are the ids that there are.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = _toml()(text)
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError) as error:  # TOML and UTF-8 errors are ValueErrors
        raise UsageError(f"{path} cannot be read: {error}") from None
    try:
        settings = msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        names = re.sub(r"\[[^]]*\]|`", "", place).split(".")[1:]
        unknown = re.fullmatch("Object contains unknown field `(.*)`", what)
        if unknown:
            names, what = [*names, unknown[1]], "there is no such setting: see gputop config"
        raise _wrong(path, text, names, what) from None
    chosen = settings.processes
    for name, values in (("columns", chosen.columns), ("sort", (chosen.sort,))):
        for value in values:
            if value not in columns:
                what = f"there is no column {value!r}: C on the screen lists them"
                raise _wrong(path, text, ["processes", name], what)
    once = msgspec.structs.replace(chosen, columns=tuple(dict.fromkeys(chosen.columns)))
    return msgspec.structs.replace(settings, processes=once)


def from_environment(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """With what the environment sets; UsageError names the variable."""
    for field, variable in VARIABLES.items():
        text = environ.get(variable, "")
        if not text:
            continue
        value = str(text != "0").lower() if field == "readonly" else text
        try:
            read = msgspec.convert({field: value}, Settings, strict=False)
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at")[0]
            meant = described(Settings, field)
            raise UsageError(f"{variable}={text!r}: {what}; it is: {meant}") from None
        settings = msgspec.structs.replace(settings, **{field: getattr(read, field)})
    return settings


def described(settings: type[msgspec.Struct], name: str) -> str:
    """What a setting is."""
    notes = getattr(get_type_hints(settings, include_extras=True)[name], "__metadata__", ())
    return "".join(note.description for note in notes)


def user_named(name: str | None, anywhere: bool = False, origin: str = "-u") -> str | None:
    """A user as processes have it; `me` is who runs gputop, by number where that has no name.

    UsageError for one that this machine does not know, unless it is of another (`anywhere`); it
    begins with where the name was given.
    """
    if name is None or name.isdecimal() or (anywhere and name != "me"):
        return name
    try:
        return (pwd.getpwuid(os.getuid()) if name == "me" else pwd.getpwnam(name)).pw_name
    except (KeyError, ValueError):
        if name == "me":
            return str(os.getuid())
        shown = "".join(one if one.isprintable() else "\ufffd" for one in name[:80])
        raise UsageError(
            f"{origin} {shown}: no such user here; give a name of `getent passwd`, or me"
        ) from None


def keep_settings(path: Path, chosen: Mapping[str, Any]) -> None:
    """Write what was chosen into the file, the rest of it as it is: `{"processes.sort": "age"}`.

    OSError, ValueError.
    """
    import tomlkit

    text = path.read_text(encoding="utf-8") if path.exists() else ""
    document = tomlkit.parse(text)
    for place, value in chosen.items():
        section, _, name = place.rpartition(".")
        table = document.setdefault(section, tomlkit.table()) if section else document
        table[name] = list(value) if isinstance(value, tuple) else value
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(tomlkit.dumps(document), encoding="utf-8")
    aside.replace(path)


def _toml() -> Callable[[str], dict[str, Any]]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads


def _wrong(path: Path, text: str, names: list[str], what: str) -> UsageError:
    line = _line_of(text, names)
    place = f"{path}, line {line}" if line else str(path)
    return UsageError(f"{place}: {'.'.join(names)}: {what}")


def _line_of(text: str, names: list[str]) -> int | None:
    """Where a setting stands, or its section; None if it is written in another manner."""
    section, found = "", None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([^\]]*?)\s*\]", line)
        if header:
            section = header[1]
        key = re.match(r"""\s*["']?([^\s="']+)["']?\s*=""", line)
        here = [*filter(None, [section]), *([key[1]] if key else [])]
        if ".".join(here) == ".".join(names):
            return number
        if header and here == names[:1]:
            found = number
    return found
