"""What calls somebody to the terminal: bytes that change nothing of the picture."""

from typing import Any

from textual.app import App

from gputop.tui.terminal.compatibility import fits


def alert(app: App[Any], sequence: str) -> None:
    """Send a sequence for a notification between two pictures; the bell where Textual is one that
    is not known."""
    if not fits():
        app.bell()
    elif sequence and app._driver is not None:
        app._driver.write(sequence)
