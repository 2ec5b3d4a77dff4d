"""`gputop --json`: a frame as one line of JSON, documented in the README and in model/frame.py."""

from __future__ import annotations

from gputop.model.frame import Frame
from gputop.model.protocol import encode


def frame_json(frame: Frame) -> str:
    """One line without its end."""
    return encode(frame).decode()
