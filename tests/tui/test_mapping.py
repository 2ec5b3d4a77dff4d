"""The mapping pane: what CUDA_VISIBLE_DEVICES means, at every key."""

from __future__ import annotations

import pytest
from textual import events

from tests.builders_tui import GIB, Screenful, frame_of, gpu_of, process_of, shown, uuid_of
from tests.conftest import rest_long

FOUR = tuple(gpu_of(index) for index in range(4))


def devices(screen: Screenful) -> dict[str, int]:
    """cuda:k -> GPU, as it stands on the screen."""
    found = {}
    for line in screen.mapping_lines:
        if line.startswith("cuda:"):
            words = line.split()
            found[words[0]] = int(words[words.index("GPU") + 1])
    return found


async def test_every_key_gives_an_answer() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m")
        seen = []
        for key in ("2", "comma", "1", "comma", "1", "backspace"):
            await screen.press(key)
            seen.append(devices(screen))
        two_one = {"cuda:0": 2, "cuda:1": 1}
        assert seen == [{"cuda:0": 2}, {"cuda:0": 2}, two_one, two_one, {}, two_one]
        assert "/device:GPU:1" in screen.text


async def test_unset_is_not_empty() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.open_mapping()
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.text
        assert len(devices(screen)) == 4
        assert "unset CUDA_VISIBLE_DEVICES" in screen.mapping_lines
        await screen.press("m", "1", "backspace")
        assert "CUDA_VISIBLE_DEVICES is unset" not in screen.text
        assert devices(screen) == {}
        assert "no GPU is visible" in screen.mapping_lines
        assert "export CUDA_VISIBLE_DEVICES=''" in screen.mapping_lines
        await screen.press("enter", "U")
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.text
        assert len(devices(screen)) == 4


async def test_the_order_goes_round() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.open_mapping()
        seen = []
        for _ in range(4):
            seen.append(screen.mapping_state.mapping.order)
            assert f"CUDA_DEVICE_ORDER{f'={seen[-1]}' if seen[-1] else ' is unset'}" in screen.text
            await screen.press("o")
        assert seen == [None, "PCI_BUS_ID", "FASTEST_FIRST", None]


