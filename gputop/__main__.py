"""`python -m gputop`, and how a local agent is started: as this file.

Started as a file, its folder is the first place that Python looks for modules; gputop's own
modules must not be found there by their short names, and the folder around it belongs last.
Until an agent is started nothing is imported that takes time, typing and contextlib among it.
"""

import _signal  # type: ignore[import-not-found]  # signal makes enumerations of it, which takes time
import gc
import os
import sys

if not __package__:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path.append(os.path.dirname(here))


def fill_streams() -> None:
    """Have something at 0, 1 and 2, or the first pipe would be taken for standard output.

    sys.stdout stays None where it was closed: that is what tells.
    """
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            there = os.path.exists(os.devnull)
            os.open(*((os.devnull, os.O_RDWR) if there else ("/", os.O_RDONLY)))


def wait_for_children() -> None:
    """Let the kernel keep the exit status of children for who asks: whoever started gputop may have
    SIGCHLD ignored, which programs inherit."""
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)


def main() -> int:
    """The command line; the exit status."""
    fill_streams()
    wait_for_children()
    gc.disable()  # there is no waste while things are imported; who stays turns it on again
    from gputop.trust import drop_what_is_not_roots

    drop_what_is_not_roots(os.environ)
    words = sys.argv[1:]
    if words[:1] == ["agent"]:
        from gputop.lean import go_without

        go_without()
    else:
        from gputop.commands import HELP
        from gputop.sources.agent_process import start_early

        if HELP.keys().isdisjoint(words):  # `-i 2 -u me` is for a screen as well
            start_early(words)
    from gputop.cli import main as command_line

    return command_line(words)


def run() -> None:
    """Run the command line and end, with no child left to others."""
    try:
        sys.exit(main())
    finally:
        if sys.argv[1:2] != ["agent"]:
            from gputop.sources.child import end_all

            end_all()


if __name__ == "__main__":
    run()
