"""What the parts of the screen tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from gputop.model.frame import Frame


@dataclass
class FrameArrived(Message):
    """A source has a new frame; only the newest of several matters."""

    source: int
    """Which of the app's sources: frames of one that was replaced are late."""
    frame: Frame

    def can_replace(self, message: Message) -> bool:
        """The newer one stands for the older."""
        return isinstance(message, FrameArrived)


@dataclass
class SourceEnded(Message):
    """A source broke; `reason` is a line for people."""

    source: int
    reason: str