@rest_long(
    ("value", "order", "expected"),
    ("1,0", "PCI_BUS_ID", {"cuda:0": 1, "cuda:1": 0}),
    ("", None, {}),
    (uuid_of(3), None, {"cuda:0": 3}),
    (None, None, {f"cuda:{k}": k for k in range(4)}),
)
async def test_it_starts_with_the_environment(
    value: str | None,
    order: str | None,
    expected: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, set_to in (("CUDA_VISIBLE_DEVICES", value), ("CUDA_DEVICE_ORDER", order)):
        if set_to is not None:
            monkeypatch.setenv(name, set_to)
    async with shown(frame_of(*FOUR)) as screen:
        await screen.open_mapping()
        assert devices(screen) == expected
        mapping = screen.mapping_state.mapping
        assert (mapping.value, mapping.order) == (value, order)


async def test_a_hostile_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    value, order = "0,\x1b]0;x\x07\u202e[/]\udcff", "\x1b[2J" + "o" * 300
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    async with shown(frame_of(*FOUR)) as screen:
        for open_ in (False, True):
            for size in ((200, 50), (120, 40), (80, 24), (40, 10)):
                await screen.resize(*size)
                assert all(c.isprintable() for line in screen.lines for c in line)
            if not open_:
                await screen.open_mapping()
        assert screen.mapping_state.mapping.value == value
        await screen.resize(200, 50)
        assert "no shell line: CUDA_VISIBLE_DEVICES has" in screen.mapping_lines[-1]
        await screen.press("m", "end", "1")
        assert screen.mapping_state.mapping.value == "0,\ufffd]0;x\ufffd\ufffd[/]\ufffd1"


HOSTILE = ("\x1b[2J\x1b]0;x\x07", "\u202e\u200b", "[/] [bold", "\x9b31m", "0,\t1", "訓練" * 200)


async def test_a_hostile_paste() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m")
        assert screen.app.focused is not None
        for text in HOSTILE:
            await screen.press("ctrl+u")
            screen.app.focused.post_message(events.Paste(text))
            await screen.pilot.pause()
            result = screen.mapping_state.result
            assert result.mapping.value or result.unknown  # two words with letters are a text
            assert all(c.isprintable() for line in screen.lines for c in line)


@pytest.mark.long
async def test_a_very_long_value() -> None:
    eight = [gpu_of(index) for index in range(8)]
    async with shown(frame_of(*eight), size=(80, 24)) as screen:
        for entry in ("0,", "9,", "GPU-", "x", "-"):
            await screen.press("m", "ctrl+u")
            assert screen.app.focused is not None
            screen.app.focused.post_message(events.Paste((entry * 4096)[:4096]))
            await screen.press("1")
            assert len(screen.mapping_state.mapping.value or "") == 4096
            await screen.press("backspace", "1", "enter")
            assert screen.line_with("─ Mapping ── ").endswith(" ─")


async def test_one_line_until_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    full = gpu_of(1, memory_used=139 * GIB, memory_free=GIB)
    frame = frame_of(full, *(gpu_of(index) for index in (0, *range(2, 8))))
    async with shown(frame, size=(80, 24)) as screen:
        line = screen.lines[-2]
        words = "CUDA_VISIBLE_DEVICES=1,0: cuda:0 = GPU 1 (full), cuda:1 = GPU 0"
        assert line.startswith(f"─ {words} ─")
        assert line.rstrip().endswith("likely ─")
        await screen.press("m")
        assert "export" not in screen.lines[-2]
        await screen.type("0,1")
        assert devices(screen) == {"cuda:0": 0, "cuda:1": 1}
        assert "full" in screen.line_with("cuda:1")
        await screen.press("escape")
        assert screen.lines[-2] == line
        await screen.press("o")
        assert "CUDA_VISIBLE_DEVICES=1,0 (PCI_BUS_ID): cuda:0" in screen.lines[-2]
        assert "exact" in screen.lines[-2]
        await screen.press("U")
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.lines[-2]


@rest_long("typed", "space", "enter")
async def test_escape_returns_to_ones_own_variables(
    typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    async with shown(frame_of(*FOUR), size=(80, 24)) as screen:
        own = screen.lines[-2]
        await screen.press("m", "1", typed, "escape")
        assert screen.lines[-2] == own
        await screen.press("m", "up")
        assert screen.mapping_state.query.text in ("1", "1 ")
        await screen.press("escape", "o", "escape")
        assert screen.lines[-2] == own
        await screen.press("M", "m", "1", "escape", "escape", "escape")
        assert screen.lines[-2] == own


async def test_escape_in_the_editor_leaves_the_tags_alone() -> None:
    async with shown(frame_of(*FOUR, process_of(301, user="amy"))) as screen:
        await screen.press("space", "m", "1", "escape")
        assert "1 tagged" in screen.text
        assert not screen.main.panes.mapping_open


@pytest.mark.parametrize(("keys", "value"), [("3", "3"), ("end,,3", "1,3"), ("right,,3", "1,3")])
async def test_typing_into_a_reopened_field_replaces_what_is_there(keys: str, value: str) -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m", "1", "enter", "m")
        first, _, rest = keys.partition(",")
        await screen.press(first)
        await screen.type(rest)
        assert screen.mapping_state.query.text == value


async def test_the_answer_follows_the_machine() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m")
        await screen.type("3")
        await screen.show(frame_of(*FOUR[:2]))
        assert devices(screen) == {}
        assert "There is no GPU 3 here" in screen.text
        await screen.show(frame_of(*FOUR))
        assert devices(screen) == {"cuda:0": 3}
