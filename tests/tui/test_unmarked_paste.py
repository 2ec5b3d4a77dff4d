"""Text that a terminal pastes without marking it does nothing; keys that come at once act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual import events

from gputop.settings import Session
from gputop.tui.terminal.unmarked_paste import UnmarkedPaste
from tests.builders_tui import Screenful, frame_of, gpu_of, process_of, shown
from tests.conftest import rest_long
from tests.driver import Machine
from tests.tui.live import running

FRAME = frame_of(
    gpu_of(0), gpu_of(1), process_of(301, user="amy"), process_of(302, gpu=1, user="bob")
)
IGNORED = "pasted text is not a command"
TEXTS = (
    "Tesla V100\n",
    "TITAN",
    "Time: 3 s\n",
    "ls -l\n",
    "I think we should quit. S w T C W y\n",
    "import torch\ntorch.cuda.set_device(2)\nexit()\n",
)


async def at_once(screen: Screenful, text: str, begin: float | None = None) -> float:
    """Let a text come as keys in one go, at a time in seconds; return the time."""
    keys = [screen.hand.key("enter" if char in "\n\r" else char) for char in text]
    begin = keys[0].time if begin is None else begin
    for key in keys:
        key.time = begin
        screen.app.post_message(key)
    await screen.press()
    return begin


@rest_long("text", *TEXTS)
@pytest.mark.parametrize("opened", [(), ("s",), ("G",)])
async def test_a_text_changes_and_saves_nothing(
    text: str, opened: tuple[str], tmp_path: Path
) -> None:
    path = tmp_path / "config.toml"
    async with shown(FRAME, settings=Session(path=path)) as screen:
        await screen.press(*opened)
        stack, theme = [*screen.app.screen_stack], screen.app.theme
        await at_once(screen, text)
        assert (screen.app.screen_stack, screen.app.theme) == (stack, theme)
        assert not path.exists()
        assert screen.table.listing.tagged == []
        if not opened:
            assert IGNORED in screen.text


TYPED: dict[str, Callable[[Screenful], bool]] = {
    "jj": lambda screen: screen.selected == 302,
    "j" * 300: lambda screen: screen.selected == 302,
    "uu\n": lambda screen: "of bob" in screen.text,
    "302\n": lambda screen: screen.app.screen is not screen.main,
    "/bob\n": lambda screen: screen.pids == [302],
    "jj/b ob!(c)\n": lambda screen: "b ob!(c)" in screen.text,
    "m0,1\n": lambda screen: screen.mapping_state.query.text == "0,1",
    "sjj\n": lambda screen: screen.table.listing.sort_id == "pid",
    "Cjjj \n": lambda screen: "USER" not in screen.line_with("COMMAND"),
    "jA": lambda screen: len(screen.table.listing.tagged) == 2,
    "/amy\rjcsjj\rm1,0\rp": lambda screen: "PAUSED" in screen.text,
    "tcI": lambda screen: "tree" in screen.text,
}


@rest_long("keys", *TYPED)
async def test_keys_that_a_slow_line_delivers_at_once_act(keys: str) -> None:
    async with shown(FRAME) as screen:
        await at_once(screen, keys)
        assert TYPED[keys](screen), screen.text
        assert IGNORED not in screen.text


async def test_keys_that_lead_back_and_on_from_there_act() -> None:
    async with shown(FRAME) as screen:
        await screen.press("G")
        await at_once(screen, "qc/bob")
        assert screen.pids == [302]


async def test_a_text_goes_on_until_there_is_a_pause() -> None:
    async with shown(FRAME) as screen:
        theme = screen.app.theme
        begin = await at_once(screen, "Hello world\n")
        await at_once(screen, "T", begin + 0.25)
        await at_once(screen, "T", begin + 0.5)
        assert screen.app.theme == theme
        await at_once(screen, "T", begin + 0.9)
        assert screen.app.theme != theme


async def test_keys_that_are_typed_fast_act() -> None:
    async with shown(FRAME) as screen:
        theme = screen.app.theme
        await screen.press(*"Tesla")
        assert screen.app.theme != theme
        assert IGNORED not in screen.text


def test_a_key_with_alt_is_typed() -> None:
    keys = [events.Key(name, name[-1]) for name in ("alt+T", "T", "q")]
    paste = UnmarkedPaste()
    assert [paste.has(key, keys[n + 1 :], lambda: {"T": False, "q": False})
            for n, key in enumerate(keys)] == [False] * 3  # fmt: skip


async def test_escape_is_never_part_of_a_text() -> None:
    async with shown(FRAME) as screen:
        await screen.press("j")
        begin = await at_once(screen, "Hello world\n")
        key = screen.hand.key("escape")
        key.time = begin
        screen.app.post_message(key)
        await screen.press()
        assert screen.selected is None


@pytest.mark.system
@pytest.mark.long
def test_a_terminal_that_marks_no_paste(machine: Callable[..., Machine], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    env = {"XDG_CONFIG_HOME": str(kept)}
    with running(machine("h200x8"), env=env) as terminal:
        terminal.send(b"Tesla V100, q to quit.\rS w C T q q\r" * 200)
        terminal.wait_for(IGNORED)
        terminal.wait_for(lambda: IGNORED not in terminal.text)
        assert not kept.exists()
        terminal.send(b"q")
        assert terminal.exit_code(10) == 0
