"""What a user can set: defaults, then the file, then the environment, then flags.

The file is $XDG_CONFIG_HOME/gputop/config.toml (~/.config unless that is set), with the fields of
Settings; `gputop config` prints it with every value in force. The screen names what is wrong in it
and uses the rest.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import sys
import threading
from argparse import Namespace
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from gputop.deadline import within
from gputop.errors import UsageError
from gputop.files import Folder, UnsafeFileError, open_parent, reason_of, xdg_folder
from gputop.model.machine.text import counted, printable
from gputop.output import complain
from gputop.protocol.messages import MAX_INTERVAL, MIN_INTERVAL

if TYPE_CHECKING:
    from pathlib import Path

GlyphsSetting = Literal["auto", "unicode", "ascii"]
Theme = Literal["auto", "ansi-dark", "ansi-light", "dark", "light", "colorblind"]
NotifySetting = Literal["bell", "osc", "both", "none"]
THEMES: tuple[Theme, ...] = get_args(Theme)
"""auto is one of the next two, which use the terminal's own 16 colours."""
_Positive = Annotated[float, Meta(gt=0)]
_Interval = Annotated[float, Meta(ge=MIN_INTERVAL, le=MAX_INTERVAL)]
Pane = Literal["gpus", "processes", "history", "mapping"]
_MOST_BYTES = 1 << 20
_MOST_DOTS = 200
"""Dots of a line: tomllib takes the square of a name's parts, in time and in memory."""
_TIMEOUT = 2.0
"""Seconds in which a file must be read, on any file system."""
_SHORT_TIMEOUT = 0.5
"""Seconds in which it must be written: the screen does not respond meanwhile."""
_writing = threading.Lock()
PANES: tuple[Pane, ...] = get_args(Pane)


class ProcessSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the process table."""

    columns: Annotated[
        tuple[str, ...],
        Meta(
            description="ids of the columns, in their order; type?, idle_for?, rss?, state?: only "
            "while they tell something and have room; empty: the usual ones"
        ),
    ] = ()
    sort: Annotated[str, Meta(description="the column that processes are sorted by at first")] = (
        "gpu"
    )
    idle_after: Annotated[
        _Positive, Meta(description="seconds without work after which who holds memory is marked")
    ] = 600.0


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The values from which on something stands out."""

    moderate: Annotated[
        _Positive, Meta(description="share of use from which a bar has its second colour")
    ] = 0.1
    heavy: Annotated[_Positive, Meta(description="share of use from which it has its third")] = 0.8
    hot: Annotated[
        _Positive, Meta(description="degrees Celsius from which a temperature stands out")
    ] = 85.0
    full: Annotated[
        float, Meta(description="share of memory in use from which it stands out", gt=0, le=1)
    ] = 0.95


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings as the file has them; `gputop config` prints the descriptions."""

    interval: Annotated[_Interval, Meta(description="seconds between refreshes")] = 1.0
    unfocused: Annotated[
        _Interval, Meta(description="at least this many while the terminal is not focused")
    ] = 2.0
    theme: Annotated[
        Theme,
        Meta(description=f"{', '.join(THEMES)}; auto: ansi-light where the terminal is light"),
    ] = "auto"
    glyphs: Annotated[
        GlyphsSetting, Meta(description="auto, unicode or ascii: what bars are drawn with")
    ] = "auto"
    mouse: Annotated[
        bool, Meta(description="clicks and the wheel; false: the terminal has them to itself")
    ] = True
    user: Annotated[
        str | None,
        Meta(description="whose processes are shown at first, me for your own; unset: everybody's"),
    ] = None
    readonly: Annotated[
        bool, Meta(description="signal no process, not with gputop kill either")
    ] = False
    keep: Annotated[
        bool,
        Meta(description="columns, order and theme chosen on the screen are written here"),
    ] = True
    notify: Annotated[
        NotifySetting,
        Meta(
            description="bell, osc, both or none: how the terminal reports what gputop waited for"
        ),
    ] = "both"
    notify_command: Annotated[
        str,
        Meta(description="program to run then, without a shell; the message is its last argument"),
    ] = ""
    print_last: Annotated[bool, Meta(description="print the last snapshot as text on exit")] = False
    panes: Annotated[tuple[Pane, ...], Meta(description="the panes that are shown at first")] = (
        PANES
    )
    cache_agent: Annotated[
        bool,
        Meta(
            description="the agent that -H sends to a host without gputop stays in its "
            "~/.cache/gputop: the next login sends 2 kB instead of 105"
        ),
    ] = False
    processes: ProcessSettings = ProcessSettings()
    thresholds: Thresholds = Thresholds()
    keys: Annotated[
        dict[str, str], Meta(description='other keys by id, as "main.filter" = "slash,ctrl+f"')
    ] = {}
    groups: Annotated[
        dict[str, tuple[str, ...]],
        Meta(description='hosts that -H @NAME stands for, as lab = ["node[01-16]", "bob@gpu1"]'),
    ] = {}


class Session(Settings, frozen=True):
    """The settings, the user, and the file that keeps changes."""

    me: str | None = None
    """The user who runs gputop, as `user_named` returns it."""
    path: Path | None = None
    """The file that keeps what is chosen on the screen; None: no file."""
    mistakes: str = ""
    """What the screen says of settings that are wrong; empty if none is."""


VARIABLES = {
    "interval": "GPUTOP_INTERVAL",
    "theme": "GPUTOP_THEME",
    "glyphs": "GPUTOP_GLYPHS",
    "user": "GPUTOP_USER",
    "readonly": "GPUTOP_READONLY",
}
"""The environment variable of each setting that has one."""
_FLAGS = ("interval", "theme", "glyphs", "mouse", "user", "readonly", "print_last")
"""The settings that command-line options set; an option that is not given is None."""


class UnsafeSettingsError(UsageError):
    """A settings file that is not safe to read, so gputop does not use it."""


_LOOKS = (
    "interval", "unfocused", "theme", "user", "notify", "panes", "processes", "thresholds", "keys",
    "me",
)  # fmt: skip
"""The settings that do nothing outside of the screen."""


def without_actions(session: Session) -> Session:
    """Return the settings for a screen that others look at: it signals, runs and saves nothing. A
    setting that is not known to be harmless has its default."""
    looks = {name: getattr(session, name) for name in _LOOKS}
    return Session(**looks, glyphs="unicode", readonly=True, keep=False)


def settings_path() -> Path:
    """Return the path of the settings file, which need not exist."""
    from pathlib import Path  # slow to import, and most commands need no settings

    return Path(xdg_folder("XDG_CONFIG_HOME", "~/.config"), "gputop", "config.toml")


def read() -> Settings:
    """Return the settings of file and environment. UsageError if either is broken."""
    return from_environment(from_file(settings_path()), os.environ)


def file_believed(only: Collection[str]) -> Settings:
    """Read as `from_file` does, but leave out a file that is not safe, and say so."""
    try:
        return from_file(settings_path(), only)
    except UnsafeSettingsError as error:
        complain(f"{error}; the defaults are used")
        return Settings()


def usable_and_said(
    only: Collection[str] = (), without: str = "the defaults are used"
) -> tuple[Settings, list[str]]:
    """Read as `usable` does, and say what is wrong; `without`: what follows if nothing can be read,
    in words."""
    try:
        settings, mistakes = usable(settings_path(), only)
    except UsageError as error:
        complain(f"{error}; {without}")
        return Settings(), [str(error)]
    for mistake in mistakes:
        complain(f"{mistake}; it is ignored")
    return settings, mistakes


def from_file(path: Path, only: Collection[str] = ()) -> Settings:
    """Return what the file sets. UsageError names the first mistake and its place; `only`: as for
    `usable`."""
    settings, mistakes = usable(path, only)
    if mistakes:
        raise UsageError(mistakes[0])
    return settings


def usable(path: Path, only: Collection[str] = ()) -> tuple[Settings, list[str]]:
    """Return what the file sets, without what is wrong, and each mistake with its place. UsageError
    if the file cannot be read. `only`: settings and sections, if the others do not matter."""
    text = file_text(path)
    if text is None:
        return Settings(), []
    from gputop.model.metrics.process import COLUMN_CHOICES, COLUMNS  # not without a file

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise UsageError(f"{path} cannot be read: a line has more than {_MOST_DOTS} dots")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {printable(str(error), 200)}") from None
    if only:
        table = {name: value for name, value in table.items() if name in only}
    mistakes = []
    while (wrong := _mistake(table)) is not None:
        names, what = wrong
        mistakes.append(_wrong(path, text, names, what))
        _drop(table, names)
    settings = msgspec.convert(table, Settings)
    chosen, usual = settings.processes, ProcessSettings()
    for name, values, choices in (
        ("columns", chosen.columns, COLUMN_CHOICES), ("sort", (chosen.sort,), COLUMNS.keys())
    ):  # fmt: skip
        for value in values:
            if value not in choices:
                what = f"there is no column {value!r}: C on the screen lists them"
                mistakes.append(_wrong(path, text, ["processes", name], what))
    valid = [name for name in chosen.columns if name in COLUMN_CHOICES]
    columns = tuple({name.removesuffix("?"): name for name in valid}.values())
    sort = chosen.sort if chosen.sort in COLUMNS else usual.sort
    processes = msgspec.structs.replace(chosen, columns=columns, sort=sort)
    return msgspec.structs.replace(settings, processes=processes), mistakes


def _mistake(table: dict[str, Any]) -> tuple[list[str], str] | None:
    """Return the names that lead to a setting that is wrong, and why; None if none is."""
    if names := _unknown(table, Settings()):
        return names, "there is no such setting: see gputop config"
    try:
        msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        what, _, location = str(error).rpartition(" - at `$")  # the first may be a value's own
        return re.sub(r"\[[^]]*\]|`", "", location).split(".")[1:], what
    return None


def _unknown(table: dict[str, Any], usual: msgspec.Struct) -> list[str]:
    """Return the names that lead to the first key that is no setting; none if all are."""
    for name, value in table.items():
        if name not in usual.__struct_fields__:
            return [name]
        below = getattr(usual, name)
        is_section = isinstance(value, dict) and isinstance(below, msgspec.Struct)
        if is_section and (names := _unknown(value, below)):
            return [name, *names]
    return []


def _drop(table: dict[str, Any], names: list[str]) -> None:
    *sections, last = names
    for section in sections:
        table = table[section]
    del table[last]


def file_text(path: Path) -> str | None:
    """Return the text of the settings file, None if there is none. UsageError if unreadable."""
    try:
        return within(_TIMEOUT, lambda: _text(path))
    except UnsafeFileError as error:
        why = str(error).removeprefix(f"{path} ")
        raise UnsafeSettingsError(f"{path} is not read: {why}") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8
        raise UsageError(f"{path} cannot be read: {reason_of(error)}") from None


def _text(path: Path) -> str | None:
    try:
        folder, name = open_parent(str(path))
        with folder:
            return _text_in(folder, name)
    except FileNotFoundError:
        return None


def _text_in(folder: Folder, name: str) -> str | None:
    return None if folder.find(name) is None else folder.read(name, _MOST_BYTES).decode("utf-8")


def from_environment(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Return the settings with those of the environment on top. UsageError names the variable."""
    for field, variable in VARIABLES.items():
        text = environ.get(variable, "")
        if not text:
            continue
        value = str(text != "0").lower() if field == "readonly" else text
        try:
            read = msgspec.convert({field: value}, Settings, strict=False)
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at")[0]
            allowed = described(Settings, field)
            raise UsageError(f"{variable}={text!r}: {what}; it is: {allowed}") from None
        settings = msgspec.structs.replace(settings, **{field: getattr(read, field)})
    return settings


