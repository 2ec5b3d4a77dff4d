"""Alerts of a terminal: bytes that leave the picture as it is."""

from typing import Any

from textual.app import App

from gputop.tui.terminal.compatibility import fits


def alert(app: App[Any], sequence: str) -> None:
    """Send the sequence of a notification between two pictures; ring the bell instead if this
    Textual does not fit."""
    if not fits():
        app.bell()
    elif sequence and app._driver is not None:
        app._driver.write(sequence)
