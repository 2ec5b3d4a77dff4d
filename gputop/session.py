"""The settings that hold for one run, of a command line and who gave it where."""

from __future__ import annotations

import os
from argparse import Namespace

from gputop.commands.output import complain
from gputop.errors import UsageError
from gputop.model.process_metrics import COLUMNS
from gputop.settings import (
    Session,
    Settings,
    from_environment,
    from_file,
    settings_path,
    user_named,
)


def session_of(options: Namespace) -> Session:
    """Flags over environment over file over defaults. UsageError.

    A file that is broken is said to be, and neither used nor written.
    """
    path = settings_path(os.environ)
    try:
        settings, broken = from_file(path, COLUMNS), False
    except UsageError as error:
        complain(f"gputop: {error}; the defaults are used\n")
        settings, broken = Settings(), True
    settings = from_environment(settings, os.environ)
    flags = {name: getattr(options, name) for name in ("interval", "theme", "glyphs", "user")}
    flags.update({name: getattr(options, name) or None for name in ("readonly", "print_last")})
    flags = {name: value for name, value in flags.items() if value is not None}
    fields = {**{name: getattr(settings, name) for name in Settings.__struct_fields__}, **flags}
    try:
        fields["user"] = user_named(fields["user"], options.demo, "user of the settings:")
    except UsageError as error:  # that of -u was looked at before
        complain(f"gputop: {error}; everybody's processes are shown\n")
        fields["user"] = None
    kept = settings.keep and not broken and not options.demo
    return Session(**fields, me=user_named("me"), path=path if kept else None)
