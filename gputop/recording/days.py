"""The days of a recording in a folder: a data file each with its index and sums, and which of them
are deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from gputop.files import Folder, xdg_folder
from gputop.recording.datafile import INDEX, SUMS
from gputop.recording.entries import MAGIC

SUFFIX = ".gputop"
"""The suffix of data files in a folder."""
_PARTS = "", INDEX, SUMS
_NAME = f"%Y-%m-%d{SUFFIX}"


def default_folder() -> str:
    """Return the folder for recordings without a given path."""
    state = xdg_folder("XDG_STATE_HOME", "~/.local/state")
    return os.path.join(state, "gputop", "recordings")


def day_file(now: float) -> str:
    """Return the name of the data file of a day (of UTC)."""
    return time.strftime(_NAME, time.gmtime(now))


class Day(NamedTuple):
    """A day of a folder that is not being written."""

    name: str
    size: int
    """Bytes of its data file, index and sums."""

    @property
    def date(self) -> str:
        return self.name.removesuffix(SUFFIX)


def other_days(folder: Folder, current: str) -> list[Day]:
    """Return the days of a folder without the file `current`, the oldest first; files that gputop
    did not write are none."""
    names = sorted(name for name in folder.names() if name != current and _is_ours(folder, name))
    return [Day(name, _size(folder, name)) for name in names]


def delete_days(folder: Folder, days: Iterable[Day]) -> None:
    for day in days:
        for part in _PARTS:
            with suppress(OSError):
                if _has_magic(folder, day.name + part):
                    folder.remove(day.name + part)


def is_day(name: str) -> bool:
    """Whether it is the name of the data file of a day."""
    try:
        return time.strftime(_NAME, time.strptime(name, _NAME)) == name  # with all its zeros
    except ValueError:
        return False


def _is_ours(folder: Folder, name: str) -> bool:
    try:
        return is_day(name) and _has_magic(folder, name)
    except OSError:
        return False


def _has_magic(folder: Folder, name: str) -> bool:
    with open(folder.open_file(name, os.O_RDONLY), "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _size(folder: Folder, name: str) -> int:
    total = 0
    for part in _PARTS:
        with suppress(OSError):
            about = folder.find(name + part)
            total += about.st_size if about is not None else 0
    return total
