"""The stand-in for msgspec says and understands what msgspec does, in every Python there is."""

from __future__ import annotations

import json
import math
import random
import subprocess
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from gputop.protocol.codec import decode_request, encode
from gputop.protocol.messages import AgentMessage, Request
from tests.conftest import rest_long
from tests.protocol.streams import stream
from tests.protocol.test_harmless import bend
from tests.standin.child import names
from tests.standin.pythons import bare, pythons

pytestmark = pytest.mark.system

SCALARS: dict[Any, tuple[Any, ...]] = {
    int: (0, 1, -1, 2**63, 10**30),
    float: (0.0, -0.5, 1e300, 1e-9, 12345678.9, math.nan, math.inf),
    str: ("", "x", '\x1b\n"\\/', "é☃\U0001f600", "\u2028\ufeff\x7f"),
    bool: (True, False),
    types.NoneType: (None,),
    Any: (None, 1, 0.5, "x", [1, None], ["a", "b"], {"a": 0.5}),
    msgspec.Raw: (1, "x", [1, None], ["a", "b"]),  # what an agent gives as it is
}
ODD = (
    b"{}", b"null", b"[]", b"{", b"\xff", b'{"request":"reboot"}', b'{"request":7}',
    b'{"request":"interval","seconds":NaN}', b'{"request":"interval","seconds":1e999}',
    b'{"request":"interval","seconds":"1"}', b'{"request":"interval","seconds":true}',
    b'{"request":"interval","seconds":1' + b"0" * 400 + b"}", b'{"request":"interval"}',
    b'{"request":"detail","process":{"pid":1},"hidden":1}', b'{"request":"refresh","more":[{}]}',
    b'{"request":"probe","value":"\\ud800","order":null}', b'{"request":"probe","value":null}',
    b'{"request":"probe","value":"a\tb","order":null}', b'{"request":"refresh"} x',
    b'{"request":"signal","id":"s","targets":[[1,2]],"number":9,"grace":1}',
    b'{"request":"checks","capabilities":{"9.0":[0,1.5]}}', b'\xef\xbb\xbf{"request":"refresh"}',
    "é".encode("utf-16"), b'{"request":"refresh","more":NaN}', b"[" * 100_000,
)  # fmt: skip


def value_of(type_: Any, dice: random.Random) -> Any:
    """Any value of a type."""
    origin, arguments = get_origin(type_) or type_, get_args(type_)
    if origin is Annotated:
        return value_of(arguments[0], dice)
    if origin is Literal:
        return dice.choice(arguments)
    if origin in (Union, types.UnionType):
        return value_of(dice.choice(arguments), dice)
    if origin in (list, tuple):
        return origin(value_of(arguments[0], dice) for _ in range(dice.randrange(3)))
    if origin is dict:
        return {value_of(arguments[0], dice): value_of(arguments[1], dice) for _ in range(2)}
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        hints = get_type_hints(origin, include_extras=True)
        fields = msgspec.structs.fields(origin)
        chosen = [one.name for one in fields if one.required or dice.random() < 0.5]
        return origin(**{name: value_of(hints[name], dice) for name in chosen})
    return dice.choice(SCALARS[origin])


def told_by(python: str, messages: list[bytes], requests: list[bytes]) -> list[str]:
    """What a Python without msgspec makes of messages and of requests."""
    lines = b"\n".join([*messages, b"", *requests, b""])
    env = {"PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        bare(python, "codec"), input=lines, capture_output=True, check=False, env=env
    )
    assert done.stderr == b""
    return done.stdout.decode().removesuffix("\n").split("\n")


@rest_long("python", *pythons())
def test_messages_are_the_same_json_and_requests_are_understood_the_same(python: str) -> None:
    """Messages are written and read by Python, so that both begin with the same objects."""
    dice = random.Random(0)
    of_each = [value_of(kind, dice) for kind in get_args(AgentMessage) * 40]
    messages = [ascii(message).encode() for message in (*stream(), *of_each)]
    whole = [encode(value_of(kind, dice)) for kind in get_args(Request) * 20]
    bent = [line.strip() for seed in range(20) for line in bend(whole[:11], random.Random(seed))]
    requests = [*whole, *bent, *ODD]
    told = told_by(python, messages, requests)

    known = names()
    with_msgspec = [encode(eval(line, known)) for line in messages]
    assert any(b"null" in line for line in with_msgspec)
    without = told[: len(messages)]
    assert list(map(json.loads, without)) == list(map(json.loads, with_msgspec))

    understood = [ascii(decode_request(line)) for line in requests]
    assert understood.count("None") > len(ODD) / 2
    pairs = zip(requests, told[len(messages) :], strict=True)
    assert list(pairs) == list(zip(requests, understood, strict=True))
