"""What is left of a crash: one line on the terminal, the traceback in a file.

Textual prints a traceback with every local variable, which are other people's command lines here.
"""

from __future__ import annotations

import os
import tempfile
import traceback

from gputop.model.text import printable


def report(error: BaseException) -> str:
    """Write the traceback, without variables, and say in a line where it is."""
    name = type(error).__name__
    summary = f"internal error ({name}: {printable(str(error), 200)})"
    try:
        descriptor, path = tempfile.mkstemp(prefix="gputop-crash-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return summary
    return f"{summary}; please report it with {path}"
