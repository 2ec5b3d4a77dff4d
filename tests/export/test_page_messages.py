"""What a page in a browser may say to `gputop serve`."""

from __future__ import annotations

import pytest

from gputop.export.browser.viewer import Keys, Resize, Window, page_message
from gputop.export.http import is_own_name, is_same_origin
from gputop.tui.terminal.app import report


@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((160, 40), (160, 40)), ((10**9, 10**9), (1000, 400)), ((0, -1), (1, 1)),
        ((10**40, 1), (1000, 1)), ((8.5, 8), None), (("8", 8), None), ((None, 8), None),
        ((True, 8), None),
    ],
)  # fmt: skip
def test_a_window_has_a_size_that_a_screen_can_have(
    size: tuple[object, object], window: tuple[int, int] | None
) -> None:
    width, height = (str(number).lower().replace("none", "null") for number in size)
    if isinstance(size[0], str):
        width = f'"{width}"'
    text = f'["resize", {{"width": {width}, "height": {height}}}]'
    if window is None:
        with pytest.raises(ValueError, match="Expected"):
            page_message(text)
    else:
        message = page_message(text)
        assert isinstance(message, Resize)
        assert message.size == Window(*window)


def test_a_viewer_that_crashes_leaves_no_file() -> None:
    assert report(ValueError("x"), keeps=False) == "internal error (ValueError: x)"


def test_keys_are_text() -> None:
    assert page_message('["stdin", "\\u001b[A\\ud83d\\ude00"]') == Keys("\x1b[A\U0001f600")


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://127.0.0.1:8787", "127.0.0.1:8787", True),
        ("https://GPUS.example.org", "gpus.example.org", True),
        ("http://127.0.0.1:8788", "127.0.0.1:8787", False),
        ("http://localhost:8787", "127.0.0.1:8787", False),
        ("http://127.0.0.1:8787.evil.test", "127.0.0.1:8787", False),
        ("null", "null", False),
        ("file://", "", False),
        ("http://", "", False),
    ],
)
def test_origins(origin: str, host: str, same: bool) -> None:
    assert is_same_origin(origin, host) is same


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:1", True), ("[::1]:1", True), ("10.1.2.3", True), ("LOCALHOST.:1", True),
        ("gpus:1", True), ("evil.test", False), ("localhost.evil.test", False),
        ("127.0.0.1.evil.test", False), ("", False), ("[::1", False),
    ],
)  # fmt: skip
def test_own_names(host: str, own: bool) -> None:
    assert is_own_name(host, "gpus") is own
