"""Whole screens as text, in snapshots/*.txt: what a change does to them is read in the diff.

After a change that is meant: `pytest tests/tui/test_snapshots.py --snapshot-update`, then look at
`git diff` before it is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import pytest

from gputop.errors import LoginError, SourceError
from gputop.model.machine.frame import Frame
from gputop.settings import Session
from gputop.tui.glyphs import ASCII
from gputop.tui.messages import Arrived
from gputop.tui.panes.lines import Lines
from tests.builders_tui import shown
from tests.conftest import rest_long
from tests.tui import machines
from tests.tui.fleets import watched

FOLDER = Path(__file__).parent / "snapshots"
UPDATE = "pytest tests/tui/test_snapshots.py --snapshot-update"


class Case(NamedTuple):
    """A screen: a machine, a size, the keys that lead there."""

    frames: Callable[[], list[Frame]]
    size: tuple[int, int]
    keys: str = ""
    """Words; a name or a character each."""
    ascii_only: bool = False


CASES = {
    "main-80x24": Case(machines.demo, (80, 24)),
    "main-120x40": Case(machines.demo, (120, 40), "down down"),
    "main-200x50": Case(machines.demo, (200, 50)),
    "main-40x12": Case(machines.demo, (40, 12)),
    "ascii-80x24": Case(machines.demo, (80, 24), ascii_only=True),
    "ascii-120x40-graphs": Case(machines.demo, (120, 40), "G", ascii_only=True),
    "users-80x24": Case(machines.demo, (80, 24), "u"),
    "mapping-120x40": Case(machines.demo, (120, 40), "m 3 , 9 , 1 enter"),
    "mig-120x40": Case(machines.mig, (120, 40)),
    "hung-80x24": Case(machines.hung, (80, 24)),
    "hung-200x50": Case(machines.hung, (200, 50)),
    "sick-120x40": Case(machines.sick, (120, 40)),
    "sick-120x40-health": Case(machines.sick, (120, 40), "H"),
    "sixteen-80x24": Case(machines.sixteen, (80, 24)),
    "sixteen-200x50": Case(machines.sixteen, (200, 50)),
    "foreign-80x24": Case(machines.foreign, (80, 24)),
    "foreign-80x24-ascii": Case(machines.foreign, (80, 24), ascii_only=True),
    "gpu-page-120x40": Case(machines.demo, (120, 40), "shift+tab enter"),
    "process-page-80x24": Case(machines.sixteen, (80, 24), "down enter"),
    "signal-80x24": Case(machines.sixteen, (80, 24), "down f9"),
    "no-gpu-80x24": Case(machines.no_gpu, (80, 24)),
}

FLEETS = {
    "fleet-80x24": Case(machines.fleet, (80, 24)),
    "fleet-120x40": Case(machines.fleet, (120, 40), "down u u"),
    "fleet-80x24-ascii": Case(machines.fleet, (80, 24), ascii_only=True),
}
"""Screens of many hosts, a frame each; another two want a login and are down."""


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The screen shows local times."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
@rest_long("name", *CASES)
async def test_the_screen_is_as_it_was(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if CASES[name].ascii_only:
        monkeypatch.setattr(Lines, "glyphs", ASCII)
    compare(name, await drawn(CASES[name]), request.config.getoption("--snapshot-update"))


@pytest.mark.parametrize("name", FLEETS)
async def test_the_screen_of_many_hosts_is_as_it_was(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = FLEETS[name]
    if case.ascii_only:
        monkeypatch.setattr(Lines, "glyphs", ASCII)
    frames = case.frames()
    names = [frame.host.requested_name or "" for frame in frames]
    async with watched("shut1", *names, "down1", size=case.size) as fleet:
        for host, frame in zip(names, frames, strict=True):
            await fleet.tell(host, frame)
        await fleet.tell("shut1", LoginError("login wanted: permission denied (publickey)"))
        await fleet.tell("down1", SourceError("connection refused"))
        fleet.machine_of("down1").retry_in = None  # seconds would pass
        await fleet.press(*case.keys.split())
        await fleet.tick()
        text = fleet.text + "\n"
    compare(name, text, request.config.getoption("--snapshot-update"))


async def drawn(case: Case) -> str:
    """The text of the screen, a line each, without blanks at their ends."""
    frames = case.frames()
    async with shown(size=case.size, settings=Session(theme="ansi-dark", me="alice")) as screen:
        for frame in frames:  # of messages that wait the newest would replace the others
            screen.app.on_arrived(Arrived(screen.machine.feed, frame))
        await screen.drawn()
        await screen.press(*case.keys.split())
        return screen.text + "\n"


def compare(name: str, text: str, update: bool) -> None:
    """Fail with the difference to the snapshot; with `update` write it."""
    path = FOLDER / f"{name}.txt"
    if update:
        path.write_text(text, encoding="utf-8")
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != before:
        diff = unified_diff(
            before.splitlines(), text.splitlines(), f"snapshots/{path.name}", "the screen now", n=1,
            lineterm="",
        )  # fmt: skip
        pytest.fail("\n".join([*diff, f"If that is meant: {UPDATE}"]), pytrace=False)


def test_every_snapshot_is_of_a_screen(request: pytest.FixtureRequest) -> None:
    stale = [path for path in FOLDER.iterdir() if path.stem not in {*CASES, *FLEETS}]
    if request.config.getoption("--snapshot-update"):
        while stale:
            stale.pop().unlink()
    assert not stale, UPDATE
