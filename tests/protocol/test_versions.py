"""Two neighbours in version talk; two that are not say so."""

from __future__ import annotations

import json
import subprocess

import pytest
from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.protocol.assemble import Assembler
from gputop.protocol.versions import SPOKEN, Versions, parse_versions
from tests.agent.driving import COMMAND
from tests.conftest import MachineFactory
from tests.protocol.streams import FRAME, HELLO, lines_of, stream

TWO, BOTH, THREE = Versions(2, 2), Versions(2, 3), Versions(3, 3)


@pytest.mark.parametrize(
    ("agent", "reader", "shared"),
    [(TWO, TWO, 2), (TWO, BOTH, 2), (BOTH, TWO, 2), (BOTH, BOTH, 3), (TWO, THREE, None)],
)
def test_the_newest_that_both_speak(agent: Versions, reader: Versions, shared: int | None) -> None:
    assert agent.shared(reader) == reader.shared(agent) == shared


@pytest.mark.parametrize("text", ["", "x", "2-1", "0-1", "1-", "-1", "1-2-3", "1.5"])
def test_a_range_that_is_none(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        parse_versions(text)


def hello_of(machine: MachineFactory, reader: Versions) -> tuple[dict[str, object], list[bytes]]:
    """What the agent of now tells a reader that speaks these versions, and all of its lines."""
    done = subprocess.run(
        [*COMMAND, "--once", "--protocol", str(reader)],
        env=machine({"gpu": {"uuid": "GPU-{i}"}}).env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    lines = done.stdout.splitlines(keepends=True)
    return json.loads(lines[0])[1], lines


@pytest.mark.system
def test_an_agent_that_speaks_2_and_a_reader_that_speaks_2_to_3(machine: MachineFactory) -> None:
    hello, lines = hello_of(machine, BOTH)
    assert (hello["oldest"], hello["newest"], hello["protocol"]) == (2, 2, 2)
    assembler = Assembler(BOTH)
    assert [assembler.read(line) for line in lines][-1] is not None


def test_an_agent_that_speaks_2_to_3_and_a_reader_that_speaks_2() -> None:
    """The reader has said so, and the agent answers in what the reader knows."""
    assembler = Assembler(TWO)
    lines = lines_of([replace(HELLO, newest=3, protocol=2), *stream()[1:]])
    assert FRAME in [assembler.read(line) for line in lines]
    assert assembler.hello is not None
    assert assembler.hello.newest == 3


@pytest.mark.system
@pytest.mark.parametrize("reader", [Versions(1, 1), THREE, Versions(7, 9)])
def test_strangers_are_told_what_to_do(reader: Versions, machine: MachineFactory) -> None:
    hello, lines = hello_of(machine, reader)
    assert hello["protocol"] == SPOKEN.newest
    with pytest.raises(SourceError) as raised:
        Assembler(reader).read(lines[0])
    text = str(raised.value)
    assert f"speaks protocol {SPOKEN}, this gputop {reader}: install the same version" in text
    assert text.isprintable()
