"""`gputop config`: the settings that hold, where each comes from, and what is wrong with them.

Exit status: 0 all is well, 2 something in the file or the environment is wrong.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from gputop.commands import HELP
from gputop.commands.output import write
from gputop.errors import UsageError
from gputop.model.process_metrics import COLUMNS
from gputop.settings import (
    VARIABLES,
    Settings,
    described,
    from_environment,
    from_file,
    settings_path,
)

_EPILOG = """\
examples:
  gputop config                    what holds, as a file with comments
  gputop config --path             where the file is, or would be
  gputop config --check            is the file right? keys of [keys] as well
  gputop config --default          the defaults, to begin a file with

exit status: 0 all is well, 2 something in the file or the environment is wrong
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command; `run` takes what it parses."""
    parser = commands.add_parser(
        "config",
        help=HELP["config"],
        description="Print the settings that hold: flags over environment over file over defaults.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--path", action="store_true", help="print where the file is, or would be")
    form.add_argument("--check", action="store_true", help="say what is wrong, and nothing else")
    form.add_argument("--default", action="store_true", help="print the defaults")


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises GputopErrors."""
    path = settings_path(os.environ)
    if options.path:
        return _say(f"{path}\n")
    if options.default:
        return _say(document(Settings(), {}, f"{path}: the defaults"))
    in_file = from_file(path, COLUMNS)
    settings = from_environment(in_file, os.environ)
    if options.check:
        _check_keys(path, settings)
        return _say(f"{path}: {'all is well' if path.exists() else 'no such file; the defaults'}\n")
    origins = {**_set_in(path), **_set_by(os.environ)}
    state = "" if path.exists() else " (there is no such file)"
    return _say(document(settings, origins, f"{path}{state}"))


def _check_keys(path: Path, settings: Settings) -> None:
    """The only command that needs the screen: it knows what has a key."""
    if not settings.keys:
        return
    from gputop.tui.commands import binding_ids

    known = binding_ids()
    for name in settings.keys:
        if name not in known:
            others = " ".join(sorted(known))
            raise UsageError(f"{path}: keys.{name}: nothing has that name; there are: {others}")


def _set_in(path: Path) -> dict[str, str]:
    """The settings that the file has; it was read before."""
    table = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap() if path.exists() else {}
    names = [
        f"{name}.{inner}" if isinstance(value, dict) and name != "keys" else name
        for name, value in table.items()
        for inner in (value if isinstance(value, dict) and name != "keys" else [""])
    ]
    return dict.fromkeys(names, "file")


def _set_by(environ: os._Environ[str]) -> dict[str, str]:
    return {name: variable for name, variable in VARIABLES.items() if environ.get(variable)}


def document(settings: Settings, origins: dict[str, str], title: str) -> str:
    """Settings as a file that says what each is, and where it comes from if `origins` know."""
    document = tomlkit.document()
    document.add(tomlkit.comment(title))
    for name in Settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, msgspec.Struct):
            table = tomlkit.table()
            for inner in value.__struct_fields__:
                words = _words(described(type(value), inner), origins.get(f"{name}.{inner}"))
                _add(table, words, inner, getattr(value, inner))
            document.add(name, table)
        elif isinstance(value, dict):
            table = tomlkit.table()
            table.add(tomlkit.comment(_words(described(Settings, name), origins.get(name))))
            table.update(value)
            document.add(name, table)
        else:
            _add(document, _words(described(Settings, name), origins.get(name)), name, value)
    return tomlkit.dumps(document).rstrip() + "\n"


def _words(description: str, origin: str | None) -> str:
    return f"{description} [{origin}]" if origin else description


def _add(table: Any, words: str, name: str, value: Any) -> None:
    """A setting with its description; one that is not set stands there as a comment."""
    table.add(tomlkit.comment(words))
    if value is None:
        table.add(tomlkit.comment(f'{name} = ""'))
    else:
        table.add(name, list(value) if isinstance(value, tuple) else value)


def _say(text: str) -> int:
    write(text)
    return 0
