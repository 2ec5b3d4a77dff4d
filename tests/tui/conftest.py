"""What all tests of the screen start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

TextualFactory = Callable[[str], str]
"""From a release to a value of PYTHONPATH with which Textual says that it is that one."""
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def usual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of many colours, and nothing set for CUDA."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("NO_COLOR", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def textual_of(tmp_path: Path) -> TextualFactory:
    """Make the Textual that is installed pass for one of another release."""

    def make(release: str) -> str:
        folder = tmp_path / f"textual-{release}"
        about = folder / "textual-0.dist-info" / "METADATA"
        about.parent.mkdir(parents=True)
        about.write_text(f"Metadata-Version: 2.1\nName: textual\nVersion: {release}\n")
        return f"{folder}:{ROOT}"

    return make
