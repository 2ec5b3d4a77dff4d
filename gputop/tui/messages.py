"""What the parts of the screen tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Reply
from gputop.sources.feed import Feed


@dataclass
class Arrived(Message):
    """A source has a frame or an answer, or broke."""

    feed: Feed
    """Which connection it came from: what one that was replaced has said is late."""
    told: Frame | Reply | SourceError

    def can_replace(self, message: Message) -> bool:
        """A newer frame stands for an older one, but where all of the past comes at once."""
        if not isinstance(message, Arrived) or message.feed is not self.feed:
            return False
        is_newer = isinstance(message.told, Frame)
        return is_newer and isinstance(self.told, Frame) and self.told.told_by is None


@dataclass
class MarkReached(Message):
    """What was marked is free or has ended; `sentence` is a harmless line."""

    sentence: str


@dataclass
class NotifyFailed(Message):
    """The command of the settings did not tell anybody."""

    reason: str


class ResultShown(Message):
    """The mapping shows a result, which may have more or fewer lines than the one before."""

    def can_replace(self, message: Message) -> bool:
        """One stands for all."""
        return isinstance(message, ResultShown)
