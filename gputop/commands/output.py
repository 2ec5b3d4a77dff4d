"""Standard output, as every command writes to it."""

from __future__ import annotations

import os
import sys

from gputop.errors import GputopError


def write(text: str, encoding: str | None = None) -> None:
    """Onto standard output, in its encoding unless told otherwise: JSON is UTF-8 anywhere.

    BrokenPipeError if its reader is gone, GputopError for any other reason.
    """
    known = encoding or (sys.stdout.encoding if sys.stdout else "utf-8")
    write_bytes(text.encode(known, "replace"))


def write_bytes(data: bytes) -> None:
    """The same of what is encoded."""
    if sys.stdout is None:
        raise GputopError("standard output is closed: there is nowhere to write to")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries once more at its exit
        if isinstance(error, BrokenPipeError):
            raise
        raise GputopError(f"cannot write to standard output: {error.strerror}") from None


def complain(text: str) -> None:
    """Onto standard error, if there is one: print() would take standard output instead."""
    if sys.stderr is not None:
        sys.stderr.write(text)
