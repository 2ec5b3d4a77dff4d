"""The README and the pages for developers are true: what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gputop

PACKAGE = Path(gputop.__file__).parent
ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MANUAL = [f"gputop/manual/{path.name}" for path in sorted((PACKAGE / "manual").glob("*.md"))]
PAGES = ["README.md", ".github/CONTRIBUTING.md", "bench/README.md", *MANUAL]
NOT_THERE = {"gputop/commands/users.py", "tests/driver/scenarios/NAME.json"}
"""What CONTRIBUTING has somebody write."""


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(r"(?<![\w/.-])(?:gputop|tests|bench|\.ci|\.github)/[\w/.*-]*[\w/]", text)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", text)
    assert [path for path in set(paths) - NOT_THERE if not any(ROOT.glob(path.strip("/")))] == []
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_modules_that_docstrings_name_exist() -> None:
    tops = "|".join(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
    named = {
        path
        for module in PACKAGE.rglob("*.py")
        for path in re.findall(rf"(?<![\w/])((?:{tops})/[\w/]+\.py)", module.read_text("utf-8"))
    }
    assert "model/machine/frame.py" in named
    assert [path for path in sorted(named) if not (PACKAGE / path).exists()] == []


def test_nobody_is_told_to_install_another_project() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert not re.search(r"(pip|pipx|uv)[^\n]* install[^\n]* gputop(?!-tui)\b", text)
