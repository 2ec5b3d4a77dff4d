"""The answer about a value of CUDA_VISIBLE_DEVICES, without the pane that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.tui.glyphs import UNICODE
from gputop.tui.panes.lines import width_of
from gputop.tui.panes.mapping_lines import certainty, mapping_line, result_lines, shell_line
from gputop.tui.panes.mapping_state import MappingState
from gputop.tui.panes.paper import Paper
from tests.builders import gpu, process
from tests.builders_tui import GIB, frame_of, gpu_of, process_of, uuid_of
from tests.model.test_pick_mig import divided, machine, part
from tests.tui.papers import written

FOUR = tuple(gpu_of(index) for index in range(4))
MIXED = tuple(gpu_of(index, name=f"NVIDIA {name}") for index, name in enumerate(("A100", "T4")))


class Answer:
    """What is said of a value on a machine; `inherited` is what gputop itself was started with."""

    def __init__(
        self, frame: Frame, typed: str | None = None, width: int = 200,
        inherited: str | None = None, order: str | None = None,
    ) -> None:  # fmt: skip
        self.state, self.paper = MappingState(inherited, order), Paper(width, UNICODE)
        self.state.show_frame(frame)
        if typed is not None:
            self.state.ask(text=typed)

    @property
    def lines(self) -> list[str]:
        """The result, and below it the line for a shell."""
        lines = list(result_lines(self.state, self.paper, None))
        shell = shell_line(self.state, self.paper, (1, len(lines), len(lines)))
        text = written([*lines, list(shell)], self.paper)
        return [line.strip() for line in text.split("\n")]

    @property
    def devices(self) -> dict[str, int]:
        """The GPU of each name that PyTorch has."""
        words = [line.split() for line in self.lines if line.startswith("cuda:")]
        return {line[0]: int(line[line.index("GPU") + 1]) for line in words}

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.lines).split())

    @property
    def line(self) -> str:
        """The mapping in one line."""
        pieces = mapping_line(self.state, self.paper)
        assert width_of(pieces) == self.paper.width
        return "".join(text for text, _ in pieces)


DROPPED: tuple[tuple[str, list[int], str, str], ...] = (
    ("0,9,1", [0], "There is no GPU 9 here: only GPU 0 is visible", "0"),
    ("1,-1,0", [1], "-1 ends the list: 0 is not visible", "1,-1,0"),
    ("1,-1", [1], "entry 2 '-1' is negative", "1,-1"),
    ("1,1", [], "A GPU is named twice", "1"),
    ("0,,1", [0], "Empty entry after 0", "0,,1"),
    ("0,x", [0], "'x' is not a number", "0"),
    ("GPU-00000003,1", [3], "UUIDs do not mix", "GPU-00000003"),
    ("GPU-000", [], "start of several UUIDs", ""),
    ("GPU-77", [], "No GPU here has a UUID starting GPU-77", ""),
)
"""What is typed, the GPUs that are visible, why no more, and the value to copy."""


@pytest.mark.parametrize(("typed", "visible", "reason", "value"), DROPPED)
def test_what_is_dropped_and_why(typed: str, visible: list[int], reason: str, value: str) -> None:
    answer = Answer(frame_of(*FOUR), typed)
    assert list(answer.devices.values()) == visible
    [said] = [line for line in answer.lines if line.startswith("!")]
    assert reason in said
    assert any(line.startswith("hidden: GPU ") for line in answer.lines)
    line = f"export CUDA_VISIBLE_DEVICES={value}"
    none = "there is no line to copy: no GPU is named"
    assert answer.lines[-1] == (line if value else none)


def test_what_is_not_documented_says_so() -> None:
    for typed, is_documented in (("GPU-00000003,MIG-1", False), ("1", True)):
        words, _ = certainty(Answer(frame_of(*FOUR), typed).state)
        assert (words != "not documented") == is_documented


def test_the_order_of_mixed_models_is_not_known() -> None:
    answer = Answer(frame_of(*MIXED))
    assert "which is cuda:0 is not known" in answer.text
    assert answer.devices == {}
    answer = Answer(frame_of(*MIXED), "1")
    assert "1 GPU is visible" in answer.text
    assert answer.devices == {}
    answer.state.next_order()
    assert answer.devices == {"cuda:0": 1}
    assert certainty(answer.state) == ("exact", "good")
    assert answer.lines[-1] == "export CUDA_VISIBLE_DEVICES=1 CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_mig_is_not_guessed() -> None:
    answer = Answer(frame_of(gpu_of(0, mig_mode=True), gpu_of(1)), "0")
    assert certainty(answer.state)[0] == "not documented"
    assert "is not known" in answer.text
    assert "MIG" in answer.text
    assert answer.devices == {}


def test_a_full_gpu_is_a_warning() -> None:
    full = gpu_of(1, memory_used=139 * GIB, memory_free=GIB)
    first, second = Answer(frame_of(gpu_of(0), full, process_of(100, 1, user="bob"))).lines[:2]
    assert "! full: used by bob" in second
    assert "full" not in first
    assert "139 GiB unused" in first
    _, second, *_ = Answer(frame_of(gpu_of(0), gpu_of(1, memory_free=None))).lines
    assert "unused memory is not known" in second


def test_the_answer_follows_the_machine() -> None:
    answer = Answer(frame_of(*FOUR), "3")
    answer.state.show_frame(frame_of(*FOUR[:2]))
    assert answer.devices == {}
    assert "There is no GPU 3 here" in answer.text
    answer.state.show_frame(frame_of(*FOUR))
    assert answer.devices == {"cuda:0": 3}


def test_an_unknown_uuid_is_told() -> None:
    words = "! error: No GPU here has a UUID starting GPU-7"
    assert words in Answer(frame_of(*FOUR), "GPU-7").text


def test_a_long_sentence_is_read_to_its_end() -> None:
    line = "CUDA_VISIBLE_DEVICES=1,2 python train.py --device cuda:2"
    assert "For physical GPU 2 use cuda:1." in Answer(frame_of(*FOUR), line, width=60).text


def test_what_matters_comes_first() -> None:
    mixed = (gpu_of(0), gpu_of(1), gpu_of(2, name="NVIDIA A100", memory_free=GIB), gpu_of(3))
    frame = frame_of(*mixed, process_of(7, 2, user="bob"))
    answer = Answer(frame, "1x,2,9", order="PCI_BUS_ID")
    heads = [line.split(":")[0].split(" (")[0] for line in answer.lines]
    assert [head.split()[0] for head in heads[:3]] == ["!", "cuda", "cuda"]
    export = "export CUDA_VISIBLE_DEVICES=1x,2 CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert heads[3:] == ["! warning", "hidden", "free", export]
    assert answer.text.count("used by bob") == 1


# The free GPU


@pytest.mark.parametrize(
    ("order", "gpus", "line"),
    [
        (None, FOUR, "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1"),
        ("FASTEST_FIRST", FOUR, "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1"),
        ("PCI_BUS_ID", FOUR, "CUDA_VISIBLE_DEVICES=1"),
        # The fastest first, and nobody knows which that is; by bus id the second is the first.
        (None, (gpu_of(0, pci_bus_id="00000000:99:00.0", name="A100"), gpu_of(1)),
         "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0"),
        (None, (gpu_of(0), gpu_of(1, pci_bus_id=None)), f"CUDA_VISIBLE_DEVICES={uuid_of(1)}"),
    ],
)  # fmt: skip
def test_an_index_is_suggested_where_it_is_sure(
    order: str | None, gpus: tuple[Gpu, ...], line: str
) -> None:
    answer = Answer(frame_of(*gpus, process_of(1, 0)), order=order)
    assert f"free: GPU 1  export {line}" in answer.lines
    answer.state.next_order()  # what is tried here is not what the shell has
    assert f"free: GPU 1  export {line}" in answer.lines


def test_why_no_gpu_is_free() -> None:
    taken = [process_of(k, gpu=k, user="bob") for k in range(4)]
    answer = Answer(frame_of(*FOUR, *taken))
    assert "no GPU is free (GPU 0, 1, 2, 3: processes of bob)" in answer.lines


def test_whether_each_is_free_is_said() -> None:
    gpus = [gpu_of(0), gpu_of(1, error="GPU is lost"), gpu_of(2, utilization=0.97),
            gpu_of(3, stale_for=9.0), gpu_of(4, memory_used=2 * GIB)]  # fmt: skip
    answer = Answer(frame_of(*gpus, process_of(5, 4, user="bob")))
    lines = [line for line in answer.lines if "→" in line]
    assert [line.partition("GiB unused")[2].split() for line in lines] == [
        ["free"], [], ["97", "%", "busy"], [], ["used", "by", "bob"],
    ]  # fmt: skip
    for line, word in ((lines[1], "lost"), (lines[3], "no answer")):
        assert line.endswith(f"unused memory is not known  {word}")


def test_the_variables_of_this_shell_bind_the_choice() -> None:
    answer = Answer(frame_of(*FOUR, process_of(1, 3)), inherited="3")
    assert any("none of the 3 free GPUs can be taken (" in line for line in answer.lines)
    answer = Answer(frame_of(*FOUR), inherited="3")
    answer.state.ask(text=None)
    assert any(line.startswith("free: GPU 3") for line in answer.lines)


def test_a_slice_is_offered_where_no_gpu_can_be_had() -> None:
    train = process(7, gpu_instance=1, compute_instance=0)
    parts, full = divided(0, part(1), part(2), part(3)), (train, process(8, on=1))
    answer = Answer(machine(parts, processes=(train,)))
    line = "free: GPU 0:2 (2 of 3 slices)  export CUDA_VISIBLE_DEVICES=MIG-2-0"
    assert line in answer.lines
    assert answer.state.complete("") == "MIG-2-0"
    assert answer.state.complete("MIG-2-0,") is None
    mixed = Answer(machine(parts, gpu(1), processes=full))
    assert "no GPU is free, but 2 of 3 slices (GPU 0: it is in MIG mode" in mixed.text
    taken = Answer(machine(divided(0, part(1)), processes=(train,)))
    assert "no slice is free (GPU 0:1: processes of alice)" in taken.text


def test_full_does_not_flicker_while_use_goes_up_and_down_about_the_limit() -> None:
    answer = Answer(frame_of(*FOUR), "1")
    for free, is_full in ((9, False), (6, True), (8, True), (6.9, True), (12, False), (8, False)):
        left = int(free * GIB)
        used = gpu_of(1, memory_used=140 * GIB - left, memory_free=left)
        answer.state.show_frame(frame_of(FOUR[0], used, *FOUR[2:]))
        assert ("full" in answer.text, "(full)" in answer.line) == (is_full, is_full), free


# In one line, and for a shell


@pytest.mark.parametrize("width", [200, 120, 80])
def test_one_line_says_the_devices_and_which_are_full(width: int) -> None:
    full = gpu_of(1, memory_used=139 * GIB, memory_free=GIB)
    frame = frame_of(full, *(gpu_of(index) for index in (0, *range(2, 8))))
    answer = Answer(frame, width=width)
    words = "CUDA_VISIBLE_DEVICES is unset: cuda:0 = GPU 0 … cuda:7 = GPU 7"
    assert answer.line.startswith(f"─ {words} ─")
    assert ("m to try a value" in answer.line) == (width > 80)
    answer.state.ask(text="1,0")
    words = "CUDA_VISIBLE_DEVICES=1,0: cuda:0 = GPU 1 (full), cuda:1 = GPU 0"
    assert answer.line.startswith(f"─ {words} ─")
    assert answer.line.endswith("likely ─")
    answer.state.next_order()
    assert "CUDA_VISIBLE_DEVICES=1,0 (PCI_BUS_ID): cuda:0" in answer.line
    assert "exact" in answer.line


@pytest.mark.parametrize("typed", ["0," * 2048, "GPU-" * 1024, "\x1b[2J\x1b]0;x\x07", "訓練" * 200])
def test_no_value_leaves_the_page(typed: str) -> None:
    for width in (200, 80, 40):
        answer = Answer(frame_of(*FOUR), typed, width=width)
        assert all(char.isprintable() for char in f"{answer.line}{answer.text}")


def test_the_line_for_a_shell_says_which_lines_are_in_sight() -> None:
    answer = Answer(frame_of(*FOUR), "1")

    def shell(*span: int) -> str:
        pieces: Any = shell_line(answer.state, answer.paper, span)  # type: ignore[arg-type]
        return "".join(text for text, _ in pieces).strip()

    assert shell(1, 5, 5) == "export CUDA_VISIBLE_DEVICES=1"
    assert shell(2, 4, 5).split("  ")[0] == "export CUDA_VISIBLE_DEVICES=1"
    assert shell(2, 4, 5).endswith(" 2-4 of 5")
