"""The mapping pane: what CUDA_VISIBLE_DEVICES means, at every key."""

from __future__ import annotations

import pytest
from textual import events

from tests.builders_tui import GIB, Screenful, frame_of, gpu_of, process_of, shown, uuid_of

FOUR = tuple(gpu_of(index) for index in range(4))
MIXED = (gpu_of(0), gpu_of(1, name="NVIDIA A100-SXM4-80GB"))


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


DROPPED: tuple[tuple[str, list[int], str, str], ...] = (
    ("0,9,1", [0], "There is no GPU 9 here: only GPU 0 is visible", "0"),
    ("1,-1,0", [1], "-1 ends the list: 0 is not visible", "1,-1,0"),
    ("1,-1", [1], "entry 2 '-1' is negative", "1,-1"),
    ("1,1", [], "A GPU is named twice", "1"),
    ("0,,1", [0], "Empty entry after 0", "0,,1"),
    ("0,x", [0], "'x' is not a number", "0"),
    ("GPU-00000003,1", [3], "UUIDs do not mix", "GPU-00000003"),
    ("GPU-", [], "start of several UUIDs", ""),
    ("GPU-77", [], "No GPU here has a UUID starting GPU-77", ""),
)
"""What is typed, the GPUs that are visible, why no more, and the value to copy."""


async def test_what_is_dropped_and_why() -> None:
    async with shown(frame_of(*FOUR), size=(200, 50)) as screen:
        await screen.press("m")
        for typed, visible, reason, value in DROPPED:
            await screen.press("ctrl+u")
            await screen.type(typed)
            assert list(devices(screen).values()) == visible
            [said] = [line for line in screen.mapping_lines if line.startswith("!")]
            assert reason in said
            assert any(line.startswith("hidden: GPU ") for line in screen.mapping_lines)
            line = f"export CUDA_VISIBLE_DEVICES={value}"
            none = "there is no line to copy: no GPU is named"
            assert screen.mapping_lines[-1] == (line if value else none)


async def test_what_is_not_documented_says_so() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m")
        await screen.type("GPU-")
        assert "not documented" in screen.text
        await screen.press(*["backspace"] * 4, "1")
        assert "not documented" not in screen.text


async def test_the_order_of_mixed_models_is_not_known() -> None:
    async with shown(frame_of(*MIXED)) as screen:
        await screen.open_mapping()
        assert "which is cuda:0 cannot be told" in screen.text
        assert devices(screen) == {}
        await screen.press("m", "1")
        assert "1 GPU is visible" in screen.text
        assert devices(screen) == {}
        await screen.press("enter", "o")
        assert devices(screen) == {"cuda:0": 1}
        assert "exact" in screen.text
        line = "export CUDA_VISIBLE_DEVICES=1 CUDA_DEVICE_ORDER=PCI_BUS_ID"
        assert line in screen.mapping_lines


async def test_mig_is_not_guessed() -> None:
    async with shown(frame_of(gpu_of(0, mig_mode=True), gpu_of(1))) as screen:
        await screen.press("m", "0")
        assert "not documented" in screen.text
        assert "cannot be told" in screen.text
        assert "MIG" in "\n".join(screen.mapping_lines)
        assert devices(screen) == {}


async def test_a_full_gpu_is_a_warning() -> None:
    full = gpu_of(1, memory_used=139 * GIB, memory_free=GIB)
    frame = frame_of(gpu_of(0), full, process_of(100, gpu=1, user="bob"))
    async with shown(frame) as screen:
        await screen.open_mapping()
        assert "! full: used by bob" in screen.line_with("cuda:1")
        assert "full" not in screen.line_with("cuda:0")
        assert "139 GiB unused" in screen.line_with("cuda:0")
        await screen.show(frame_of(gpu_of(0), gpu_of(1, memory_free=None)))
        assert "unused memory is not known" in screen.line_with("cuda:1")


@pytest.mark.parametrize(
    ("value", "order", "expected"),
    [
        ("1,0", "PCI_BUS_ID", {"cuda:0": 1, "cuda:1": 0}),
        ("", None, {}),
        (uuid_of(3), None, {"cuda:0": 3}),
        (None, None, {f"cuda:{k}": k for k in range(4)}),
    ],
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
        assert "no line for a shell: CUDA_VISIBLE_DEVICES has" in screen.mapping_lines[-1]
        await screen.press("m", "1")
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


async def test_a_very_long_value() -> None:
    eight = [gpu_of(index) for index in range(8)]
    async with shown(frame_of(*eight), size=(80, 24)) as screen:
        for entry in ("0,", "9,", "GPU-", "x", "-"):
            await screen.press("m", "ctrl+u")
            assert screen.app.focused is not None
            screen.app.focused.post_message(events.Paste((entry * 4096)[:4096]))
            await screen.press("1")
            assert len(screen.mapping_state.mapping.value or "") == 4096
            await screen.press("backspace", "1", "escape")
            assert "─ CUDA_VISIBLE_DEVICES=" in screen.lines[-2]
            assert screen.lines[-2].rstrip().endswith(" ─")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 80)])
async def test_one_line_until_it_is_wanted(size: tuple[int, int]) -> None:
    full = gpu_of(1, memory_used=139 * GIB, memory_free=GIB)
    frame = frame_of(full, *(gpu_of(index) for index in (0, *range(2, 8))))
    async with shown(frame, size=size) as screen:
        line = screen.lines[-2]
        words = "CUDA_VISIBLE_DEVICES is unset: cuda:0 = GPU 0 … cuda:7 = GPU 7"
        assert line.startswith(f"─ {words} ─")
        assert ("m to try a value" in line) == (size[0] > 80)
        await screen.press("m")
        assert "export" not in screen.lines[-2]
        await screen.type("1,0")
        assert devices(screen) == {"cuda:0": 1, "cuda:1": 0}
        assert "full" in screen.line_with("cuda:0")
        await screen.press("escape")
        line = screen.lines[-2]
        words = "CUDA_VISIBLE_DEVICES=1,0: cuda:0 = GPU 1 (full), cuda:1 = GPU 0"
        assert line.startswith(f"─ {words} ─")
        assert line.rstrip().endswith("likely ─")
        await screen.press("o")
        assert "CUDA_VISIBLE_DEVICES=1,0 (PCI_BUS_ID): cuda:0" in screen.lines[-2]
        assert "exact" in screen.lines[-2]
        await screen.press("U")
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.lines[-2]


async def test_the_answer_follows_the_machine() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m")
        await screen.type("3")
        await screen.show(frame_of(*FOUR[:2]))
        assert devices(screen) == {}
        assert "There is no GPU 3 here" in screen.text
        await screen.show(frame_of(*FOUR))
        assert devices(screen) == {"cuda:0": 3}
