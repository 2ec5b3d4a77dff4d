"""The settings file: what it may hold, what is said of one that is broken, what is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gputop.errors import UsageError
from gputop.model.process_metrics import COLUMNS
from gputop.settings import Settings, keep_settings, read_settings, settings_path
from tests.builders_tui import frame_of, gpu_of, process_of, shown
from tests.conftest import MachineFactory
from tests.terminal import Terminal


def read(tmp_path: Path, text: str) -> dict[str, object]:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return read_settings(path, COLUMNS)


def test_where_it_is() -> None:
    assert settings_path({"XDG_CONFIG_HOME": "/a"}) == Path("/a/gputop/config.toml")
    for environ in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert settings_path(environ) == Path("~/.config/gputop/config.toml").expanduser()


def test_what_it_sets(tmp_path: Path) -> None:
    text = '[processes]\ncolumns = ["pid", "idle_for", "pid"]\nsort = "age"\nidle_after = 60\n'
    assert read(tmp_path, text) == {
        "columns": ("pid", "idle_for"), "sort": "age", "idle_after": 60.0,
    }  # fmt: skip
    assert set(read(tmp_path, text)) <= set(Settings.__slots__)
    assert read(tmp_path, "") == read(tmp_path, "[other]\n") == {}
    assert read_settings(tmp_path / "none", COLUMNS) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[processes\n", "line 1"),
        ("processes = 3\n", r"write \[processes\]"),
        ('[processes]\ncolumns = ["gpu", "colour"]\n', "there is no column 'colour'"),
        ("[processes]\ncolumns = 3\n", "columns = 3"),
        ("[processes]\nsort = []\n", r"sort = \[\]"),
        ("[processes]\nidle_after = -1\n", "idle_after = -1"),
        ("[processes]\nidle_after = 'x'\n", "idle_after = 'x'"),
        ("[processes]\nfont = 1\n", "font = 1"),
        ("\ud800", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match=words) as raised:
        read_settings(path, COLUMNS)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_kept_leaves_the_rest_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    keep_settings(path, (), "age")
    assert read_settings(path, COLUMNS) == {"sort": "age"}
    path.write_text("# mine\n[processes]\nidle_after = 60 # a minute\n", encoding="utf-8")
    keep_settings(path, ("pid", "command"), "pid")
    assert path.read_text(encoding="utf-8").startswith("# mine\n[processes]\nidle_after = 60 # a m")
    assert read_settings(path, COLUMNS)["columns"] == ("pid", "command")
    assert [one.name for one in path.parent.iterdir()] == ["config.toml"]


def test_a_broken_file_is_named_and_left_alone(machine: MachineFactory, tmp_path: Path) -> None:
    here = machine("h200x8")
    path = Path(here.env["XDG_CONFIG_HOME"], "gputop", "config.toml")
    path.parent.mkdir(parents=True)
    path.write_text("[processes]\nsort = 'nothing'\n", encoding="utf-8")
    with Terminal([sys.executable, "-m", "gputop"], cols=80, rows=24, env=here.env) as terminal:
        terminal.wait_for("train.py")
        assert b"sort = 'nothing' is nothing that can be set" in bytes(terminal.raw)
        terminal.send(b"sj\r")
        terminal.wait_for("sort: SM%")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
    assert path.read_text(encoding="utf-8") == "[processes]\nsort = 'nothing'\n"


def test_columns_and_order_are_kept_between_runs(machine: MachineFactory) -> None:
    here = machine("h200x8")
    gputop = [sys.executable, "-m", "gputop"]
    with Terminal(gputop, cols=120, rows=40, env=here.env) as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"C \r")  # without the first, which is the GPU
        terminal.wait_for(lambda: " GPU  CUDA" not in terminal.text)
        terminal.send(b"sj\r")
        terminal.wait_for("sort: SM%")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
    with Terminal(gputop, cols=120, rows=40, env=here.env) as terminal:
        terminal.wait_for("train.py")
        assert " CUDA          PID" in terminal.text
        assert " GPU  CUDA" not in terminal.text
        assert "sort: SM%" in terminal.text


async def test_columns_are_chosen_and_moved() -> None:
    frame = frame_of(gpu_of(0), process_of(401))
    async with shown(frame, size=(120, 30)) as screen:
        await screen.press("C", "j", "space", "j", "right_square_bracket", "enter")
        labels = screen.line_with("COMMAND").split()
        assert labels[:3] == ["GPU", "USER", "PID"]
        await screen.press("C", "space", "k", "escape")
        assert screen.line_with("COMMAND").split()[:3] == ["GPU", "USER", "PID"]
        await screen.press("C", *["down"] * 3, "left_square_bracket", "enter")
        assert len(screen.line_with("COMMAND").split()) == len(labels)