def described(settings: type[msgspec.Struct], name: str) -> str:
    notes = getattr(get_type_hints(settings, include_extras=True)[name], "__metadata__", ())
    return "".join(note.description or "" for note in notes)


def user_named(name: str | None, anywhere: bool = False, origin: str = "-u") -> str | None:
    """Return a user as processes name it; `me` is who runs gputop, a number if it has no name.

    UsageError for a user that this machine does not know, unless the user may be on another one
    (`anywhere`); the error begins with `origin`, where the name was given.
    """
    if name is None:
        return None
    if not name.strip():
        raise UsageError(f"{origin} is empty: give a name of `getent passwd`, or me")
    if anywhere and name != "me":
        return name
    try:
        return (pwd.getpwuid(os.getuid()) if name == "me" else pwd.getpwnam(name)).pw_name
    except (KeyError, ValueError):
        if name == "me":
            return str(os.getuid())
        if name.isascii() and name.isdecimal():
            with suppress(KeyError, OverflowError):
                return pwd.getpwuid(int(name)).pw_name
            return str(int(name))
        shown = printable(name, 80)
        raise UsageError(
            f"{origin} {shown}: no such user here; give a name of `getent passwd`, or me"
        ) from None


def keep_settings(path: Path, chosen: Mapping[str, Any]) -> None:
    """Write what was chosen, as `{"processes.sort": "age"}`, and leave the rest of the file alone.

    If the file is a link, the file that it leads to is written. OSError, ValueError; TimeoutError
    if the disk does not answer.
    """
    import tomlkit  # noqa: F401 - slow to import, so not within the time limit of the write

    def write() -> None:
        if not _writing.acquire(blocking=False):
            raise TimeoutError("the last change is still being saved")
        try:
            _keep(path, chosen)
        finally:
            _writing.release()

    try:
        within(_SHORT_TIMEOUT, write)
    except RuntimeError as error:  # no thread can be started, for now
        raise OSError(errno.EAGAIN, str(error)) from None


