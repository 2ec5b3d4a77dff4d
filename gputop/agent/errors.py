"""Reports unexpected errors."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from gputop.model.machine.text import printable

_NO_THREAD = (
    "no further thread may be started: this user (ulimit -u) or this container (pids.max) has as "
    "many processes and threads as it may have; end some of them, or raise the limit"
)
_logged: set[str] = set()


def log_once(who: str, error: BaseException) -> str:
    """Return type, text and location of an error in one printable line; print it on standard error
    when `who` first meets it there: a thread that goes on may meet it every second."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    file = os.path.basename(trace.tb_frame.f_code.co_filename) if trace else "?"
    location = f"{file}:{trace.tb_lineno if trace else 0}"
    words = printable(f"{type(error).__name__} at {location}: {error}", 200)
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        words = _NO_THREAD
    key = f"{who} {type(error).__name__} {location}"
    if key not in _logged and sys.stderr is not None:
        _logged.add(key)
        print(f"{who}: {words}", file=sys.stderr, flush=True)  # noqa: T201
    return words


def end_on_errors(tidy_up: Callable[[], object]) -> None:
    """End the agent on an error that no thread catches, after `tidy_up`. Its reader then learns why
    and may start another agent; a missing thread would never be noticed. Several threads may meet
    the same error: the first tells it."""
    ending = threading.Lock()

    def end(who: str, error: BaseException | None) -> NoReturn:
        ending.acquire()
        try:
            if error is not None:
                log_once(who, error)
            tidy_up()
        finally:
            os._exit(1)

    threading.excepthook = lambda failure: end(
        failure.thread.name if failure.thread else "?", failure.exc_value
    )
    sys.excepthook = lambda _kind, error, _trace: end("frames", error)
