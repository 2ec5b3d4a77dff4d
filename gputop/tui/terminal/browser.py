"""The driver of a page in a browser: Textual's, which takes its size from the page alone."""

from textual.drivers.web_driver import WebDriver
from textual.events import Resize
from textual.message import Message


class BrowserDriver(WebDriver):
    """Reads what a page says from standard input. `gputop serve` has bounded the sizes in it."""

    def process_message(self, message: Message) -> None:
        """Drop a size that was typed, as some terminals report it: nobody has bounded that."""
        if not isinstance(message, Resize):
            super().process_message(message)
