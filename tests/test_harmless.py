"""Whatever others write, what gputop prints neither moves a cursor nor reorders nor hides: JSON,
usage errors, the lines it offers for a shell.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.export.json import frame_json
from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame
from tests import builders
from tests.conftest import MachineFactory
from tests.driver import forked

GPUTOP = [sys.executable, "-m", "gputop"]
ENVIRON = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent"}
HOSTILE = {
    "escape": "\x1b[31m\x1b]0;x\x07",
    "delete": "a\x7fb",
    "c1": "\x9b31m",
    "bidi": "\u202egpj.exe\u2066",
    "hidden": "\u200b\u2060\ufeff",
    "lines": "a\nb\r\nc\u2028d",
    "bytes": "\udcff\udc80\udc9b31m",
    "tags": "\U000e0041",
    "long": "x" * 100_000,
}
HOSTILE["everything"] = "".join(HOSTILE.values())[:-90_000]
COMMANDS = [
    ["kill", "{}"], ["kill", "--gpu", "{}", "--yes"], ["kill", "--user", "{}", "--yes"],
    ["kill", "-s", "{}", "1"], ["kill", "--grace", "{}", "1"], ["kill", "1", "--{}"],
    ["free", "{}"], ["free", "--exclude", "{}"], ["free", "-n", "{}"], ["free", "--min-free", "{}"],
    ["free", "--format", "{}"], ["free", "--wait", "{}"], ["map", "--pid", "{}"],
    ["map", "--inventory", "{}"], ["map", "--framework", "{}"], ["map", "--driver", "{}"],
    ["map", "0", "--tf-visible-devices", "{}", "--demo"], ["map", "0", "--device", "{}"],
    ["map", "--tf-log", "{}"], ["map", "0", "{}"], ["map", "0", "--local-rank", "{}"],
    ["doctor", "--python", "{}"], ["doctor", "--report", "{}/x/y"], ["doctor", "{}"],
    ["topo", "{}"], ["config", "{}"], ["{}"], ["--{}"], ["-i", "{}"], ["--theme", "{}"],
    ["--glyphs", "{}"], ["-u", "{}"], ["--completion", "{}"], ["agent", "{}"],
    ["agent", "--interval", "{}"], ["--once", "{}"], ["--json", "{}"],
]  # fmt: skip


def raw(text: str) -> set[str]:
    """What a terminal would act on, hide or reorder by."""
    return {character for character in text
            if character != "\n" and unicodedata.category(character) in
            ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")}  # fmt: skip


THROUGH = [COMMANDS[0], *COMMANDS[4::7], ["doctor", "--report", "{}/x/y"], ["agent", "{}"],
           ["agent", "--interval", "{}"]]  # fmt: skip
"""Of each kind one goes through the program."""


def is_one_harmless_line(error: str) -> None:
    assert not raw(error)
    assert error.count("\n") <= 1
    assert len(error) < 3000
    assert "Traceback" not in error


@pytest.mark.system
@pytest.mark.parametrize("kind", ["escape", "everything"])
@pytest.mark.parametrize("command", THROUGH, ids=" ".join)
def test_errors_about_arguments(command: list[str], kind: str) -> None:
    """One line, of a bounded length, whatever the argument is."""
    words = [word.replace("{}", HOSTILE[kind]) for word in command]
    is_one_harmless_line(forked.run([*GPUTOP, *words], ENVIRON).stderr)


@pytest.mark.system
@pytest.mark.long
@pytest.mark.parametrize("kind", ["escape", "everything"])
def test_errors_about_all_arguments(kind: str) -> None:
    """As above, of all commands."""
    for command in COMMANDS:
        test_errors_about_arguments(command, kind)


def hostile_frame(
    text: str, names: Sequence[str] = ("CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICE")
) -> Frame:
    """With a text where a value has to stay what it is."""
    around = CudaContext(environ=Environ(dict.fromkeys(names, text)))
    return builders.frame([builders.gpu()], [builders.process(1, cuda_context=around)])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_is_harmless_and_means_what_it_meant(text: str) -> None:
    frame = hostile_frame(text)
    line = frame_json(frame)
    assert not raw(line)
    assert "\n" not in line
    assert msgspec.json.decode(line, type=Frame) == frame


@pytest.mark.long
def test_every_character_that_is_not_printable_is_escaped() -> None:
    everything = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    frame = hostile_frame(everything, ["CUDA_VISIBLE_DEVICES"])
    line = frame_json(frame)
    assert all(character.isprintable() for character in set(line))
    assert msgspec.json.decode(line, type=Frame) == frame


@pytest.mark.system
def test_json_of_a_real_process(machine: MachineFactory) -> None:
    """Its variables, as it has them."""
    value = "0\x7f\x9b31m\u202e\u200b\x1b[2J\n1"
    here = machine({"gpu": {"uuid": "GPU-0"}})
    here.spawn(
        "train", [f"train\x7f\x9b\u202e{value}"], used=1, env={"CUDA_VISIBLE_DEVICES": value}
    )
    done = here.run([*GPUTOP, "--json"])
    assert not raw(done.stdout)
    [process] = json.loads(done.stdout)["processes"]
    variables = process["cuda_context"]["environ"]["variables"]
    assert variables["CUDA_VISIBLE_DEVICES"] == value
    assert process["command"].startswith("train���")


@pytest.mark.system
@pytest.mark.parametrize("value", ["0\t' ;touch X #", "0\n1", "\u202e0"])
def test_no_line_where_there_can_be_none(value: str, machine: MachineFactory) -> None:
    here = machine({"gpu": {"uuid": "GPU-0"}})
    pid = here.spawn("train", ["train"], used=1, env={"CUDA_VISIBLE_DEVICES": value})
    for words in (["--", value], ["--pid", str(pid)]):
        done = here.run([*GPUTOP, "map", *words])
        assert not raw(done.stdout + done.stderr)
        assert "export CUDA_VISIBLE_DEVICES=$" not in done.stdout
        assert f"export CUDA_VISIBLE_DEVICES={value}" not in done.stdout
