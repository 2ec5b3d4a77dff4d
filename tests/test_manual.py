"""The manual is true: its tables are those of the code, its commands and links exist; and it can be
read as text, on a terminal and from a wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gputop.commands import HELP
from gputop.commands.help import IN_ASCII
from gputop.export.json import JsonGpu
from gputop.manual import COMMANDS, FOLDER, TOPICS, blocks, found, page, plain
from gputop.model.machine import sections
from gputop.model.machine.environment import (
    AgentSurroundings,
    CudaContext,
    Environ,
    RelatedProcess,
)
from gputop.model.machine.frame import Frame, Host, PciCard, Problem, Process
from gputop.model.machine.gpu import DeviceHolder, MigDevice
from gputop.model.machine.origin import Container, Origin
from gputop.model.machine.topology import Topology
from gputop.tui.app import GputopApp
from gputop.tui.palette import binding_ids
from tests.driver import forked
from tests.manual import GENERATED, README, names_in, regenerated
from tests.terminal import Terminal

GPUTOP = [sys.executable, "-m", "gputop"]
ROOT = README.parent
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
ALL = {"README": README.read_text(encoding="utf-8"), **PAGES}
SECTIONS = [kind for kind in vars(sections).values()
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]  # fmt: skip
JSON = [Frame, Host, AgentSurroundings, JsonGpu, MigDevice, *SECTIONS, Topology, Process,
        CudaContext, Environ, RelatedProcess, Problem, PciCard, DeviceHolder, Origin,
        Container]  # fmt: skip
WIDEST = 78
"""Columns of code in a page, but for what a command prints: a terminal of 80 shows it whole."""


def gputop(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    return forked.run([*GPUTOP, *arguments], environ)


# What the pages say


@pytest.mark.parametrize("name", ALL)
def test_generated_tables_are_of_today(name: str) -> None:
    assert regenerated(ALL[name]) == ALL[name], "run python -m tests.manual"


def test_every_table_is_somewhere_and_whole() -> None:
    used = [name for text in ALL.values() for name in names_in(text)]
    assert sorted(used) == sorted(GENERATED)
    rows = [row for name in GENERATED for row in GENERATED[name]().splitlines()]
    assert [row for row in rows if row.endswith("|  |") and " lines" not in row] == []
    assert [row for row in rows if "model." in row or "``" in row] == []


@pytest.mark.parametrize("struct", JSON)
def test_every_field_of_the_json_is_documented(struct: type[msgspec.Struct]) -> None:
    documented = set(re.findall(r"`(?:\w+\.)?(\w+)`", PAGES["json"] + PAGES["metrics"]))
    fields = set(struct.__struct_fields__) - {name for name in _sections() if struct is JsonGpu}
    assert fields - documented == set()


def _sections() -> set[str]:
    """The sections of a GPU, which are documented by their fields."""
    return {name for name in JsonGpu.__struct_fields__ if f"`{name}." in PAGES["metrics"]}


def test_topics_are_the_pages() -> None:
    assert set(TOPICS) == set(PAGES)
    assert set(HELP) <= {*TOPICS, *COMMANDS}
    assert set(COMMANDS.values()) <= set(TOPICS)


def test_every_page_has_one_title_and_the_readme_is_short() -> None:
    for text in PAGES.values():
        assert next(blocks(text)).text.startswith("# ")
        assert len(re.findall(r"^# ", re.sub(r"```.*?```", "", text, flags=re.S), re.M)) == 1
    assert len(ALL["README"].splitlines()) <= 200


@pytest.mark.parametrize("name", ALL)
def test_pictures_and_links_exist(name: str) -> None:
    folder = ROOT if name == "README" else FOLDER
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", ALL[name])
    assert [link for link in links if not (folder / link).exists()] == []


@pytest.mark.parametrize("name", ALL)
def test_commands_and_options_exist(name: str) -> None:
    code = re.findall(r"^```\w*\n(.*?)^```", ALL[name], re.S | re.M)
    code += re.findall(r"`(gputop [^`]*)`", re.sub(r"```.*?```", "", ALL[name], flags=re.S))
    told = {command: gputop_help(command) for command in ("", *HELP)}
    for command, rest in re.findall(r"\bgputop ((?!-)[a-z]+\b)?([^|\n)#]*)", "\n".join(code)):
        assert command in told, f"there is no gputop {command}"
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", rest.partition("'")[0]):
            assert option in told[command] or option in told[""], f"gputop {command} {option}"


def gputop_help(command: str) -> str:
    """The help of a command."""
    from gputop.parser import make_parser

    parser = make_parser([command])
    (commands,) = [action for action in parser._actions if action.dest == "command"]
    return (commands.choices[command] if command else parser).format_help()  # type: ignore[index]


@pytest.mark.parametrize("topic", TOPICS)
def test_code_fits_a_terminal(topic: str) -> None:
    code = [block.text for block in blocks(PAGES[topic]) if block.kind == "code"]
    lines = [line for text in code if not text.startswith("$ ") for line in text.splitlines()]
    assert [line for line in lines if len(line) > WIDEST] == []


def test_fields_of_a_host_exist() -> None:
    named = set(re.findall(r"\bhost\.([a-z_]+)", " ".join(ALL.values())))
    assert "requested_name" in named
    assert named <= {*Host.__struct_fields__}


def test_every_name_of_a_key_is_on_the_page() -> None:
    named = set(re.findall(r"`([a-z]+\.[\w-]+)`", PAGES["keys"]))
    assert {id_ for id_ in binding_ids(GputopApp) if not re.match(r"pid\.[1-8]", id_)} <= named


# As text


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_as_text(topic: str) -> None:
    text = plain(page(topic))
    assert text.startswith(f"{PAGES[topic].splitlines()[0][2:].upper()}\n\n")
    assert not re.search(r"<!--|\]\(|!\[|^#|^\|", text, re.M)
    code = {f"    {line}" for block in blocks(page(topic)) if block.kind == "code"
            for line in block.text.splitlines()}  # fmt: skip
    wide = [line for line in text.splitlines() if len(line) > 80 and line not in code]
    assert [line for line in wide if len(max(line.split(), key=len)) < 60] == []


def test_plain_text() -> None:
    markdown = """\
