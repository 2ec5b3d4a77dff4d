"""Encodes and decodes the lines of the stream.

A line of the agent is `[number, message]`; the numbers count up from 0, so that a missing, repeated
or misplaced line is noticed. A line of the reader is a Request.
"""

from __future__ import annotations

from _thread import allocate_lock
from functools import cache
from typing import Any, NoReturn

import msgspec

from gputop.errors import SourceError
from gputop.model.machine.text import printable
from gputop.protocol.messages import AgentMessage, Request

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a line that is no message: not JSON, not UTF-8, nested without end."""

encode = msgspec.json.Encoder().encode


_making = allocate_lock()
"""Held while a decoder is made: msgspec caches what it knows of a type before that is complete, and
the process dies if another thread uses it then."""


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a type's decoder, made when needed: an agent never needs some, and starts sooner."""
    with _making:
        return _decoder(kind)


def encode_line(number: int, message: AgentMessage) -> bytes:
    return encode((number, message)) + b"\n"


def decode_line(line: bytes) -> tuple[int, AgentMessage]:
    """Return the number and the message of a line of the agent. SourceError if it is malformed."""
    try:
        number, message = decoder(tuple[int, AgentMessage]).decode(line)
    except UNREADABLE as error:
        raise SourceError(f"the agent sent a line that is not a message: {reason(error)}") from None
    return number, message


def decode_request(line: bytes) -> Request | None:
    """Return a request; None for a malformed line, after which the agent goes on."""
    try:
        request: Request = decoder(Request).decode(line)
    except UNREADABLE:
        return None
    return request


def fail(what: str) -> NoReturn:
    """Raise SourceError for what an agent did."""
    raise SourceError(f"the agent {what}: its stream cannot be followed; start it again")


def reason(error: Exception) -> str:
    """Return the text of an error, made printable: it may quote what was sent."""
    return printable(str(error), 200)
