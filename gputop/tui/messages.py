"""Messages between the parts of the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Reply
from gputop.sources.feed import Feed

ReplyReceiver = Callable[[Reply], None]
"""Receives each reply to a request that it was given with."""
NOTE_SECONDS = 6.0
"""Seconds for which a passing note is shown."""


@dataclass
class Arrived(Message):
    """A source has sent a frame or a reply, or it broke."""

    feed: Feed
    """The connection that it came from: messages of a replaced connection are dropped."""
    content: Frame | Reply | SourceError

    def can_replace(self, message: Message) -> bool:
        """Let a newer frame replace an older one, unless the source sends its past at once."""
        if not isinstance(message, Arrived) or message.feed is not self.feed:
            return False
        is_newer = isinstance(message.content, Frame)
        return is_newer and isinstance(self.content, Frame) and self.content.reported_by is None


@dataclass
class MarkReached(Message):
    """A marked GPU is free, or a marked process has ended; `sentence` is a harmless line."""

    sentence: str


@dataclass
class Note(Message):
    """Something to say for `NOTE_SECONDS`, instead of the note before."""

    words: str
    among_keys: bool = False
    """Whether it stands before the keys, on every screen; otherwise where the screen that is open
    has its notes."""


class ResultShown(Message):
    """The mapping shows a result, which may have more or fewer lines than the one before."""

    def can_replace(self, message: Message) -> bool:
        """Let one message replace all others of its kind."""
        return isinstance(message, ResultShown)