# Title

<!-- generated: x -->

![a picture](x.svg)

Some *marked* and **bold** `*code*` with a [page](filter.md#words), [another](keys.md) and
[the web](https://example.org).

- an item
  that goes on
- another

| key | what it does |
|---|---|
| `a` \\| b | one |

```sh
# no heading

ls | wc
```
"""
    assert (
        plain(re.sub(r"^(?:<!--.*|!\[.*)\n\n", "", markdown, flags=re.M), 60)
        == """\
TITLE

Some marked and bold `*code*` with a page (gputop help
filter), another (gputop help keys) and the web
(https://example.org).

- an item that goes on
- another

  key    what it does
  a | b  one

    # no heading

    ls | wc
"""
    )


@pytest.mark.system
def test_a_page_without_a_terminal() -> None:
    done = gputop("help", "filter")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == plain(page("filter"))
    assert gputop("help").stdout == plain(page("start"))
    assert gputop("help", "kill").stdout == plain(page("killing"))


@pytest.mark.system
def test_a_locale_without_unicode() -> None:
    """Arrows are keys, and would be question marks, which are a key as well."""
    done = gputop("help", "keys", env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "  up down j k " in done.stdout
    with Terminal([*GPUTOP, "help", "keys"], cols=100, rows=24, env={"LC_ALL": "C"}) as terminal:
        assert terminal.exit_code() == 0
        assert terminal.raw.isascii()


@pytest.mark.system
@pytest.mark.parametrize(("glyphs", "is_ascii"), [("ascii", True), ("unicode", False)])
def test_the_signs_of_the_settings(glyphs: str, is_ascii: bool) -> None:
    env = {"LC_ALL": "C" if glyphs == "unicode" else "C.UTF-8"}
    done = gputop("help", "keys", "--glyphs", glyphs, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii() == is_ascii
    done = gputop("help", "-s", "PgUp", env={**env, "GPUTOP_GLYPHS": glyphs})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii() == is_ascii


@pytest.mark.parametrize("topic", TOPICS)
def test_every_sign_has_a_name_in_ascii(topic: str) -> None:
    assert plain(page(topic)).translate(IN_ASCII).isascii()


@pytest.mark.system
def test_no_such_topic() -> None:
    done = gputop("help", "kyes")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "gputop: unknown topic 'kyes': did you mean keys? choose from"
        f" {', '.join([*TOPICS, *COMMANDS])}\n"
    )


@pytest.mark.system
def test_search() -> None:
    done = gputop("help", "-s", "PIDFD")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gputop help security: Signals and containers\n    A signal goes to" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    below = " ".join(found("mem>10G"))
    assert "gputop help filter: " in below
    assert "gputop help start: " in below


@pytest.mark.system
def test_a_word_that_is_nowhere() -> None:
    done = gputop("help", "-s", "xyz\x1b[2Jzy")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gputop: the manual has no 'xyz\\x1b[2Jzy'; its topics: start, ")
    assert done.stderr.count("\n") == 1
    assert "-s cannot be used with TOPIC" in gputop("help", "keys", "-s", "x").stderr


# On a terminal


@pytest.mark.system
def test_leafing_through() -> None:
    with Terminal([*GPUTOP, "help", "filter"], cols=80, rows=24) as terminal:
        terminal.wait_for(lambda: b"\x1b[?1000h" in terminal.raw)  # clicks
        terminal.wait_for("gputop help filter")
        terminal.wait_for("processes with both words")
        terminal.send(b"\x1b[C")
        terminal.wait_for("gputop help free")
        terminal.wait_for("What free means")
        terminal.send(b"\x1b[D")
        terminal.wait_for("gputop help filter")
        terminal.send(b"G")
        terminal.wait_for("In gputop kill")
        terminal.send(b"c")
        terminal.wait_for(TOPICS["start"][:40])
        terminal.send(b"jj\r")
        terminal.wait_for("gputop help keys")
        terminal.send(b"\x1b")
        terminal.wait_for(TOPICS["start"][:40])
        terminal.send(b"q")
        assert terminal.exit_code() == 0


@pytest.mark.system
@pytest.mark.long
def test_searching_on_the_screen(tmp_path: Path) -> None:
    """And one's own key for the end."""
    settings = tmp_path / "gputop" / "config.toml"
    settings.parent.mkdir()
    settings.write_text("[keys]\n'manual.quit' = 'x'\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    with Terminal([*GPUTOP, "help"], cols=100, rows=40, env=env) as terminal:
        terminal.wait_for("The first look")
        terminal.send(b"/")
        terminal.wait_for("a word")
        terminal.send(b"pidfd\r")
        terminal.wait_for("gputop help killing")
        terminal.send(b"n")
        terminal.wait_for("gputop help security")
        terminal.send(b"x")
        assert terminal.exit_code() == 0


@pytest.mark.system
def test_a_terminal_that_can_show_nothing() -> None:
    command = [*GPUTOP, "help", "filter"]
    with Terminal(command, cols=100, rows=60, env={"TERM": "dumb"}) as terminal:
        terminal.wait_for("FILTER")
        assert terminal.exit_code() == 0
        assert b"\x1b[?1049h" not in terminal.raw


@pytest.mark.system
def test_wrong_settings_do_not_keep_anybody_from_the_manual(tmp_path: Path) -> None:
    env = {"GPUTOP_THEME": "pink"}
    with Terminal([*GPUTOP, "help", "settings"], cols=100, rows=40, env=env) as terminal:
        terminal.wait_for("gputop help settings")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
