"""The mapping pane shows the process under the cursor, and the question again without one."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from textual.strip import Strip

from gputop.model.machine.environment import CudaContext, Environ
from gputop.protocol.messages import Probe
from gputop.tui.panes.lines import width_of
from gputop.tui.panes.mapping import Label
from tests.builders_tui import frame_of, gpu_of, process_of, shown

GPUS = [gpu_of(index) for index in range(4)]
MASKED = CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "3,1"}))
PRIVATE = CudaContext(Environ({}, "unreadable"))
PROCESSES = [
    process_of(401, gpu=1, gpu_memory=3, cuda_context=MASKED),
    process_of(402, gpu=2, gpu_memory=2, cuda_context=PRIVATE),
    process_of(403, gpu=3, gpu_memory=1),
]


@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_the_selected_process_is_shown(size: tuple[int, int]) -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=size) as screen:
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.text
        await screen.press("j")
        assert screen.pane.size.height == 1
        assert "PID 401 train.py: CUDA_VISIBLE_DEVICES=3,1" in screen.text
        await screen.press("j")
        line = screen.line_with("PID 402")
        assert "only root and its owner" in line
        assert "unset" not in line
        await screen.press("j")
        assert "PID 403" not in screen.lines[-2]  # nothing is known of it
        await screen.press("k", "k", "escape")
        assert "PID 401 train.py:" not in screen.text


async def test_more_of_the_answer_to_a_typed_value_is_not_that_of_the_process() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(80, 14)) as screen:
        await screen.press("j", "m")
        await screen.type("0,1,2,3")
        assert screen.mapping_lines[0].startswith("cuda:0")
        await screen.press("pagedown")
        assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in screen.line_with("Mapping")
        assert screen.mapping_lines[0].startswith("cuda:1")
        await screen.press("pageup")
        assert screen.mapping_lines[0].startswith("cuda:0")


async def test_its_devices_and_its_evidence() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(200, 50)) as screen:
        await screen.open_mapping()
        await screen.press("j")
        assert [line.split()[4] for line in screen.mapping_lines[:2]] == ["3", "1"]
        assert "on GPU 1: it may have chosen that, or hidden the other GPUs itself" in screen.text
        whole = [process_of(401, gpu=gpu, cuda_context=MASKED) for gpu in (1, 3)]
        await screen.show(frame_of(*GPUS, *whole))
        assert "which fits." in screen.text
        assert "export CUDA_VISIBLE_DEVICES=3,1" in screen.text
        both = [process_of(401, gpu=gpu, cuda_context=MASKED) for gpu in (1, 2)]
        await screen.show(frame_of(*GPUS, *both))
        assert "contradicted" in screen.line_with("Mapping")
        await screen.show(frame_of(*GPUS))
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.text


async def test_what_is_typed_comes_before_the_process() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(200, 50)) as screen:
        await screen.open_mapping()
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
        await screen.press("escape", "escape")
        assert screen.lines[-2].startswith("─ CUDA_VISIBLE_DEVICES is unset: cuda:0 = GPU 0")


async def test_the_driver_is_not_asked_about_a_process() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(200, 50)) as screen:
        await screen.press("j", "v")
        assert "the driver can only be asked about a value" in screen.text
        assert not [request for request in screen.source.requests if isinstance(request, Probe)]
        await screen.press("j", "y")
        assert "its variables are not known" in screen.text.replace("process's", "its")


async def test_a_label_that_a_layout_made_wider_is_drawn_at_once() -> None:
    async with shown(frame_of(*GPUS, *PROCESSES), size=(200, 50)) as screen:
        label = screen.app.screen.query_one("#mapping-name", Label)
        label._ready[0] = Strip([Segment("narrow")])  # of before the layout
        assert label.render_line(0).cell_length == label.size.width


async def test_the_head_of_a_process_is_as_wide_as_the_screen() -> None:
    """Its variable is cut, and so is nothing after it."""
    long = process_of(401, cuda_context=CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "9," * 90})))
    async with shown(frame_of(*GPUS, long), size=(80, 40)) as screen:
        await screen.open_mapping()
        await screen.press("j")
        label = screen.app.screen.query_one("#mapping-name", Label)
        assert "…" in screen.line_with("Mapping")
        assert width_of(label.pieces(0)) == 80


async def test_a_process_is_not_told_that_it_fills_its_gpu_itself() -> None:
    full = [gpu_of(index, memory_used=2**37 - 2**20, memory_free=2**20, memory_total=2**37)
            for index in range(4)]  # fmt: skip
    alone = process_of(401, gpu=1, gpu_memory=2**37 - 2**30, cuda_context=MASKED)
    other = process_of(402, gpu=3, gpu_memory=2**36, user="zoe", cuda_context=PRIVATE)
    async with shown(frame_of(*full, alone, other), size=(200, 50)) as screen:
        await screen.open_mapping()
        await screen.press("j")
        assert "PID 401" in screen.line_with("Mapping")
        third, first = screen.mapping_lines[:2]
        assert "used by zoe" in third
        assert "also" not in third
        assert "full" not in first
        assert "used by" not in first


CONTRADICTED = CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "0"}))
NO_GPU = CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "0"}), minors=())


@pytest.mark.parametrize(
    ("around", "gpu", "said"),
    [
        (CONTRADICTED, 2, "which its variables hide"),
        (NO_GPU, 2, "which is not among the device nodes"),
    ],
)
async def test_no_line_is_offered_that_does_not_hold(
    around: CudaContext, gpu: int, said: str
) -> None:
    followed = process_of(401, gpu=gpu, gpu_memory=3, cuda_context=around)
    async with shown(frame_of(*GPUS, followed), size=(200, 50)) as screen:
        await screen.open_mapping()
        await screen.press("j")
        assert said in screen.text
        assert "export" not in screen.text
        await screen.press("j", "y")
        assert "the process's GPUs are not known" in screen.text
