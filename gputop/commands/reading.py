"""Files that a command line names."""

from __future__ import annotations

import sys

from gputop.errors import UsageError

_MOST_BYTES = 64 << 20


def read_file(path: str, most: int = _MOST_BYTES) -> bytes:
    """Return the content of a file, `-` for standard input. UsageError names file and reason; it
    has at most `most` bytes."""
    if path == "-" and sys.stdin is None:
        raise UsageError(f"{path!r} cannot be read: standard input is closed")
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path!r} cannot be read: {reason}") from None
    if len(data) > most:
        raise UsageError(f"{path!r} has more than {most >> 20} MiB: give the part of it "
                         "that tells of GPUs, as by `head`")  # fmt: skip
    return data
