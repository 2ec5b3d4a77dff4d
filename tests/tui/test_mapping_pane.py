"""What the mapping pane does beside the mapping: advice, offers, history, the driver, copies."""

from __future__ import annotations

import pytest
from textual import events

from gputop.model.machine.probed import Probed, ProbedDevice
from gputop.protocol.messages import Probe, Refresh
from gputop.tui.panes.editor import ValueInput
from gputop.tui.panes.mapping_state import InputHistory
from tests.builders_tui import Screenful, frame_of, gpu_of, process_of, shown, uuid_of
from tests.conftest import rest_long
from tests.tui.test_mapping import devices

FOUR = tuple(gpu_of(index) for index in range(4))
EIGHT = tuple(gpu_of(index) for index in range(8))
PLAIN = "CUDA_VISIBLE_DEVICES="
WIDE = (200, 50)


async def paste(screen: Screenful, text: str) -> None:
    screen.app.post_message(events.Paste(text))
    await screen.press()


def text_of(screen: Screenful) -> str:
    return screen.pane.query_one(ValueInput).value


def ghost(screen: Screenful) -> str:
    """What stands dimly behind the cursor."""
    line = next(line for line in screen.lines if "Mapping ──" in line)
    return line.partition(PLAIN)[2].partition(" ── ")[0].strip()


def probed(value: str | None, *at: int, problem: str | None = None) -> Probed:
    found = tuple(ProbedDevice(uuid_of(k)[4:], f"0000:{k + 1:02x}:00.0", "H200") for k in at)
    return Probed(None if problem else found, problem, value, None)


# --- advice ------------------------------------------------------------------------------------


async def test_a_pasted_line() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("m")
        await paste(screen, "CUDA_VISIBLE_DEVICES=1,2 python train.py --device cuda:2")
        assert devices(screen) == {"cuda:0": 1, "cuda:1": 2}
        assert "Shell line: CUDA_VISIBLE_DEVICES=1,2 python" in screen.text
        assert "! error: 2 GPUs are visible" in screen.text
        assert "For physical GPU 2 use cuda:1" in screen.text
        assert screen.mapping_lines[-1] == "export CUDA_VISIBLE_DEVICES=1,2"


async def test_several_lines_are_pasted() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m")
        await paste(screen, "export CUDA_VISIBLE_DEVICES=3\n\n  python train.py -d cuda:1\n")
        assert devices(screen) == {"cuda:0": 3}
        assert "! error: 1 GPU is visible, named cuda:0 (GPU 3)." in screen.text
        await screen.press(*["backspace"] * 80)
        await paste(screen, "2,1\n")
        assert screen.mapping_state.mapping.value == "2,1"


NOT_KNOWN = (
    ("for i in 0 1; do\n  CUDA_VISIBLE_DEVICES=$i python t.py &\ndone", "i is set in a block"),
    ("CUDA_VISIBLE_DEVICES=$GPU python t.py", "not understood: the text does not define $GPU"),
    ("CUDA_VISIBLE_DEVICES='1 python t.py", "not understood: '1 cannot be followed to its end"),
    ("CUDA_VISIBLE_DEVICES\u00a0=1 python t.py", "not understood: it holds"),
    ("export CUDA_VISIBLE_DEVICES=1\n" + "echo 12345678\n" * 1200, "not understood: it is long"),
)


@rest_long("size", (80, 24), WIDE)
async def test_nothing_is_claimed_of_a_text_that_is_not_known(size: tuple[int, int]) -> None:
    async with shown(frame_of(*FOUR), size=size) as screen:
        for text, said in NOT_KNOWN:
            await screen.press("m", "ctrl+u")
            await paste(screen, text)
            assert said in " ".join(" ".join(screen.mapping_lines).split())
            assert devices(screen) == {}
            assert screen.mapping_state.export == ""
            assert screen.mapping_state.probe() == (
                "the driver can only be asked about a value that is known here"
            )
            assert "unset" not in " ".join(screen.mapping_lines)
            await screen.press("ctrl+u", "enter")


async def test_a_pasted_page_keeps_its_lines() -> None:
    page = 'cd src\nexport CUDA_VISIBLE_DEVICES="2"\npython t.py\n'
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("m")
        await paste(screen, page)
        assert devices(screen) == {"cuda:0": 2}
        await screen.press(*["backspace"] * 80)
        code = "import os\nif True:\n    os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
        await paste(screen, code)
        assert "it depends on a condition" in " ".join(" ".join(screen.mapping_lines).split())


async def test_what_is_typed_can_be_read_on_a_small_terminal() -> None:
    async with shown(frame_of(*EIGHT), size=(40, 12)) as screen:
        await screen.press("m")
        await screen.type("1,2")
        assert screen.line_with("─ value").startswith("─ value 1,2")


