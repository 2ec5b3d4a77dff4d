"""A recorded machine: its source gives one instant, and has all others as its past."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.model.machine.frame import Frame
from gputop.protocol.messages import AnsweredRequest, Reply
from gputop.recording.reader import Recording
from gputop.sources.agentless import AgentlessSource
from gputop.sources.source import Past

_NOT_RECORDED = "this is a recording: no agent can be asked"


class RecordedPast:
    """What was recorded of one host."""

    def __init__(self, recording: Recording, host: str) -> None:
        self._recording, self._host = recording, host
        self.times: Sequence[float] = recording.times(host)

    def at(self, when: float) -> Frame | None:
        return self._recording.at(self._host, when)

    def frames(self, since: float, until: float) -> Iterator[Frame]:
        return self._recording.frames(self._host, since, until)


class RecordingSource(AgentlessSource):
    """Gives the frame of one instant; all others are in `past`."""

    def __init__(self, recording: Recording, host: str, at: float) -> None:
        """The frame is the last that is not after `at`, or the first of all."""
        super().__init__(host)
        self._at, self._past = at, RecordedPast(recording, host)

    @property
    def past(self) -> Past:
        return self._past

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`: one frame, then replies."""
        events, times = self._events, self.past.times
        frame = self.past.at(max(self._at, times[0])) if times else None
        if frame is not None:
            yield frame
        while (yield from self._pause(events, None)):
            pass

    def _answer(self, request: AnsweredRequest) -> Reply:
        return Reply(request=request.id, error=_NOT_RECORDED)
