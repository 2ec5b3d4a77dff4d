"""What a user can set: defaults, then the file, then the environment, then flags.

The file is $XDG_CONFIG_HOME/gputop/config.toml (~/.config unless that is set):

    [processes]
    columns = ["gpu", "cuda", "pid", "user", "gpu_memory", "idle_for", "command"]
    sort = "gpu_memory"
    idle_after = 600    # seconds
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gputop.errors import UsageError

THEMES = ("ansi-dark", "ansi-light", "dark", "light")
"""The first two are drawn in the terminal's own 16 colours."""

GlyphChoice = Literal["auto", "unicode", "ascii"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the screen."""

    interval: float = 1.0
    """Seconds between two frames."""
    theme: str = "ansi-dark"
    glyphs: GlyphChoice = "auto"
    user: str | None = None
    """Whose processes are shown at first; None for everybody's."""
    me: str | None = None
    """Whose the own processes are."""
    readonly: bool = False
    """Without any way to signal a process."""
    idle_after: float = 600.0
    """Seconds without work after which who holds memory is marked."""
    columns: tuple[str, ...] = ()
    """Ids of the columns of the process table; empty: the usual ones."""
    sort: str = "gpu_memory"
    """The column that processes are sorted by at first."""
    path: Path | None = None
    """Where columns and order are kept."""


def wants_readonly(environ: Mapping[str, str]) -> bool:
    """Whether GPUTOP_READONLY is set to anything but 0."""
    return environ.get("GPUTOP_READONLY", "") not in ("", "0")


def settings_path(environ: Mapping[str, str]) -> Path:
    """The file of a user, which need not exist."""
    config = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):  # as the XDG specification wants it
        config = os.path.expanduser("~/.config")
    return Path(config, "gputop", "config.toml")


def read_settings(path: Path, columns: Collection[str]) -> dict[str, Any]:
    """The fields of Settings that the file sets; UsageError with what is wrong with it.

    `columns` are the ids that there are.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("processes", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # TOML and UTF-8 errors are ValueErrors
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: processes is no table: write [processes]")
    return {name: _checked(path, name, value, columns) for name, value in table.items()}


def _checked(path: Path, name: str, value: Any, columns: Collection[str]) -> Any:
    if name == "idle_after" and isinstance(value, (int, float)) and value > 0:
        return float(value)
    if name == "sort" and isinstance(value, str) and value in columns:
        return value
    if name == "columns" and isinstance(value, list):
        wrong = [one for one in value if one not in columns]
        if not wrong:
            return tuple(dict.fromkeys(value))
        raise UsageError(f"{path}: there is no column {wrong[0]!r}: C on the screen lists them")
    raise UsageError(f"{path}: {name} = {value!r} is nothing that can be set")


def keep_settings(path: Path, columns: tuple[str, ...], sort: str) -> None:
    """Write columns (empty: not chosen yet) and order into the file, the rest of it as it is.

    OSError, ValueError.
    """
    import tomlkit

    text = path.read_text(encoding="utf-8") if path.exists() else ""
    document = tomlkit.parse(text)
    table = document.setdefault("processes", tomlkit.table())
    table["sort"] = sort
    if columns:
        table["columns"] = list(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(tomlkit.dumps(document), encoding="utf-8")
    aside.replace(path)
