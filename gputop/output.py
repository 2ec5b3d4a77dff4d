"""Standard output and standard error, as every command writes to them."""

from __future__ import annotations

import os
import sys

from gputop.errors import GputopError


def write(text: str, encoding: str | None = None, required: bool = False) -> None:
    """Write to standard output, in its encoding unless told otherwise: JSON is UTF-8 anywhere.

    BrokenPipeError if its reader is gone, unless the text is `required`: then that is an error as
    any other. GputopError.
    """
    if sys.stdout is None:
        raise GputopError("standard output is closed: there is nowhere to write to")
    codec = encoding or sys.stdout.encoding
    try:
        sys.stdout.buffer.write(text.encode(codec, "replace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries once more at its exit
        if isinstance(error, BrokenPipeError) and not required:
            raise
        raise GputopError(f"cannot write to standard output: {error.strerror}") from None


def write_error(text: str) -> None:
    """Write to standard error, if there is one: print() would take standard output instead."""
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def complain(message: str) -> None:
    """Write a line about what is wrong to standard error."""
    write_error(f"gputop: {message}\n")
