"""Standard output and standard error, as every command writes to them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from gputop.errors import GputopError


def write(text: str, encoding: str | None = None, required: bool = False) -> None:
    """Write to standard output, in its own encoding or in `encoding`: JSON is always UTF-8.

    BrokenPipeError if the reader is gone, but GputopError if the text is `required`. GputopError
    for any other failure.
    """
    if sys.stdout is None:
        raise GputopError("standard output is closed: there is nowhere to write to")
    codec = encoding or sys.stdout.encoding
    try:
        sys.stdout.buffer.write(text.encode(codec, "replace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise Python tries again at exit
        if isinstance(error, BrokenPipeError) and not required:
            raise
        raise GputopError(f"cannot write to standard output: {error.strerror}") from None


def write_error(text: str) -> None:
    """Write to standard error if it is open: print() would use standard output instead."""
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def complain(message: str) -> None:
    """Write a line to standard error that says what is wrong. Where its terminal or reader is gone,
    nothing ends for that."""
    with suppress(OSError):
        write_error(f"gputop: {message}\n")
