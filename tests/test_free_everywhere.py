"""Free means the same wherever it is said: on the screen, in text, in JSON, of `gputop free`."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.conftest import MachineFactory, needs_everybody, rest_long
from tests.driver import Machine
from tests.terminal import Terminal
from tests.tui.live import running

pytestmark = pytest.mark.system

GPUTOP = [sys.executable, "-m", "gputop"]
SCENARIOS = {"h200x8": [2, 6], "sick": [], "lost": [2, 6], "mig": [1], "gb10": [], "topo": None}
"""With the GPUs that are free there."""


def json_free(here: Machine) -> list[int]:
    """The GPUs that `--json` calls free; of every other it says why not."""
    gpus = json.loads(here.run([*GPUTOP, "--json"]).stdout)["gpus"]
    assert [gpu["index"] for gpu in gpus if bool(gpu["not_free"]) is (gpu["free"] is True)] == []
    return [gpu["index"] for gpu in gpus if gpu["free"]]


def command_free(here: Machine) -> list[int]:
    """All that `gputop free` would give away."""
    command = [*GPUTOP, "free", "--window", "0.2", "--json", "-n"]
    refused = json.loads(here.run([*command, "99"]).stdout)["refused"]
    count = len(here.scenario["gpus"]) - sum("mig" not in gpu for gpu in refused)
    if count == 0:
        return []
    return sorted(gpu["gpu"] for gpu in json.loads(here.run([*command, str(count)]).stdout)["gpus"])


def rows_free(terminal: Terminal) -> list[int]:
    """The GPUs whose rows say so."""
    rows = terminal.text.partition("Processes")[0].splitlines()
    matches = [re.match(r"[ ▸]+(\d+) .*\bfree\b", row) for row in rows]
    return [int(match[1]) for match in matches if match]


def heading_free(text: str) -> int:
    match = re.search(r"\d+ GPUs?, (\d+) free", text)
    assert match is not None
    return int(match[1])


@needs_everybody
@rest_long("scenario", *SCENARIOS)
def test_free_is_free_everywhere(scenario: str, machine: MachineFactory) -> None:
    here = machine(scenario)
    here.freeze(8.0)
    free = json_free(here)
    assert free == (free if SCENARIOS[scenario] is None else SCENARIOS[scenario])
    assert command_free(here) == free
    assert heading_free(here.run([*GPUTOP, "--once"]).stdout) == len(free)
    with running(here, size=(200, 50)) as terminal:
        terminal.wait_for(lambda: re.search(r"\d free", terminal.text))
        terminal.wait_for(lambda: rows_free(terminal) == free)
        assert heading_free(terminal.text) == len(free)
        terminal.send(b"m")
        terminal.wait_for("free: GPU" if free else "no GPU is free")
