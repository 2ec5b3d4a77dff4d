"""Frames of this machine, from an agent in a child process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from gputop.errors import SourceError
from gputop.model.frame import Frame
from gputop.model.protocol import Request, SetInterval, Stop, decode_frame, decode_hello, encode
from gputop.model.text import printable
from gputop.sources.child import INTERVAL, start, take_early

_TIDIES_UP = 0.1
"""Seconds of the agent for its end."""


class LocalSource:
    """An agent at the other end of a pipe, started when this is made.

    With `interval` None the agent sends one frame and ends.
    """

    def __init__(self, interval: float | None = 1.0) -> None:
        self._once = interval is None
        self._closed = False
        early = take_early(once=self._once)
        arguments = ["--once"] if interval is None else ["--interval", str(interval)]
        self._agent, self._errors = early or start(*arguments)
        if early and interval is not None and interval != INTERVAL:
            self.request(SetInterval(interval))

    def frames(self) -> Iterator[Frame]:
        """Frames until `close`; SourceError when the agent ends unasked."""
        assert self._agent.stdout is not None
        greeting = self._agent.stdout.readline()
        if greeting:
            decode_hello(greeting)
            for line in self._agent.stdout:
                yield decode_frame(line)
                if self._once:
                    return
        if not self._closed:
            raise SourceError(f"the agent ended{self._last_words()}")

    def request(self, request: Request) -> None:
        """Send a request; nothing if the agent is gone, `frames` tells that."""
        if self._closed or self._agent.stdin is None:
            return
        try:  # past the file's buffer, which would keep what a dead agent does not take
            os.write(self._agent.stdin.fileno(), encode(request) + b"\n")
        except (BrokenPipeError, ValueError):
            return

    def close(self) -> None:
        """Let the agent tidy up, for a moment, and kill it: a thread of its that the driver holds
        may never die."""
        if not self._closed:
            self.request(Stop())
            self._closed = True
            if not self._once:
                with suppress(subprocess.TimeoutExpired):
                    self._agent.wait(_TIDIES_UP)
            self._agent.kill()

    def _last_words(self) -> str:
        """The last line that the agent wrote to its standard error, and its exit status."""
        try:
            status = str(self._agent.wait(timeout=1))
        except subprocess.TimeoutExpired:  # it closed its output, and the driver holds it
            status = "unknown"
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        words = f": {printable(lines[-1], 200)}" if lines else ""
        return f" with status {status}{words}"