async def test_the_line_for_the_shell_is_always_in_sight() -> None:
    async with shown(frame_of(*EIGHT), size=(80, 24)) as screen:
        await screen.press("m")
        assert screen.mapping_lines[-1].split("  ")[0] == "unset CUDA_VISIBLE_DEVICES"
        assert screen.mapping_lines[-1].endswith("1-6 of 11")
        await screen.press("pagedown", "pagedown")
        assert screen.mapping_lines[-1].endswith("6-11 of 11")
        assert screen.app.focused is screen.pane.query_one(ValueInput)


@pytest.mark.parametrize(
    ("value", "end"), [("1,9", "─ ! 1 ── likely ─"), ("1", " m to try a value ── likely ─")]
)
async def test_one_line_counts_the_advice(
    value: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    async with shown(frame_of(*EIGHT), size=(80, 24)) as screen:
        assert screen.lines[-2].rstrip().endswith(end)
        assert screen.lines[-2].count("!") == end.count("!")


async def test_hostile_names_in_advice() -> None:
    bad = frame_of(gpu_of(0), process_of(1, gpu=0, user="[/]\u202ex"), process_of(2, gpu=1))
    async with shown(bad, size=(120, 40)) as screen:
        await screen.press("m")
        await screen.type("0,[bold]x[/],$0")
        await screen.press("M")
        for size in (WIDE, (80, 24), (40, 10), (20, 5)):
            await screen.resize(*size)
            assert all(c.isprintable() for line in screen.lines for c in line if c != "\u202e")


# --- the free GPU ------------------------------------------------------------------------------


async def test_the_free_gpu_is_named() -> None:
    busy = frame_of(*FOUR, process_of(1, gpu=0), process_of(2, gpu=1))
    async with shown(busy) as screen:
        await screen.open_mapping()
        line = "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2"
        assert f"free: GPU 2  {line}" in screen.mapping_lines
        await screen.press("m")
        await screen.type("9")
        await screen.press("backspace")
        assert f"free: GPU 2  {line}  (Tab takes its UUID)" in screen.mapping_lines
        await screen.press("enter", "o", "m")
        assert f"free: GPU 2  {line}  (Tab takes 2)" in screen.mapping_lines
        await screen.press("tab")
        assert text_of(screen) == "2"
        assert devices(screen) == {"cuda:0": 2}
        await screen.press("comma")
        assert ghost(screen) == "2,3"


async def test_the_variables_of_this_shell_bind_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    async with shown(frame_of(*FOUR)) as screen:
        await screen.open_mapping()
        await screen.press("U")
        assert any(line.startswith("free: GPU 3") for line in screen.mapping_lines)


# --- the editor --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["tab", "right"])
async def test_a_uuid_is_completed(key: str) -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("m")
        await screen.type("GPU-00000002")
        assert ghost(screen) == uuid_of(2)
        assert text_of(screen) == "GPU-00000002"
        await screen.press(key)
        assert text_of(screen) == uuid_of(2)
        assert devices(screen) == {"cuda:0": 2}
        assert screen.app.focused is screen.pane.query_one(ValueInput)


async def test_what_is_typed_and_taken_at_once() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("m", *"GPU", "minus", *"00000002", "tab", "comma", "tab", "enter")
        assert screen.mapping_state.mapping.value == f"{uuid_of(2)},{uuid_of(0)}"


@pytest.mark.parametrize("key", ["tab", "shift+tab"])
async def test_tab_stays_where_nothing_is_offered(key: str) -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m", "1", key, key, "1")
        assert text_of(screen) == "11"
        await screen.press("m", "left", "right", "right")
        assert text_of(screen) == "11m"


async def test_an_offer_is_only_seen_while_one_types() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("m", "1", "backspace")
        assert ghost(screen) == uuid_of(0)
        await screen.press("enter")
        assert ghost(screen) == ""
        assert screen.mapping_state.mapping.value == ""


async def test_an_offer_follows_the_machine() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("m", "1", "comma")
        assert ghost(screen) == "1,0"
        await screen.show(frame_of(*FOUR, process_of(1, gpu=0)))
        assert ghost(screen) == "1,2"
        await screen.show(frame_of(*FOUR, *(process_of(k, gpu=k) for k in range(4))))
        assert ghost(screen) == "1,"


async def test_history() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m", "1", "enter", "m", "end", "comma", "2", "enter")
        await screen.press("m", "end", "backspace", "3")
        seen = []
        for key in ("up", "up", "up", "down", "down", "down"):
            await screen.press(key)
            seen.append(text_of(screen))
        assert seen == ["1,2", "1", "1", "1,2", "1,3", "1,3"]
        assert devices(screen) == {"cuda:0": 1, "cuda:1": 3}


def test_a_line_that_was_changed_is_unfinished() -> None:
    past = InputHistory()
    for line in ("a", "b", "b", "c"):
        past.enter(line)
    assert past.move(-1, "c") == "b"
    assert past.move(-1, "b") == "a"
    assert past.move(-1, "a") == "a"
    assert past.move(-1, "ax") == "c"
    assert past.move(1, "c") == "ax"
    assert past.move(1, "ax") == "ax"
    assert InputHistory().move(-1, "x") == "x"
    assert InputHistory().move(1, "x") == "x"


@pytest.mark.long
async def test_no_key_of_a_burst_is_lost() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m", *["0", "comma"] * 150, "enter")
        assert screen.mapping_state.mapping.value == "0," * 150
        await screen.press("m", *["backspace"] * 300, "3", "up", "down")
        assert text_of(screen) == "3"


# --- the driver --------------------------------------------------------------------------------


async def test_the_driver_is_asked() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("m", "1", "enter", "v")
        assert screen.source.requests == [Probe("1", None, "mapping")]
        assert "asking the driver..." in screen.text
        await screen.show(frame_of(*FOUR))
        assert "asking the driver..." in screen.text
        await screen.show(frame_of(*FOUR), probed=(probed("0", 0),))
        assert "asking the driver..." in screen.text
        await screen.show(frame_of(*FOUR), probed=(probed("0", 0), probed("1", 1)))
        assert "asking the driver..." not in screen.text
        assert screen.line_with("Mapping").endswith("verified by the driver ─")
        await screen.press("m", "end", "comma", "0")
        assert "verified" not in screen.text
        await screen.press("backspace", "backspace")
        assert "verified by the driver" in screen.text


@pytest.mark.parametrize("size", [WIDE, (80, 24)])
async def test_the_driver_disagrees(size: tuple[int, int]) -> None:
    async with shown(frame_of(*EIGHT), size=size) as screen:
        await screen.press("m", "1", "enter", "v")
        await screen.show(probed=(probed("1", 3),))
        await screen.press("m")
        assert "the driver disagrees" in screen.text
        words = " ".join(screen.mapping_lines)
        assert "! the driver says cuda:0 is GPU 3, gputop expected GPU 1" in words
        await screen.press("enter")
        assert "the driver disagrees" in screen.text


async def test_the_driver_cannot_be_asked() -> None:
    answer = probed("1", problem="there is no libcuda.so.1")
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m", "1", "enter", "v")
        await screen.show(probed=(answer,))
        assert "the driver could not be asked: there is no libcuda.so.1" in screen.text
        assert "likely" in screen.line_with("Mapping")


async def test_an_agent_that_does_not_ask_the_driver() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m", "1", "enter", "v")
        await screen.show(request="mapping", error="only nvidia-smi is read")
        assert "the driver could not be asked: only nvidia-smi is read" in screen.text
        assert "asking the driver" not in screen.text


async def test_the_demo_has_no_driver() -> None:
    async with shown(frame_of(*FOUR, demo=True)) as screen:
        await screen.press("v")
        assert "the demo has no driver to ask" in screen.text
        assert screen.source.requests == []


async def test_an_answer_is_shown_in_spite_of_a_pause() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m", "1", "enter", "p", "v")
        await screen.show(frame_of(*FOUR), probed=(probed("1", 1),))
        assert "verified by the driver" in screen.text
        assert "PAUSED" in screen.lines[0]


async def test_who_is_gone_is_not_waited_for() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("v")
        await screen.end("it is gone")
        await screen.press("d")
        await screen.show(frame_of(*FOUR))
        assert "asking the driver" not in screen.text


async def test_a_value_that_is_not_text_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0\udcff")
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("v", "y")
        assert [
            request for request in screen.source.requests if not isinstance(request, Refresh)
        ] == []
        assert "copied" not in screen.text
        assert "no shell line: CUDA_VISIBLE_DEVICES has" in screen.text


# --- copies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [WIDE, (80, 24), (60, 16)])
async def test_a_copy_is_told(size: tuple[int, int]) -> None:
    async with shown(frame_of(*EIGHT), size=size) as screen:
        await screen.press("m", "1", "comma", "2", "enter", "y")
        assert screen.app.clipboard == "export CUDA_VISIBLE_DEVICES=1,2"
        assert " copied (OSC 52): export CUDA_VISIBLE_DEVICES=1,2  " in screen.lines[-1]
        assert screen.lines[-2].split()[:2] == ["export", "CUDA_VISIBLE_DEVICES=1,2"]
        screen.hand.wait()
        await screen.drawn()
        assert "copied" not in screen.text
