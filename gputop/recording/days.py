"""The days of a recording in a folder: a data file each, and which of them are deleted."""

from __future__ import annotations

import os
import re
import time
from calendar import timegm
from contextlib import suppress

from gputop.files import Folder, xdg_folder
from gputop.recording.datafile import INDEX
from gputop.recording.entries import MAGIC

SUFFIX = ".gputop"
"""The suffix of data files in a folder."""
_DAY = re.compile(rf"(\d{{4}}-\d\d-\d\d){re.escape(SUFFIX)}", re.ASCII)
_SECONDS = 86400


def default_folder() -> str:
    """Return the folder for recordings without a given path."""
    state = xdg_folder("XDG_STATE_HOME", "~/.local/state", os.environ)
    return os.path.join(state, "gputop", "recordings")


def day_file(now: float) -> str:
    """Return the name of the data file of a day (of UTC)."""
    return time.strftime(f"%Y-%m-%d{SUFFIX}", time.gmtime(now))


def delete_days(folder: Folder, current: str, before: float, most: float) -> int:
    """Delete the days of a folder that ended earlier than `before` (seconds since the epoch), and
    the oldest until the rest takes at most `most` bytes. The file `current` is kept and does not
    count; files that gputop did not write are kept. Return the bytes that are left."""
    days = sorted(name for name in folder.names() if name != current and _is_ours(folder, name))
    sizes = {name: _size(folder, name) for name in days}
    total = sum(sizes.values())
    for name in days:
        if _end_of(name) < before or total > most:
            for part in (name, name + INDEX):
                with suppress(OSError):
                    if _has_magic(folder, part):
                        folder.remove(part)
            total -= sizes[name]
    return total


def _end_of(name: str) -> float:
    return timegm(time.strptime(name.removesuffix(SUFFIX), "%Y-%m-%d")) + _SECONDS


def _is_ours(folder: Folder, name: str) -> bool:
    """Whether a file is a day that gputop wrote."""
    try:
        is_day = _DAY.fullmatch(name) is not None and _end_of(name) > 0
        return is_day and _has_magic(folder, name)
    except (OSError, ValueError):
        return False


def _has_magic(folder: Folder, name: str) -> bool:
    with open(folder.open_file(name, os.O_RDONLY), "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _size(folder: Folder, name: str) -> int:
    total = 0
    for part in (name, name + INDEX):
        with suppress(OSError):
            about = folder.find(part)
            total += about.st_size if about is not None else 0
    return total
