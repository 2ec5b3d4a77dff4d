"""`python -m gputop`, and how a local agent is started: as this file.

Started as a file, its folder is the first place that Python looks for modules; gputop's own
modules must not be found there by their short names, and the folder around it belongs last.
Until an agent is started nothing is imported that takes time, typing and contextlib among it.
"""

import gc
import os
import sys

if not __package__:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path.append(os.path.dirname(here))


def main() -> int:
    """The command line; the exit status."""
    gc.disable()  # there is no waste while things are imported; who stays turns it on again
    words = sys.argv[1:]
    if words[:1] == ["agent"]:
        from gputop.lean import go_without

        go_without()
    else:
        from gputop.commands import HELP
        from gputop.sources.child import start_early

        if HELP.keys().isdisjoint(words):  # `-i 2 -u me` is for a screen as well
            start_early(words)
    from gputop.cli import main as command_line

    return command_line(words)


def run() -> None:
    """The command line, and the end: nothing is left to be done that Python would do slowly."""
    status = main()
    for stream in (sys.stdout, sys.stderr):
        try:  # contextlib would be imported for it
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or never there
            continue
    os._exit(status)


if __name__ == "__main__":
    run()
