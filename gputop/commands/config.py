"""`gputop config`: prints the settings, or checks them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from gputop.errors import UsageError
from gputop.output import complain, write
from gputop.settings import (
    VARIABLES,
    Settings,
    described,
    file_text,
    from_environment,
    read,
    settings_path,
    usable,
)
from gputop.sources.ssh.names import JOB, parse_hosts

DESCRIPTION = "Print the settings in force: flags go over environment, file and defaults."
EPILOG = """\
examples:
  gputop config                    the settings in force, with comments
  gputop config --path             where the file is, or would be
  gputop config --check            check the file, the names of [keys] and [groups] included
  gputop config --default          the defaults, to start a file from

exit status: 0 all is well, 2 something in the file or the environment is wrong
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--path", action="store_true", help="print where the file is, or would be")
    form.add_argument("--check", action="store_true", help="only say what is wrong")
    form.add_argument("--default", action="store_true", help="print the defaults")


def run(options: argparse.Namespace) -> int:
    write(_text(options, settings_path()))
    return 0


def _text(options: argparse.Namespace, path: Path) -> str:
    if options.path:
        return f"{path}\n"
    if options.default:
        return document(Settings(), f"{path}: the defaults", {}, {})
    if options.check:
        return _check(path)
    settings, text = read(), file_text(path)
    state = "" if text is not None else " (no such file)"
    in_file = tomlkit.parse(text or "").unwrap()
    return document(settings, f"{path}{state}", in_file, os.environ)


def _check(path: Path) -> str:
    """Return that all is well. UsageError for the last mistake; the others are printed."""
    settings, mistakes = usable(path)
    mistakes += [*_wrong_keys(path, settings), *_wrong_groups(path, settings)]
    if mistakes:
        for mistake in mistakes[:-1]:
            complain(mistake)
        raise UsageError(mistakes[-1])
    from_environment(settings, os.environ)
    return f"{path}: {'no mistakes' if path.exists() else 'no such file: the defaults are used'}\n"


def _wrong_keys(path: Path, settings: Settings) -> Iterator[str]:
    """Check the names of keys, which only the screen knows."""
    if not settings.keys:
        return
    from gputop.tui.manual import ManualApp
    from gputop.tui.palette import binding_ids
    from gputop.tui.replay import ReplayApp

    valid = binding_ids(ReplayApp, ManualApp)
    for name in settings.keys.keys() - valid:
        others = " ".join(sorted(valid))
        yield f"{path}: keys.{name}: no such key; the keys are: {others}"


def _wrong_groups(path: Path, settings: Settings) -> Iterator[str]:
    """Check that groups name hosts, even outside a Slurm job."""
    for name in settings.groups:
        try:
            parse_hosts([f"@{name}"], settings.groups, {JOB: "node"}, None)
        except UsageError as error:
            yield f"{path}: groups.{name}: {error}"


def document(
    settings: Settings, title: str, in_file: Mapping[str, Any], environ: Mapping[str, str]
) -> str:
    """Return settings as a file, with a comment on what each is, and on whether it is from the file
    or from a variable."""
    document = tomlkit.document()
    document.add(tomlkit.comment(title))
    _add_all(document, settings, in_file, environ)
    return tomlkit.dumps(document).rstrip() + "\n"


def _add_all(
    table: Any, settings: msgspec.Struct, in_file: Mapping[str, Any], environ: Mapping[str, str]
) -> None:
    """Add settings with their comments; one without a value is added as a comment."""
    for name, value in msgspec.structs.asdict(settings).items():
        variable = VARIABLES.get(name, "")
        origin = variable if environ.get(variable) else "file" if name in in_file else ""
        description = described(type(settings), name)
        comment = tomlkit.comment(f"{description} [{origin}]" if origin else description)
        if isinstance(value, msgspec.Struct):
            inner = tomlkit.table()
            _add_all(inner, value, in_file.get(name, {}), {})
            table.add(name, inner)
        elif isinstance(value, dict):
            inner = tomlkit.table().add(comment)
            inner.update(value)
            table.add(name, inner)
        elif value is None:
            table.add(comment).add(tomlkit.comment(f'{name} = ""'))
        else:
            table.add(comment).add(name, value)
