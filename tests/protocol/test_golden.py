"""Protocol 2, byte for byte as its first agent spoke it: what was said then is understood for good.

`python -m tests.protocol.test_golden` writes the files, for the first agent of a version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.model.machine.signals import Target
from gputop.protocol.codec import decode_line, decode_request, encode
from gputop.protocol.messages import (
    Detail,
    Preview,
    Probe,
    Refresh,
    Request,
    SetInterval,
    Signal,
    Stack,
)
from tests.protocol.streams import EARLY, FRAME, LATER, REPLIES, TRAIN, lines_of, read, stream

GOLDEN = Path(__file__).parent.parent / "data" / "protocol-2"
REQUESTS: tuple[Request, ...] = (
    SetInterval(0.5),
    Refresh(),
    Signal("s1", (Target(TRAIN.id, forced=True),), 15, 10.0, descendants=True),
    Probe("0,1", None, "p1"),
    Detail(TRAIN.id, hidden=True, id="d1"),
    Stack(TRAIN.id, "t1"),
)


def lines(name: str) -> list[bytes]:
    return (GOLDEN / name).read_bytes().splitlines(keepends=True)


def test_what_the_first_agent_said_is_understood() -> None:
    assert read(lines("agent.jsonl")) == [EARLY, FRAME, *REPLIES, LATER]
    assert isinstance(read(lines("agent.jsonl"))[0], Preview)


def test_it_has_every_kind_of_message() -> None:
    kinds = [json.loads(line)[1]["kind"] for line in lines("agent.jsonl")]
    assert set(kinds) == {"hello", "inventory", "sample", "reply"}
    assert [decode_line(line)[0] for line in lines("agent.jsonl")] == list(range(len(kinds)))


def test_what_the_first_reader_asked_is_understood() -> None:
    assert tuple(map(decode_request, lines("reader.jsonl"))) == REQUESTS


@pytest.mark.parametrize("name", ["agent.jsonl", "reader.jsonl"])
def test_all_of_that_is_still_said(name: str) -> None:
    """More may be said by now, which an old reader ignores."""
    now = lines_of(stream()) if name == "agent.jsonl" else [encode(request) for request in REQUESTS]
    for line, old in zip(now, lines(name), strict=True):
        _has(json.loads(line), json.loads(old))


def _has(now: Any, old: Any) -> None:
    if isinstance(old, dict):
        for name, value in old.items():
            _has(now[name], value)
    elif isinstance(old, list):
        for value, before in zip(now, old, strict=True):
            _has(value, before)
    else:
        assert now == old


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "agent.jsonl").write_bytes(b"".join(lines_of(stream())))
    (GOLDEN / "reader.jsonl").write_bytes(b"".join(encode(request) + b"\n" for request in REQUESTS))
