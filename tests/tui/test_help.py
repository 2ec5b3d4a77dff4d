"""The help: the keys of each screen, the words, and the manual, in one viewer."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.binding import Binding
from textual.events import Paste

from gputop.manual import TOPICS
from gputop.tui.app import GputopApp
from gputop.tui.dialogs.list_dialog import ColumnsDialog, ListDialog
from gputop.tui.glyphs import UNICODE
from gputop.tui.hosts import HostsScreen
from gputop.tui.keys import REPLAY_BINDINGS
from gputop.tui.main import MainScreen
from gputop.tui.pages.gpu import GpuScreen
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.health import HealthScreen
from gputop.tui.pages.help import HelpScreen
from gputop.tui.pages.mapping import MappingScreen
from gputop.tui.pages.process import ProcessScreen
from gputop.tui.pages.screen_help import sections
from gputop.tui.panes.page import Page
from tests.builders_tui import NOON, Screenful, frame_of, process_of, shown
from tests.conftest import rest_long
from tests.tui.fleets import watched
from tests.tui.replays import record, replayed
from tests.tui.test_past import two_minutes

FRAME = frame_of(process_of(401))
OF_MAIN = "Show or hide ended processes"
SCREENS = {
    "main": ("", "of the main screen", MainScreen),
    "process": ("enter", "on the page of a process", ProcessScreen),
    "GPU": ("shift+tab enter", "on the page of a GPU", GpuScreen),
    "graphs": ("G", "in the graphs", GraphScreen),
    "health": ("H", "in the list of findings", HealthScreen),
    "mapping": ("M", "in the mapping", MappingScreen),
    "dialog": ("C", "of this dialog", ColumnsDialog),
}


async def keys_of(screen: Screenful) -> str:
    """The keys in the help of what is shown, without the words below them."""
    await screen.press("question_mark")
    return (await screen.whole_page()).partition("\n Signs\n")[0]


def words_of(*owners: type) -> set[str]:
    return {binding.tooltip or binding.description for owner in owners
            for binding in vars(owner)["BINDINGS"] if isinstance(binding, Binding)}  # fmt: skip


@rest_long("name", *SCREENS)
async def test_every_screen_has_its_own_keys(name: str) -> None:
    keys, where, owner = SCREENS[name]
    async with shown(FRAME, size=(160, 40)) as screen:
        await screen.press(*keys.split())
        before = screen.app.screen
        text = await keys_of(screen)
        assert f" Keys {where};" in text
        missing = {words for words in words_of(owner) if words not in text}
        assert missing == set()
        assert (OF_MAIN in text) == (name == "main")
        assert ("Next colour theme" in text) == (name != "dialog")
        assert "…" not in text
        await screen.press("escape")
        assert screen.app.screen is before


async def test_what_a_dialog_inherits_is_among_its_keys() -> None:
    async with shown(FRAME) as screen:
        await screen.press("C")
        text = await keys_of(screen)
        assert words_of(ListDialog) <= {words for words in words_of(ListDialog) if words in text}


async def test_a_key_stands_where_it_does_something() -> None:
    """`+` is of the graphs there, and not of the interval."""
    async with shown(FRAME) as screen:
        await screen.press("G")
        text = await keys_of(screen)
        assert "+ = " in text
        assert "A longer time" in text
        assert "Longer or shorter interval" not in text


async def test_the_keys_of_the_past_come_first_there() -> None:
    async with two_minutes() as screen:
        await screen.press("comma")
        lines = (await keys_of(screen)).split("\n")
        assert lines[0].startswith(" Keys in the past;")
        assert lines[1].startswith(" Time ")
        assert " Esc       Return to now " in lines[2] + lines[3]


async def test_the_keys_of_a_replay(tmp_path: Path) -> None:
    async with replayed(record(tmp_path / "hour.gputop"), NOON + 1200) as screen:
        lines = (await keys_of(screen)).split("\n")
        assert lines[0].startswith(" Keys in a replay;")
        assert lines[1].startswith(" Time ")
        text = "\n".join(lines)
        for binding in REPLAY_BINDINGS:
            assert isinstance(binding, Binding)
            assert binding.tooltip in text
        for words in ("Tag the process", "Refresh now", "Kill, or send"):
            assert words not in text


async def test_the_keys_of_a_fleet_and_of_its_host() -> None:
    async with watched("node1", "node2") as fleet:
        for host in ("node1", "node2"):
            await fleet.tell(host, FRAME)
        text = await keys_of(fleet)
        assert " Keys of a fleet;" in text
        assert "The screen of this host" in text
        assert OF_MAIN not in text
        assert "Minute back or forward" not in text
        await fleet.press("escape", "enter", "question_mark")
        assert fleet.text.startswith(" Keys of the main screen;")


@rest_long("size", (200, 50), (80, 24), (40, 12))
async def test_footer_and_columns(size: tuple[int, int]) -> None:
    async with shown(FRAME, size=size) as screen:
        await screen.press("question_mark")
        assert screen.lines[-1].startswith(" Esc close  Space next page")
        assert screen.lines[1].count("View") == 1
        assert ("Processes" in screen.lines[1]) == (size[0] >= 80)
        text = await screen.whole_page()
        line = next(line for line in text.split("\n") if line.startswith("  0   "))
        assert ("! HOT" in line) == (size[0] >= 150)


async def test_n_repeats_a_search_here_and_on_the_pages_after() -> None:
    async with shown(FRAME, size=(100, 30)) as screen:
        await screen.press("question_mark", "slash")
        await screen.type("POWER cap")
        await screen.press("enter")
        found = screen.line_with("▸ ")
        assert found.split("  ")[0] == "▸ power cap"
        await screen.press("n")
        assert screen.text.startswith(" gputop help") or "sw_power_cap" in screen.line_with("▸")
        later = screen.line_with("▸")
        assert later != found
        await screen.press("N")
        assert screen.line_with("▸ ") == found
        await screen.press("slash")
        await screen.type("nowhere at all")
        await screen.press("enter")
        assert "/nowhere at all is on no page" in screen.lines[-1]
        await screen.press("escape")
        assert "is on no page" not in screen.lines[-1]


async def test_a_search_finds_words_that_are_on_two_lines() -> None:
    async with shown(FRAME, size=(60, 30)) as screen:
        await screen.press("question_mark")
        page = screen.app.screen.query_one(Page)
        texts = ["".join(text for text, _ in line).split() for line in page.lines]
        at = next(n for n, words in enumerate(texts) if words[:2] == ["WHO", "whose"])
        last, first = texts[at][-1], texts[at + 1][0]
        await screen.press("slash")
        await screen.type(f"{last} {first}")
        await screen.press("enter")
        assert "WHO" in screen.line_with("▸")


@pytest.mark.parametrize("size", [(100, 40), (40, 12)])
async def test_a_page_of_the_contents_is_chosen_and_left(size: tuple[int, int]) -> None:
    async with shown(FRAME, size=size) as screen:
        await screen.press("question_mark", "space", "c")
        assert "keys of this screen" in screen.line_with("▸")
        await screen.press(*["j"] * 4)
        assert screen.line_with("▸").split()[:2] == ["▸", "filter"]
        await screen.press("enter")
        assert screen.text.startswith(" gputop help filter")
        assert "▸" not in screen.text
        top = screen.lines[1:5]
        await screen.press("enter", "enter")  # lines down, as in less
        assert screen.text.startswith(" gputop help filter")  # the title stays
        assert screen.lines[1:5] != top
        assert screen.lines[-1].startswith(" Esc back")
        await screen.press("escape")
        assert screen.line_with("▸").split()[:2] == ["▸", "filter"]
        await screen.press("escape")
        assert screen.text.startswith(" Keys of the main")
        assert not screen.lines[1].startswith(" View")  # where it was scrolled to
        await screen.press("escape")
        assert isinstance(screen.app.screen, MainScreen)


async def test_the_cursor_of_the_contents_is_in_sight() -> None:
    async with shown(FRAME, size=(40, 12)) as screen:
        await screen.press("question_mark", "c", "end", "enter", "c")
        assert screen.line_with("▸").split()[1] == list(TOPICS)[-1]
        await screen.press("home")
        assert "keys of this screen" in screen.line_with("▸")


async def test_a_pasted_word_is_harmless() -> None:
    async with shown(FRAME) as screen:
        await screen.press("question_mark", "slash")
        screen.app.post_message(Paste("power\x9b31m\u202e"))
        await screen.press()
        assert "power" in screen.text
        assert not {"\x9b", "\u202e"} & set(screen.text)


async def test_an_empty_search_finds_nothing_and_ends() -> None:
    async with shown(FRAME, size=(80, 24)) as screen:
        await screen.press("question_mark", "slash", "enter")
        assert "a word" not in screen.text
        assert "▸ " not in screen.text.partition("Signs")[0]
        await screen.press("n")
        assert "a word" in screen.text  # n asks for one
        await screen.press("escape", "escape")
        assert isinstance(screen.app.screen, MainScreen)


async def test_all_of_the_help_is_closed_by_its_own_keys() -> None:
    async with shown(FRAME) as screen:
        for key in ("q", "question_mark", "f1"):
            await screen.press("question_mark", "right", "c", key)
            assert isinstance(screen.app.screen, MainScreen)


async def test_a_page_leads_to_the_next_and_round() -> None:
    async with shown(FRAME, size=(100, 40)) as screen:
        await screen.press("question_mark", "left")
        assert screen.text.startswith(f" gputop help {list(TOPICS)[-1]}")
        await screen.press("right", "right")
        assert screen.text.startswith(" gputop help start")


def test_the_app_and_all_hosts_have_keys() -> None:
    """Those of other classes are looked at above."""
    for owner in (GputopApp, HostsScreen, HelpScreen):
        assert all(binding.tooltip for binding in owner.BINDINGS if isinstance(binding, Binding))


def test_no_section_of_the_words_is_empty() -> None:
    """Most are tables of the manual, which are looked up by their headings."""
    counts = {name: len(list(words)) for name, words in sections(UNICODE)}
    assert counts["GPUs"] > 9
    assert all(counts.values()), counts
    (hosts,) = (count for name, count in counts.items() if name.startswith("Hosts"))
    assert hosts > 15  # more than the lamps
