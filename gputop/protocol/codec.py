"""Lines of the stream, and what they say.

A line of the agent is `[number, message]`; the numbers count up from 0, so that a line that is
missing, comes twice or out of order is noticed. A line of the reader is a Request.
"""

from __future__ import annotations

from _thread import allocate_lock
from functools import cache
from typing import Any

import msgspec

from gputop.errors import SourceError
from gputop.model.machine.text import printable
from gputop.protocol.messages import AgentMessage, Request

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a line that is no message: not JSON, not UTF-8, nested without end."""

encode = msgspec.json.Encoder().encode


_making = allocate_lock()
"""msgspec keeps what it works out of a type before that is whole: a thread that comes by meanwhile
takes it, and the process dies of it."""


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Made when it is needed: an agent never decodes a Sample, and starts sooner."""
    return msgspec.json.Decoder(kind)


def _decode(kind: Any, line: bytes) -> Any:
    with _making:
        decoder = _decoder(kind)
    return decoder.decode(line)


def encode_line(number: int, message: AgentMessage) -> bytes:
    """Return a line of the agent."""
    return encode((number, message)) + b"\n"


def decode_line(line: bytes) -> tuple[int, AgentMessage]:
    """Return the number and the message of a line of the agent. SourceError if it is none."""
    try:
        number, message = _decode(tuple[int, AgentMessage], line)
    except _UNREADABLE as error:
        raise SourceError(f"the agent sent a line that is no message: {reason(error)}") from None
    return number, message


def decode_request(line: bytes) -> Request | None:
    """Return a request; None for a line that is none: the agent serves on."""
    try:
        request: Request = _decode(Request, line)
    except _UNREADABLE:
        return None
    return request


def reason(error: Exception) -> str:
    """Return the text of an error, which may quote what was sent."""
    return printable(str(error), 200)
