"""`gputop --once` and `--json`, made in a child: the driver may hold that one, but not this.

The child asks the driver itself and writes nothing until all is there. It tells, and is not waited
for: a line with its exit status and the sizes of what it has for standard output and standard
error, then both.
"""

from __future__ import annotations

import io
import os
import sys
from _thread import start_new_thread

from gputop.commands.output import complain, write_bytes
from gputop.errors import SourceError
from gputop.sources.child import Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def is_look(words: list[str]) -> bool:
    """Whether these arguments want one look at this machine, and nothing that has to be parsed."""
    return words in (["--once"], ["--json"])


def look(words: list[str]) -> int:
    """Have a child look; the exit status. SourceError if it dies."""
    child = Child("--look", *words)
    try:
        told = child.output.readline()
        if not told:
            raise SourceError(child.last_words())
        status, *sizes = map(int, told.split())
        output, errors = (child.output.read(size) for size in sizes)
    except KeyboardInterrupt:
        child.kill()
        raise
    complain(errors.decode())
    write_bytes(output)
    return status


def tell(run: Callable[[], int]) -> None:
    """In the child: run it, and tell what it printed; end with who started it."""
    start_new_thread(_end_with_parent, ())
    output, errors = io.BytesIO(), io.BytesIO()
    taken = io.TextIOWrapper(output, sys.stdout.encoding), io.TextIOWrapper(errors, "utf-8")
    own = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = taken
    try:
        status = run()
    finally:
        sys.stdout, sys.stderr = own
    for one in taken:
        one.flush()
    data = b"%d %d %d\n" % (status, len(output.getvalue()), len(errors.getvalue()))
    data += output.getvalue() + errors.getvalue()
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)


def _end_with_parent() -> None:
    """Nothing comes on standard input but its end."""
    os.read(0, 1)
    os._exit(1)
