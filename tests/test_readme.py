"""The README is true: its commands exist, and it names every field of the JSON."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from gputop.model import sections
from gputop.model.environ import Descendant, Environ, Surroundings
from gputop.model.frame import Frame, Host, PciCard, Problem, Process
from gputop.model.gpu import Gpu, MigDevice, Opener
from gputop.model.place import Container, Place
from gputop.model.probed import Probed, ProbedDevice
from gputop.model.signals import Freed, Verdict
from gputop.model.topology import Topology
from gputop.tui.app import GputopApp
from gputop.tui.screens.main import MainScreen

SECTIONS = [kind for kind in vars(sections).values()
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]  # fmt: skip
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


JSON = [Frame, Host, Gpu, MigDevice, *SECTIONS, Topology, Process, Surroundings, Environ,
        Descendant, Problem, PciCard, Probed, ProbedDevice, Opener, Place, Container, Verdict,
        Freed]  # fmt: skip


@pytest.mark.parametrize("struct", JSON)
def test_every_field_of_the_json_is_documented(struct: type[msgspec.Struct]) -> None:
    missing = [field for field in struct.__struct_fields__ if f"`{field}`" not in README]
    assert missing == []


def test_pictures_exist() -> None:
    pictures = re.findall(r"\]\((screenshots/[^)]+)\)", README)
    assert pictures
    assert [name for name in pictures if not (Path(__file__).parent.parent / name).exists()] == []


def test_nobody_is_told_to_install_another_project() -> None:
    assert not re.search(r"(pip|pipx|uv)[^\n]* install[^\n]* gputop(?!-tui)\b", README)


@pytest.mark.parametrize("owner", [GputopApp, MainScreen])
def test_every_key_is_named(owner: type[GputopApp] | type[MainScreen]) -> None:
    names = {
        "slash": "/", "question_mark": "?", "plus": "+", "minus": "-", "right": "→", "left": "←",
        "escape": "Esc", "enter": "Enter", "ctrl+l": "Ctrl-L", "ctrl+z": "Ctrl-Z", "ctrl+c": "`q`",
        "space": "Space",
    }  # fmt: skip
    for binding in owner.BINDINGS:
        key = getattr(binding, "key", "").split(",")[0]
        name = names.get(key, key)
        assert name.startswith("`") or f"`{name}`" in README, f"no word about {key}"
