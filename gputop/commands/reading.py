"""Files that a command line names."""

from __future__ import annotations

import os
import sys

from gputop.errors import UsageError

_MOST_BYTES = 64 << 20


def read_file(path: str) -> bytes:
    """Return what is in a file, `-` for standard input; UsageError with its name and the reason."""
    try:
        with open(_descriptor(path), "rb", closefd=path != "-") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path!r} cannot be read: {reason}") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path!r} has more than {_MOST_BYTES >> 20} MiB: give the part of it "
                         "that tells of GPUs, as by `head`")  # fmt: skip
    return data


def _descriptor(path: str) -> int:
    """Open a file or a pipe, which has a writer by then."""
    if path != "-":
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if sys.stdin is None:
        raise ValueError("standard input is closed")
    return 0
