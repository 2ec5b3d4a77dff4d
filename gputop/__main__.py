"""`python -m gputop`; a local agent is started by running this file.

When Python runs a file, it searches that file's folder for modules first. gputop's modules must not
be found there by their short names, so that folder goes, and the one around it comes last. Nothing
slow is imported before an agent is started, not even typing or contextlib.
"""

import _signal  # type: ignore[import-not-found]  # signal is slow: it makes enumerations of this
import gc
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_FIRST = [] if getattr(sys.flags, "safe_path", sys.flags.isolated) else sys.path[:1]
"""Where Python searches first, for `python -m` the working directory: an agent does not."""
if not __package__:
    sys.path[:] = [path for path in sys.path if path != _HERE]
    sys.path.append(os.path.dirname(_HERE))


def fill_streams() -> None:
    """Open something at 0, 1 and 2, so that the first pipe does not become standard output.

    sys.stdout stays None if it was closed, which is how `output.write` knows.
    """
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            there = os.path.exists(os.devnull)
            os.open(*((os.devnull, os.O_RDWR) if there else ("/", os.O_RDONLY)))


def wait_for_children() -> None:
    """Let the kernel keep the exit status of children until it is read. gputop may have inherited
    an ignored SIGCHLD, with which the status is lost."""
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)


def skip_unused_imports() -> None:
    """Skip what libraries import but neither an agent nor a snapshot needs: a seventh of their
    start-up time."""
    # msgspec makes do with typing if typing_extensions cannot be imported.
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    # pynvml calls it only on Windows; it imports subprocess, shutil and what they need.
    later = type(sys)("ctypes.util")
    later.find_library = _find_library  # type: ignore[attr-defined]
    sys.modules["ctypes.util"] = later


def _find_library(name: str) -> str | None:
    """Import the real function and call it, if it is called after all."""
    del sys.modules["ctypes.util"]
    from ctypes.util import find_library

    return find_library(name)


def become_agent(arguments: list[str]) -> int:
    """Be what `gputop agent` is, as a copy of a program that was started for something else."""
    if sys.path[:1] == _FIRST:
        del sys.path[0]
    sys.path.append(os.path.dirname(_HERE))
    skip_unused_imports()
    from gputop.cli import main as command_line

    return command_line(["agent", *arguments])


def main() -> int:
    """Run the command line and return the exit status."""
    fill_streams()
    wait_for_children()
    gc.disable()  # imports make no garbage; a command that runs for long turns it on again
    from gputop.variables import drop_untrusted

    libraries = os.environ.get("LD_LIBRARY_PATH")
    drop_untrusted(os.environ)
    words = sys.argv[1:]
    if words[:1] == ["agent"]:
        skip_unused_imports()
    else:
        from gputop.commands import HELP
        from gputop.sources import agent_process
        from gputop.sources.agent_process import is_snapshot, start_early

        if libraries == os.environ.get("LD_LIBRARY_PATH"):  # what a program started with, it keeps
            agent_process.become_agent = become_agent
        if HELP.keys().isdisjoint(words):  # options alone, as `-i 2 -u me`, mean the screen too
            start_early(words)
            if is_snapshot(words):
                skip_unused_imports()
    from gputop.cli import main as command_line

    return command_line(words)


def run() -> None:
    """Run the command line and exit, with no child left running."""
    try:
        status = main()
    finally:
        gc.freeze()  # all ends now: to search it for garbage first would take 10 ms
        if sys.argv[1:2] != ["agent"]:
            from gputop.sources.child import end_all

            end_all()
    if "typing_extensions" in sys.modules and sys.modules["typing_extensions"] is None:
        os._exit(status)  # all is written; to take a snapshot apart would take Python 9 ms
    sys.exit(status)


if __name__ == "__main__":
    run()
