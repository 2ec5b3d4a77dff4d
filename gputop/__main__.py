"""`python -m gputop`, and how a local agent is started: as this file.

Started as a file, its folder is the first place that Python looks for modules; gputop's own
modules must not be found there by their short names, and the folder around it belongs last.
"""

import os
import sys
from contextlib import suppress
from typing import NoReturn

if not __package__:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path.append(os.path.dirname(here))

from gputop.sources.child import start_early


def main() -> int:
    """The command line; the exit status."""
    start_early(sys.argv[1:])
    from gputop.cli import main as command_line

    return command_line()


def run() -> NoReturn:
    """The command line, and the end: nothing is left to be done that Python would do slowly."""
    status = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or never there
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
