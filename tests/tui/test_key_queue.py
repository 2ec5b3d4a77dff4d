"""A key takes effect before the next is handled, on a machine that is busy as well."""

from __future__ import annotations

import asyncio
import time

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from gputop.tui.terminal.key_queue import SerialInput
from tests.patience import Deadline


class Form(Screen[None]):
    """Its key opens an input, slowly, or gets lost."""

    BINDINGS = [("o", "open"), ("x", "lose")]
    AUTO_FOCUS = ""

    def compose(self) -> ComposeResult:
        yield Input()

    async def action_open(self) -> None:
        for _ in range(50):
            time.sleep(0.01)  # others have the core
            await asyncio.sleep(0)
        self.query_one(Input).focus()

    def action_lose(self) -> None:
        app = self.app
        assert isinstance(app, Turns)
        app._await_screen = lambda sequence: None  # type: ignore[method-assign]


class Turns(SerialInput[None]):
    def on_mount(self) -> None:
        self.push_screen(Form())


async def typed(app: Turns, *keys: str) -> None:
    """Type all at once, and wait until all have taken effect."""
    for key in keys:
        app.post_message(events.Key(key, key))
    deadline = Deadline(10)
    while app._waiting or app._at_work or not app._sequence:
        assert deadline.left() > 0, app._waiting
        await asyncio.sleep(0.005)


async def test_the_next_key_waits_for_one_that_has_no_core() -> None:
    async with Turns().run_test() as pilot:
        assert isinstance(pilot.app, Turns)
        await typed(pilot.app, "o", "2")
        assert pilot.app.screen.query_one(Input).value == "2"


async def test_a_key_that_got_lost_holds_up_no_other() -> None:
    async with Turns().run_test() as pilot:
        app = pilot.app
        assert isinstance(app, Turns)
        await typed(app, "x", "o", "2")
        assert app.screen.query_one(Input).value == "2"
