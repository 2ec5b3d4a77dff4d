"""Frames of this machine, from an agent in a child process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gputop.errors import SourceError
from gputop.model.frame import Frame
from gputop.model.protocol import (
    Request,
    SetInterval,
    Stop,
    decode_frame,
    decode_hello,
    decode_preview,
    encode,
)
from gputop.sources.child import INTERVAL, Child, take_early

_TIDIES_UP = 0.1
"""Seconds of the agent for its end."""


class LocalSource:
    """An agent at the other end of a pipe, started when this is made.

    With `interval` None the agent sends one frame and ends.
    """

    def __init__(self, interval: float | None = 1.0) -> None:
        self.on_preview: Callable[[Frame], None] = _nothing
        """Told what GPUs say at once, if the agent sends that before its first frame."""
        self._once = interval is None
        self._closed = False
        if interval is None:
            self._agent = Child("--once")
        elif early := take_early():
            self._agent = early
            if interval != INTERVAL:
                self.request(SetInterval(interval))
        else:
            self._agent = Child("--interval", str(interval))

    def frames(self) -> Iterator[Frame]:
        """Frames until `close`; SourceError when the agent ends unasked."""
        greeting = self._agent.output.readline()
        if greeting:
            decode_hello(greeting)
            for line in self._agent.output:
                if (preview := decode_preview(line)) is not None:
                    self.on_preview(preview)
                    continue
                yield decode_frame(line)
                if self._once:
                    return
        if not self._closed:
            raise SourceError(self._agent.last_words())

    def request(self, request: Request) -> None:
        """Send a request; nothing if the agent is gone, `frames` tells that."""
        if not self._closed:
            try:
                self._agent.write(encode(request) + b"\n")
            except BrokenPipeError:
                return

    def close(self) -> None:
        """Let the agent tidy up, for a moment, and kill it."""
        if not self._closed:
            self.request(Stop())
            self._closed = True
            if not self._once:
                self._agent.wait(_TIDIES_UP)
            self._agent.kill()


def _nothing(_preview: Frame) -> None:
    pass
