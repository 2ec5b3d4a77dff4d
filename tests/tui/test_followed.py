"""The mapping pane shows the process under the cursor, and the question again without one."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from textual.strip import Strip

from gputop.model.environ import Environ, Surroundings
from gputop.model.protocol import Probe
from gputop.tui.widgets.mappingpane import Label
from tests.builders_tui import frame_of, gpu_of, process_of, shown

GPUS = [gpu_of(index) for index in range(4)]
MASKED = Surroundings(Environ({"CUDA_VISIBLE_DEVICES": "3,1"}))
PRIVATE = Surroundings(Environ({}, "unreadable"))
PROCESSES = [
    process_of(401, gpu=1, gpu_memory=3, surroundings=MASKED),
    process_of(402, gpu=2, gpu_memory=2, surroundings=PRIVATE),
    process_of(403, gpu=0, gpu_memory=1),
]


@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_the_selected_process_is_shown(size: tuple[int, int]) -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=size) as screen:
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.text
        await screen.press("j")
        assert "PID 401 train.py: CUDA_VISIBLE_DEVICES=3,1" in screen.text
        await screen.press("j")
        line = screen.line_with("PID 402")
        assert "only root and its owner" in line
        assert "unset" not in line
        await screen.press("j")
        assert "PID 403" not in screen.text.partition("Mapping")[2]  # nothing is known of it
        await screen.press("k", "k", "escape")
        assert "PID 401 train.py:" not in screen.text


async def test_its_devices_and_its_evidence() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(200, 50)) as screen:
        await screen.press("j")
        assert [line.split()[4] for line in screen.mapping_lines[:2]] == ["3", "1"]
        assert "The driver sees it on GPU 1, which fits." in screen.text
        assert "export CUDA_VISIBLE_DEVICES=3,1" in screen.text
        both = [process_of(401, gpu=gpu, surroundings=MASKED) for gpu in (1, 2)]
        await screen.show(frame_of(*GPUS, *both))
        assert "contradicted" in screen.line_with("Mapping")
        await screen.show(frame_of(*GPUS))
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.text


async def test_what_is_typed_comes_before_the_process() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(200, 50)) as screen:
        await screen.press("j", "m")
        await screen.type("2")
        assert "PID 401 train" not in screen.line_with("Mapping")
        assert "CUDA_VISIBLE_DEVICES=2" in screen.line_with("Mapping")
        await screen.press("enter")
        assert "CUDA_VISIBLE_DEVICES=2" in screen.line_with("Mapping")
        await screen.show(frame_of(*GPUS, *PROCESSES))
        assert "CUDA_VISIBLE_DEVICES=2" in screen.line_with("Mapping")
        await screen.press("j", "k")
        assert "PID 401 train.py:" in screen.line_with("Mapping")
        await screen.press("escape")
        assert "CUDA_VISIBLE_DEVICES=2" in screen.line_with("Mapping")


async def test_the_driver_is_not_asked_about_a_process() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(200, 50)) as screen:
        await screen.press("j", "v")
        assert "the driver is asked about a value" in screen.text
        assert not [one for one in screen.source.requests if isinstance(one, Probe)]
        await screen.press("j", "y")
        assert "its variables are not known" in screen.text.replace("process's", "its")


async def test_a_label_that_a_layout_made_wider_is_drawn_at_once() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(200, 50)) as screen:
        label = screen.app.screen.query_one("#mapping-name", Label)
        label._ready[0] = Strip([Segment("narrow")])  # of before the layout
        assert label.render_line(0).cell_length == label.size.width
