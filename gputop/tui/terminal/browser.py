"""The driver of a page in a browser: Textual's, which takes its size from the page alone."""

from __future__ import annotations

import asyncio
from typing import cast

from textual.drivers.web_driver import WebDriver
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message


class BrowserDriver(WebDriver):
    """Reads what a page says from standard input. `gputop serve` has bounded the sizes in it."""

    def process_message(self, message: Message) -> None:
        """Drop a size that was typed, as some terminals report it: nobody has bounded that."""
        if not isinstance(message, Resize):
            super().process_message(message)

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Have a size take the way of the first one, which is slower than that of other messages:
        what the page said before its viewer had started would be forgotten."""
        if packet_type != "resize" or (loop := self._app._loop) is None:
            super().on_meta(packet_type, payload)
            return
        size = Size(cast(int, payload["width"]), cast(int, payload["height"]))
        self._size = size.width, size.height
        asyncio.run_coroutine_threadsafe(self._app._post_message(Resize(size, size)), loop)