def _keep(path: Path, chosen: Mapping[str, Any]) -> None:
    import tomlkit

    folder, name = open_parent(str(path), make=True)
    with folder:
        folder.check_ours()
        document = tomlkit.parse(_text_in(folder, name) or "")
        for dotted, value in chosen.items():
            section, _, key = dotted.rpartition(".")
            table = document.setdefault(section, tomlkit.table()) if section else document
            table[key] = value
        folder.replace(name, tomlkit.dumps(document).encode())


def _wrong(path: Path, text: str, names: list[str], what: str) -> str:
    line = _line_of(text, names)
    where = f"{path}, line {line}" if line else str(path)
    return f"{where}: {printable('.'.join(names), 100)}: {printable(what, 200)}"


def _line_of(text: str, names: list[str]) -> int | None:
    """Return the line of a setting, or of its section; None if it is written in another way."""
    section, header_line = "", None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([^\]]*?)\s*\]", line)
        if header:
            section = header[1]
        key = re.match(r"""\s*["']?([^\s="']+)["']?\s*=""", line)
        here = [*filter(None, [section]), *([key[1]] if key else [])]
        if ".".join(here) == ".".join(names):
            return number
        if header and here == names[:1]:
            header_line = number
    return header_line


def session_of(options: Namespace) -> Session:
    """Return the settings: flags over environment over file over defaults. UsageError.

    What is wrong in the file is reported and not used, and the file is not written then.
    """
    settings, mistakes = usable_and_said()
    settings = from_environment(settings, os.environ)
    flags = {name: getattr(options, name) for name in _FLAGS}
    given = {name: value for name, value in flags.items() if value is not None}
    fields = msgspec.structs.asdict(settings) | given
    elsewhere = options.demo, options.hosts, options.prometheus, options.command == "replay"
    try:
        fields["user"] = user_named(fields["user"], any(elsewhere), "user of the settings:")
    except UsageError as error:  # the command line has checked -u already
        complain(f"{error}; everybody's processes are shown")
        fields["user"] = None
    path = settings_path() if settings.keep and not mistakes and not options.demo else None
    said = f"{counted(len(mistakes), 'wrong setting')}: config --check" if mistakes else ""
    return Session(**fields, me=user_named("me"), path=path, mistakes=said)
