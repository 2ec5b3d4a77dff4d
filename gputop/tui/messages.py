"""What the parts of the screen tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Reply
from gputop.sources.feed import Feed


@dataclass
class FrameArrived(Message):
    """A source has a new frame; only the newest of several matters."""

    feed: Feed
    """Which connection it came from: what one that was replaced has said is late."""
    frame: Frame

    def can_replace(self, message: Message) -> bool:
        """The newer one stands for the older, but where all of the past comes at once."""
        is_newer = isinstance(message, FrameArrived) and message.feed is self.feed
        return is_newer and self.frame.told_by is None


@dataclass
class ReplyArrived(Message):
    """A source has answered."""

    feed: Feed
    reply: Reply


@dataclass
class SourceEnded(Message):
    """A source broke; `reason` is a line for people."""

    feed: Feed
    reason: str
    wants_login: bool = False


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
