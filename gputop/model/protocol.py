"""What is said between an agent and its reader: one JSON value a line.

The agent's first line is a Hello, then comes a Preview if that was asked for, every other one is a
Frame. The reader's lines are Requests. The agent ends when its standard input does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from gputop.allowed import MAX_INTERVAL, MIN_INTERVAL
from gputop.errors import SourceError
from gputop.model.frame import SCHEMA, Frame
from gputop.model.signals import Target
from gputop.model.text import printable


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a stream."""

    schema: int
    version: str
    """Of the gputop that speaks."""


class Preview(msgspec.Struct, frozen=True):
    """What GPUs tell at once, before the first frame."""

    preview: Frame


class SetInterval(msgspec.Struct, frozen=True, tag_field="request", tag="interval"):
    """Make a frame every `seconds`."""

    seconds: float


class Refresh(msgspec.Struct, frozen=True, tag_field="request", tag="refresh"):
    """Make a frame now."""


class Pause(msgspec.Struct, frozen=True, tag_field="request", tag="pause"):
    """Make no more frames until told otherwise; a Refresh still gives one."""

    paused: bool


class Probe(msgspec.Struct, frozen=True, tag_field="request", tag="probe"):
    """Ask the CUDA driver what the variables mean (None: unset), and in which order it counts all
    GPUs; the answers are in later frames."""

    value: str | None
    order: str | None


class Signal(msgspec.Struct, frozen=True, tag_field="request", tag="signal"):
    """Send a signal; the verdicts are in later frames, all of them in the first that has any."""

    order: str
    """An id that the asker chooses: the same twice is done once."""
    targets: tuple[Target, ...]
    """Each is signalled once, in this order; one that stands twice is one."""
    number: int
    """0 sends nothing, and tells what would be signalled."""
    grace: float
    """Seconds in which a process that the signal should end may do so."""
    descendants: bool = False
    """What they started as well, a parent before its children."""


class Detail(msgspec.Struct, frozen=True, tag_field="request", tag="detail"):
    """Tell more of a process; the answer is in one later frame, of several requests to the last."""

    pid: int
    start_time: float
    """Another process that has the number by now is not told of."""
    hidden: bool = False
    """The values of all variables but secrets."""


class Stack(msgspec.Struct, frozen=True, tag_field="request", tag="stack"):
    """Have py-spy tell where a Python process is; the answer is in one later frame."""

    pid: int
    start_time: float


class Stop(msgspec.Struct, frozen=True, tag_field="request", tag="stop"):
    """End."""


Request = SetInterval | Refresh | Pause | Probe | Signal | Detail | Stack | Stop

encode = msgspec.json.Encoder().encode


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Made when it is needed: to understand a Frame takes longer than most messages."""
    return msgspec.json.Decoder(kind)


_PREVIEW = b'{"preview":'
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a line that is no message: not JSON, not UTF-8, nested without end."""


def decode_hello(line: bytes) -> Hello:
    """The first line of a stream; SourceError if it is none or of another schema."""
    try:
        hello: Hello = _decoder(Hello).decode(line)
    except _UNREADABLE as error:
        raise SourceError(f"the agent's first line is no greeting: {_words(error)}") from None
    if hello.schema != SCHEMA:
        version = printable(hello.version, 32)
        raise SourceError(
            f"the agent (gputop {version}) speaks schema {hello.schema}, this gputop "
            f"{SCHEMA}: install the same version on both sides"
        )
    return hello


def decode_frame(line: bytes) -> Frame:
    """A frame; SourceError if the line is none."""
    try:
        frame: Frame = _decoder(Frame).decode(line)
    except _UNREADABLE as error:
        raise SourceError(f"the agent sent a line that is no frame: {_words(error)}") from None
    return frame


def decode_preview(line: bytes) -> Frame | None:
    """What a preview shows; None if the line is a frame."""
    if not line.startswith(_PREVIEW):
        return None
    try:
        preview: Preview = _decoder(Preview).decode(line)
    except _UNREADABLE as error:
        raise SourceError(f"the agent sent a line that is no preview: {_words(error)}") from None
    return preview.preview


def decode_request(line: bytes) -> Request | None:
    """A request; None for a line that is none: the agent serves on."""
    try:
        request: Request = _decoder(Request).decode(line)
    except _UNREADABLE:
        return None
    return request


def _words(error: Exception) -> str:
    """An error's text may quote what was sent."""
    return printable(str(error), 200)


def clamp_interval(seconds: float) -> float:
    """Into the range that every part honours."""
    return min(MAX_INTERVAL, max(MIN_INTERVAL, seconds))
