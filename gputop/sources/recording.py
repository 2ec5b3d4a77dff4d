"""A recorded machine: at rest at one instant, and all others are in its past."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence

from gputop.model.machine.frame import Frame
from gputop.protocol.messages import AnsweredRequest, Reply, Request
from gputop.recording.reader import Recording

_NOT_RECORDED = "this is a recording: there is nobody to ask"


class RecordedPast:
    """What was recorded of one host."""

    def __init__(self, recording: Recording, host: str) -> None:
        self._recording, self._host = recording, host
        self.times: Sequence[float] = recording.times(host)
        """See `Past`."""

    def at(self, when: float) -> Frame | None:
        """See `Past`."""
        return self._recording.at(self._host, when)

    def frames(self, since: float, until: float) -> Iterator[Frame]:
        """See `Past`."""
        return self._recording.frames(self._host, since, until)


class RecordingSource:
    """The frame of one instant. Who wants others finds them in `past`."""

    def __init__(self, recording: Recording, host: str, at: float) -> None:
        """The frame is the last that is not after `at`, or the first of all."""
        self.host, self._at = host, at
        self.past = RecordedPast(recording, host)
        self._events: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        """Replies; None ends `frames`."""

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`: one frame, then replies."""
        times = self.past.times
        frame = self.past.at(max(self._at, times[0])) if times else None
        if frame is not None:
            yield frame
        while (reply := self._events.get()) is not None:
            yield reply

    def remember(self, wanted: bool) -> None:
        """See `RememberingSource`: it is on disk."""

    def request(self, request: Request) -> None:
        """Refuse what can only be asked of a machine; for the rest there is nothing to do."""
        if isinstance(request, AnsweredRequest):
            self._events.put(Reply(request=request.id, error=_NOT_RECORDED))

    def reconnect(self) -> None:
        """Begin anew."""
        self._events.put(None)

    def close(self) -> None:
        """End."""
        self._events.put(None)
