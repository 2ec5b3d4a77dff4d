"""The pictures in screenshots/ are of today: `python -m tests.screenshots` makes them again."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

FOLDER = Path(__file__).parent.parent / "screenshots"
MAKE = "import asyncio, sys, pathlib; from tests.screenshots import demo_pictures; "
MAKE += "asyncio.run(demo_pictures(pathlib.Path(sys.argv[1])))"


def words(picture: Path) -> str:
    """What a picture says; how SVGs are written changes with Textual."""
    svg = picture.read_text(encoding="utf-8")
    return html.unescape("\n".join(re.findall(r"<text [^>]*>([^<]*)</text>", svg)))


@pytest.mark.timeout(300)  # on a machine that is busy with other things
@pytest.mark.long
def test_pictures_of_the_demo_are_of_today(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", MAKE, str(tmp_path)], check=True, cwd=FOLDER.parent)
    stale = [
        str(name)
        for name in sorted(fresh.relative_to(tmp_path) for fresh in tmp_path.rglob("*.svg"))
        if not (FOLDER / name).exists() or words(FOLDER / name) != words(tmp_path / name)
    ]
    assert not stale, "run python -m tests.screenshots"
