"""The settings file: what it may hold, what is said of one that is broken, what is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from textual import events

from gputop.errors import UsageError
from gputop.model.metrics.process import SOMETIMES
from gputop.protocol.messages import Refresh, SetInterval
from gputop.settings import (
    ProcessSettings,
    Session,
    Settings,
    from_environment,
    from_file,
    keep_settings,
    settings_path,
    usable,
)
from tests.builders_tui import frame_of, gpu_of, process_of, shown
from tests.conftest import MachineFactory, rest_long
from tests.driver import Machine
from tests.terminal import Terminal


def read(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return from_file(path)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Path("~/.config/gputop/config.toml").expanduser()
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert settings_path() == usual
    for folder, path in {"/a": Path("/a/gputop/config.toml"), "": usual, "relative": usual}.items():
        monkeypatch.setenv("XDG_CONFIG_HOME", folder)
        assert settings_path() == path


def test_what_it_sets(tmp_path: Path) -> None:
    text = """
        interval = 2
        panes = ["gpus"]
        [processes]
        columns = ["pid", "idle_for", "pid"]
        sort = "age"
        idle_after = 60
        [keys]
        "main.filter" = "/,ctrl+f"
    """
    settings = read(tmp_path, text)
    assert settings.processes == ProcessSettings(("pid", "idle_for"), "age", 60.0)
    assert (settings.interval, settings.panes) == (2.0, ("gpus",))
    assert settings.keys == {"main.filter": "/,ctrl+f"}
    assert read(tmp_path, "") == from_file(tmp_path / "none") == Settings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[processes\n", "line 1"),
        ("processes = 3\n", "line 1: processes: Expected `object`"),
        ('[processes]\n\ncolumns = ["gpu", "colour"]\n', "line 3.*no column 'colour'"),
        ("[processes]\ncolumns = 3\n", "line 2: processes.columns: Expected `array`"),
        ("[processes]\nsort = []\n", "line 2: processes.sort: Expected `str`"),
        ("[processes]\nidle_after = -1\n", "line 2: processes.idle_after: Expected `float` > 0"),
        ("[processes]\nidle_after = 'x'\n", "line 2: processes.idle_after"),
        ("# a\n[processes]\nfont = 1\n", "line 3: processes.font: there is no such setting"),
        ("interval = 1\n\n[font]\nsize = 1\n", "line 3: font: there is no such setting"),
        ("theme = 'pink'\n", "line 1: theme: Invalid enum value 'pink'"),
        ("interval = 0.01\n", "line 1: interval: Expected `float` >= 0.1"),
        ("panes = ['gpu']\n", "line 1: panes: Invalid enum value 'gpu'"),
        ("[keys]\n'main.filter' = 3\n", "keys"),
        ("processes.sort = 'no'\n", "line 1.*no column 'no'"),
        ("\ud800", "cannot be read"),
        ("x = " + "[" * 5000, "cannot be read: "),
        ("a." * 40_000 + "b = 1", "cannot be read: a line has more than 200 dots"),
        (f"theme = '{'a' * 5000}'", "line 1: theme: Invalid enum value 'a.{,200}$"),
        ('"a\\nb" = 1\n', "there is no such setting"),
        ("' - at `$.x' = 1\n", "there is no such setting"),
        ("[processes]\n'a` - at `$.x' = 1\n", "processes.a.*there is no such setting"),
        ("theme = ' - at `$.x'\n", "line 1: theme: Invalid enum value ' - at `"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match=words) as raised:
        from_file(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_right_is_used_and_every_mistake_named(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        "interval = 5\ntheme = 'pink'\nreadonly = true\n[font]\nsize = 1\n[processes]\n"
        "idle_after = -1\nsort = 'no'\ncolumns = ['pid', 'colour', 'user']\n"
    )
    settings, mistakes = usable(path)
    assert (settings.interval, settings.theme, settings.readonly) == (5.0, "auto", True)
    assert settings.processes == ProcessSettings(columns=("pid", "user"))
    places = ("theme", "font", "processes.idle_after", "processes.columns", "processes.sort")
    assert sorted(mistake.split(": ")[1] for mistake in mistakes) == sorted(places)


def test_the_environment_goes_over_the_file(tmp_path: Path) -> None:
    in_file = read(tmp_path, "interval = 3\ntheme = 'light'\nreadonly = true\n")
    environ = {"GPUTOP_INTERVAL": "5", "GPUTOP_USER": "me", "GPUTOP_READONLY": "0"}
    both = from_environment(in_file, environ)
    assert (both.interval, both.theme, both.user, both.readonly) == (5.0, "light", "me", False)
    assert from_environment(in_file, {"GPUTOP_THEME": ""}) == in_file
    for name, value in (("INTERVAL", "soon"), ("INTERVAL", "0"), ("THEME", "pink")):
        with pytest.raises(UsageError, match=f"GPUTOP_{name}='{value}': .*; it is: "):
            from_environment(in_file, {f"GPUTOP_{name}": value})


def test_what_is_kept_leaves_the_rest_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    keep_settings(path, {"processes.sort": "age"})
    assert from_file(path).processes == ProcessSettings(sort="age")
    path.write_text("# mine\n[processes]\nidle_after = 60 # a minute\n", encoding="utf-8")
    keep_settings(path, {"processes.columns": ("pid", "command"), "theme": "dark"})
    text = path.read_text(encoding="utf-8")
    assert "# mine" in text
    assert "idle_after = 60 # a minute" in text
    kept = from_file(path)
    assert (kept.processes.columns, kept.theme) == (("pid", "command"), "dark")
    assert [file.name for file in path.parent.iterdir()] == ["config.toml"]


def gputop(here: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return here.run([sys.executable, "-m", "gputop", *arguments])


@pytest.mark.system
def test_the_command_prints_a_file_that_says_the_same(
    machine: MachineFactory, tmp_path: Path
) -> None:
    here = machine("h200x8")
    path = written(here, "interval = 2.5\n[keys]\n'main.filter' = 'F'\n[thresholds]\nhot = 70\n")
    assert gputop(here, "config", "--path").stdout == f"{path}\n"
    printed = gputop(here, "config").stdout
    assert "# seconds between refreshes [file]\ninterval = 2.5\n" in printed
    assert read(tmp_path, printed) == from_file(path)
    assert read(tmp_path, gputop(here, "config", "--default").stdout) == Settings()
    assert gputop(here, "config", "--check").stdout == f"{path}: no mistakes\n"
    assert "the next login sends 2 kB instead of 105\ncache_agent = false\n" in printed


@pytest.mark.system
def test_the_command_says_what_is_wrong(machine: MachineFactory) -> None:
    here = machine("h200x8")
    path = written(here, "[keys]\n'time.run' = 'F'\n'manual.quit' = 'x'\n'pid.0' = 'y'\n")
    assert gputop(here, "config", "--check").stdout == f"{path}: no mistakes\n"
    path = written(here, "interval = 0\ntheme = 'x'\n[keys]\n'main.filters' = 'F'\n")
    done = gputop(here, "config", "--check")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.count("config.toml") for line in done.stderr.splitlines()] == [1, 1, 1]
    assert f"{path}: keys.main.filters: no such key; the keys are: app." in done.stderr
    written(here, "interval = 0\n")
    for arguments in (["config"], ["config", "--check"]):
        done = gputop(here, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "line 1: interval" in done.stderr


def written(here: Machine, text: str) -> Path:
    path = Path(here.env["XDG_CONFIG_HOME"], "gputop", "config.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.system
def test_a_broken_file_is_named_and_left_alone(machine: MachineFactory, tmp_path: Path) -> None:
    here = machine("h200x8")
    path = written(here, "[processes]\nsort = 'nothing'\n")
    with Terminal([sys.executable, "-m", "gputop"], cols=80, rows=24, env=here.env) as terminal:
        terminal.wait_for("train.py")
        assert b"line 2: processes.sort: there is no column 'nothing'" in bytes(terminal.raw)
        terminal.wait_for("─ 1 wrong setting: config --check ─")
        terminal.send(b"s" + b"j" * 6 + b"\r")
        terminal.wait_for("by SM%")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
    assert path.read_text(encoding="utf-8") == "[processes]\nsort = 'nothing'\n"


@pytest.mark.system
def test_columns_and_order_are_kept_between_runs(machine: MachineFactory) -> None:
    here = machine("h200x8")
    gputop = [sys.executable, "-m", "gputop"]
    with Terminal(gputop, cols=120, rows=40, env=here.env) as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"C \r")  # without the first, which is the GPU
        terminal.wait_for(lambda: " GPU  CUDA" not in terminal.text)
        terminal.send(b"s" + b"j" * 6 + b"\r")
        terminal.wait_for("by SM%")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
    with Terminal(gputop, cols=120, rows=40, env=here.env) as terminal:
        terminal.wait_for(" CUDA          PID")
        assert " GPU  CUDA" not in terminal.text
        assert "by SM%" in terminal.text


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


@rest_long(
    ("keys", "columns"),
    ("enter", ()),
    ("j space space enter", ()),
    ("j j j j space enter", ("type", "idle_for?", "rss?", "state?")),
    ("j j j j space space enter", ("idle_for?", "rss?", "state?")),
    ("j j j j space space space enter", ()),
)
async def test_what_is_auto_stays_auto(keys: str, columns: tuple[str], tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    frame = frame_of(gpu_of(0), process_of(401))
    async with shown(frame, size=(80, 30), settings=Session(path=path)) as screen:
        await screen.press("C")
        for row in (r"\[x\]    PID ", r"\[auto\] TYPE ", r"\[auto\] IDLE ", r"\[ \]    THREADS "):
            assert re.search(row, screen.text)
        assert "▸" not in screen.text
        assert screen.lines[-1].strip().endswith("  Enter save  Esc cancel")
        await screen.press(*keys.split())
    kept = from_file(path).processes.columns
    assert tuple(name for name in kept if name.removesuffix("?") in SOMETIMES) == columns
    assert bool(kept) == bool(columns)
    async with shown(
        frame, size=(80, 30), settings=Session(processes=ProcessSettings(kept))
    ) as again:
        assert ("TYPE" in again.line_with("COMMAND")) == ("type" in columns)


def test_a_column_can_be_auto_only_once_and_only_some_can(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[processes]\ncolumns = ["pid", "type?", "type", "pid?"]\n')
    settings, [mistake] = usable(path)
    assert settings.processes.columns == ("pid", "type")
    assert "there is no column 'pid?'" in mistake


async def test_panes_are_hidden_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    frame = frame_of(gpu_of(0), process_of(401))
    async with shown(frame, size=(120, 40), settings=Session(path=path)) as screen:
        await screen.press("f2", "down", "down", "space", "down", "space", "enter")
        assert "CUDA_VISIBLE_DEVICES" not in screen.text
        await screen.press("f2", "space", "down", "space", "enter")  # the last one stays
        assert "POWER" not in screen.text
        assert "COMMAND" in screen.text
        assert not path.exists()
        await screen.press("S", "w")
        assert from_file(path).panes == ("processes",)
        await screen.press("f2", "space", "down", "space", "enter")
        assert "COMMAND" not in screen.text
        assert screen.app.focused is screen.gpus
        await screen.show(frame_of(gpu_of(0), process_of(402)))
        await screen.press("f2", "down", "space", "escape")
        assert "402" not in screen.text
        await screen.press("f2", "down", "space", "enter")
        assert "402" in screen.text
        assert from_file(path).panes == ("processes",)
    kept = Session(panes=("gpus",), path=path)
    async with shown(frame, size=(120, 40), settings=kept) as screen:
        assert "POWER" in screen.text
        assert "COMMAND" not in screen.text
        await screen.press("m")  # to edit it is to show it
        assert "CUDA_VISIBLE_DEVICES" in screen.text


async def test_other_keys(tmp_path: Path) -> None:
    frame = frame_of(gpu_of(0), process_of(401), process_of(402, user="bob"))
    keys = {"main.filter": "F,/", "app.pause": "space"}
    async with shown(frame, size=(120, 40), settings=Session(keys=keys)) as screen:
        assert "F filter" in screen.text
        await screen.press("F", *"bob", "enter")
        assert "401" not in screen.text
        await screen.press("question_mark")
        assert "F /" in screen.line_with("Filter: alice, gpu:1")


async def test_other_keys_of_a_page_are_told_below_it() -> None:
    keys = {"process.values": "V"}
    async with shown(frame_of(gpu_of(0), process_of(401)), settings=Session(keys=keys)) as screen:
        await screen.press("j", "enter")
        assert "V values" in screen.lines[-1]


async def test_a_terminal_without_focus_gets_fewer_frames() -> None:
    async with shown(frame_of(gpu_of(0)), settings=Session(unfocused=5.0)) as screen:
        screen.app.post_message(events.AppBlur())
        await screen.pilot.pause()
        assert screen.source.requests[-1] == SetInterval(5.0)
        screen.app.post_message(events.AppFocus())
        await screen.pilot.pause()
        assert SetInterval(1.0) in screen.source.requests[-2:]


async def test_focus_does_not_end_a_pause() -> None:
    async with shown(frame_of(gpu_of(0)), settings=Session(unfocused=5.0)) as screen:
        await screen.press("p")
        screen.app.post_message(events.AppBlur())
        screen.app.post_message(events.AppFocus())
        await screen.pilot.pause()
        assert Refresh() not in screen.source.requests


@pytest.mark.system
@pytest.mark.long
def test_a_user_of_the_file_who_is_not_here(machine: MachineFactory) -> None:
    here = machine("h200x8")
    written(here, "user = 'nobody-like-that'\n")
    argv = [sys.executable, "-m", "gputop"]
    with Terminal(argv, cols=120, rows=30, env=here.env) as terminal:
        terminal.wait_for("train.py")
        said = b"user of the settings: nobody-like-that: no such user here"
        assert said in bytes(terminal.raw)
        terminal.send(b"q")
        assert terminal.exit_code() == 0


async def test_a_theme_that_was_chosen_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    async with shown(frame_of(gpu_of(0)), settings=Session(path=path)) as screen:
        await screen.press("T")
    assert from_file(path).theme == "ansi-light"
