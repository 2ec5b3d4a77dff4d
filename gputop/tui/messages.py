"""What the parts of the screen tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from gputop.model.frame import Frame
from gputop.model.protocol import Detail, Stack


@dataclass
class FrameArrived(Message):
    """A source has a new frame; only the newest of several matters."""

    source: int
    """Which of the app's sources: frames of one that was replaced are late."""
    frame: Frame

    def can_replace(self, message: Message) -> bool:
        """The newer one stands for the older, but not for an answer that only that one has."""
        answers = self.frame.detail is not None or self.frame.stack is not None
        return isinstance(message, FrameArrived) and not answers


@dataclass
class RequestWanted(Message):
    """The source is to be asked for something that a frame will tell."""

    request: Detail | Stack


@dataclass
class SourceEnded(Message):
    """A source broke; `reason` is a line for people."""

    source: int
    reason: str
