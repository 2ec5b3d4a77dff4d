"""What the page of a process says, without the page."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.machine.detail import ChildProcess, EnvVariable, ProcessDetail, ProcessStack
from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame, Host, Process, ProcessKey
from gputop.model.machine.gpu import MigDevice
from gputop.model.machine.origin import Ancestor, Container, Origin
from gputop.model.machine.text import date_time
from gputop.tui.glyphs import ASCII, UNICODE
from gputop.tui.pages.process_lines import detail_lines, process_lines
from gputop.tui.pages.process_state import ProcessPageState
from gputop.tui.panes.paper import Paper
from tests.builders import id_of
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of
from tests.tui.papers import section, shown_frames, written

GPUS = (gpu_of(0), gpu_of(1), gpu_of(2))
START = NOON - 60
IT = id_of(401, START)
WIDE, NARROW = Paper(200, UNICODE), Paper(80, UNICODE)
PLACE = Origin(
    cwd="/home/alice/llama",
    venv="/home/alice/venv",
    ancestors=(Ancestor(20980, "bash"), Ancestor(20977, "tmux: server")),
    session="tmux default:$0",
    ssh_from="192.0.2.7",
    container=Container("4f" * 32, "docker", "vllm", "vllm/vllm-openai"),
    pod="2b1c",
    slurm_job="4711",
    slurm_account="physics",
    slurm_step="0",
    unit="session-3.scope",
)
VARIABLES = (
    EnvVariable("LANG", "other"),
    EnvVariable("NCCL_DEBUG", "gpu", "INFO"),
    EnvVariable("RANK", "gpu", "3"),
    EnvVariable("WANDB_API_KEY", "secret"),
)


def detail_of(**values: Any) -> ProcessDetail:
    usual = {
        "variables": VARIABLES,
        "files": 61,
        "devices": ("/dev/nvidia-uvm", "/dev/nvidia0"),
        "children": (ChildProcess(id_of(402, START + 10), START + 10, "python loader.py"),),
        "children_count": 1,
    }
    return ProcessDetail(IT, **{**usual, **values})


def subject_of(*frames: Frame, detail: ProcessDetail | None = None) -> ProcessPageState:
    """Process 401 of the first frame, as it is known after the last."""
    process = next(process for process in frames[0].processes if process.pid == 401)
    state = ProcessPageState(frames[0].key(process))
    for shown in shown_frames(*frames):
        state.show(shown)
    state.take_detail(detail)
    return state


def page_of(state: ProcessPageState, paper: Paper = WIDE) -> str:
    lines = [*process_lines(paper, state), *detail_lines(paper, state)]
    return written(lines, paper)


def page(*processes: Process, paper: Paper = WIDE, detail: ProcessDetail | None = None) -> str:
    return page_of(subject_of(frame_of(*GPUS, *processes), detail=detail), paper)


def test_everything_is_on_the_page() -> None:
    around = CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "0,2"}))
    facts: dict[str, Any] = {"origin": PLACE, "cuda_context": around, "threads": 12,
                             "io_read": 4e6, "io_write": 0.0, "state": "D"}  # fmt: skip
    processes = (
        process_of(401, 0, **facts, memory_utilization=0.25, idle_for=0.0),
        process_of(401, 2, **facts, sm_utilization=None, idle_for=2460.0, type="C+G",
                   gpu_memory=GIB // 2),
        process_of(402, 1, user="bob", start_time=START + 10),
    )  # fmt: skip
    text = page(*processes, detail=detail_of())
    words = " ".join(text.split())
    for part in (
        "Process 401 alice", "python train.py --seed 401", "waiting in the kernel (D)",
        "CPU% 100 · RSS 1.00G · THREADS 12 · READ 4.00 MB/s · WRITE 0 B/s · started",
        "1m00s ago", "directory /home/alice/llama", "environment /home/alice/venv",
        "started by tmux: server 20977 > bash 20980", "terminal tmux default:$0",
        "ssh from 192.0.2.7", "container vllm (docker, image vllm/vllm-openai, 4f4f4f4f4f4f)",
        "pod 2b1c", "Slurm job 4711, step 0, account physics", "unit session-3.scope",
        "GPU 0 cuda:0 GPU-MEM 10.0G SM% 50 MEM% 25 ENC% – DEC% –",
        "GPU 2 cuda:1 GPU-MEM 512M SM% –", "NVIDIA H200, compute, graphics",
        "no work seen in its samples for 41m00s, since", "a context only",
        "It was started with CUDA_VISIBLE_DEVICES=0,2", "cuda:1 /device:GPU:1 → GPU 2 in use",
        "NCCL_DEBUG=INFO RANK=3", "/dev/nvidia-uvm, /dev/nvidia0; 61 open files in all",
        "402 50s 1 python loader.py", "e shows the values of LANG",
        "not shown, as they may be secrets: WANDB_API_KEY",
        "t asks py-spy where a Python process is",
    ):  # fmt: skip
        assert part in words, text
    assert "none or unknown" not in text


def test_work_of_another_day_has_its_date() -> None:
    text = page(process_of(401, idle_for=198000.0))
    assert f"for 2d07h, since {date_time(NOON - 198000)}" in text


def test_it_begins_with_its_warning_and_what_it_is_on() -> None:
    around = CudaContext(Environ({"CUDA_VISIBLE_DIVICES": "1"}))
    text = page(process_of(401, 1, cuda_context=around))
    top = text.split("\n")[1:7]
    assert top[:2] == [" Process 401  alice", " python train.py --seed 401"]
    assert top[2].startswith("  ! CUDA_VISIBLE_DIVICES is not read by CUDA. Did you mean CUDA_VISI")
    assert top[3:5] == ["", " On the GPUs"]
    assert top[5].startswith("  GPU 1 ")
    assert text.count("CUDA_VISIBLE_DIVICES is not read") == 1


def test_cuda_device_names_are_told_once() -> None:
    around = CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))
    text = page(process_of(401, 2, cuda_context=around))
    names = section(text, "CUDA device names")
    assert names[0] == "  cuda:0          /device:GPU:0   →  GPU 2  in use"
    assert not any("cuda:0" in line for line in names[1:])
    assert "The names are exact: CUDA_DEVICE_ORDER=PCI_BUS_ID counts" in " ".join(names[1:])
    hidden = CudaContext(Environ({"CUDA_VISIBLE_DEVICES": ""}))
    assert "no GPU is visible" in page(process_of(401, 0, cuda_context=hidden, gpu_memory=0))


def test_on_a_fleet_the_title_names_the_host() -> None:
    frame = frame_of(*GPUS, process_of(401), host=Host(name="node", requested_name="lab3"))
    assert page_of(subject_of(frame)).split("\n")[1] == " lab3  Process 401  alice"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"variables": None, "missing": "unreadable"}, "not permitted: only root and its owner"),
        ({"variables": None, "missing": "overwritten"}, "has overwritten the variables"),
        ({"files": None, "devices": None}, "root and its owner may read its open files"),
        ({"devices": ()}, "none of a GPU; 61 open files"),
        ({"children_count": 99}, "and 98 more"),
    ],
)
def test_what_is_not_known_is_said(values: dict[str, Any], words: str) -> None:
    assert words not in page(process_of(401), detail=detail_of())
    assert words in page(process_of(401), detail=detail_of(**values))


def test_a_zombie_that_was_never_looked_at() -> None:
    text = page(process_of(401, state="Z"), detail=ProcessDetail(IT, gone=True))
    assert "zombie: it has ended, and its parent" in text
    assert "unknown: it ended before it was read" in text


def test_a_process_that_ended_keeps_its_last_figures() -> None:
    frames = frame_of(*GPUS, process_of(401, origin=PLACE)), frame_of(*GPUS, time=NOON + 60)
    state = subject_of(*frames, detail=detail_of())
    assert (state.ended, state.can_be_read) == (True, False)
    assert state.take_detail(ProcessDetail(IT, gone=True))
    text = page_of(state)
    for part in ("it has ended", "10.0G", "NCCL_DEBUG=INFO", "1m00s ago", "/home/alice/llama"):
        assert part in text


def test_the_answer_about_another_process_is_not_taken() -> None:
    state = subject_of(frame_of(*GPUS, process_of(401)))
    for other in (id_of(401, START - 1), id_of(402, START)):
        assert not state.take_detail(replace(detail_of(), process=other))
        assert not state.take_stack(ProcessStack(other, ("Thread of another",)))
    assert "being read" in page_of(state)
    assert state.take_stack(ProcessStack(IT, ("Thread 1",)))
    assert "  Thread 1\n" in f"{page_of(state)}\n"


def test_the_past_has_no_details_of_now() -> None:
    state = subject_of(frame_of(*GPUS, process_of(401)), detail=detail_of())
    [past] = shown_frames(frame_of(*GPUS, process_of(401), time=NOON - 30), moment="past")
    state.show(past)
    text = page_of(state)
    assert "not kept for the past" in text
    assert "NCCL_DEBUG" not in text
    [before_start] = shown_frames(frame_of(*GPUS, time=START - 5), moment="past")
    state.show(before_start)
    assert "not started yet at this time; later values are shown" in page_of(state)


def test_its_past() -> None:
    """Of a process that nobody looked at, too; a GPU that is stale leaves a gap."""
    frames = [frame_of(*GPUS, process_of(401, gpu_memory=size * GIB, sm_utilization=n / 2),
                       time=NOON + n) for n, size in enumerate((10, 20, 40))]  # fmt: skip
    stale = frame_of(gpu_of(0, stale_for=3.0), process_of(401, gpu_memory=GIB), time=NOON + 3)
    last = frame_of(*GPUS, process_of(401, gpu_memory=10 * GIB), time=NOON + 4)
    assert "memory ▃▅█ ▃  peak 40.0G   SM ▁▅█ ▅" in page_of(subject_of(*frames, stale, last))


def test_a_value_and_its_unit_stay_together() -> None:
    process = process_of(401, io_read=4e6, io_write=0.0)
    for width in range(40, 100, 5):
        text = page(process, paper=Paper(width, UNICODE))
        assert "READ 4.00 MB/s" in text
        assert "WRITE 0 B/s" in text


def test_a_long_command_line_leaves_room_and_is_told_whole() -> None:
    words = " ".join(f"--option{n:03d}" for n in range(200))
    text = page(process_of(401, command=words), paper=NARROW)
    assert " On the GPUs" in text.split("\n")[:10]
    assert "all of it is below" in text
    assert words in " ".join(text.split())


def test_a_mig_device() -> None:
    mig = (MigDevice(uuid="MIG-1", gi=1, ci=0, profile="2g.20gb"),)
    gpu = gpu_of(0, mig_mode=True, mig=mig)
    process = process_of(401, gpu_instance=1, compute_instance=0)
    text = page_of(subject_of(frame_of(gpu, process)))
    assert "GPU 0:1" in text
    assert "compute; GPU instance 1, compute instance 0 (2g.20gb)" in text


def test_a_process_that_is_not_here() -> None:
    process = process_of(401, start_time=None, command=None, elsewhere=True, user=None, state=None)
    state = subject_of(frame_of(*GPUS, process))
    text = page_of(state)
    assert "The PID may be the host's: no process here is known to be it." in text
    assert text.count("unknown: the process is not in this /proc") == 4
    assert section(text, "Stack") == ["  the process is not in this /proc"]
    assert not state.can_be_read


@pytest.mark.parametrize("width", [200, 80, 40, 10])
def test_hostile_values(width: int) -> None:
    """Markup is text; wide letters and lines without a space do not leave the page."""
    hostile = "[/][red]" + "訓練" * 150
    origin = Origin(cwd="/" + "x" * 500, session=hostile)
    process = process_of(401, command=hostile, origin=origin, user="[bold]")
    variables = (EnvVariable("RANK", "gpu", hostile), EnvVariable(hostile, "secret"))
    detail = detail_of(variables=variables, devices=(hostile,),
                       children=(ChildProcess(id_of(7, START), START, hostile),))  # fmt: skip
    state = subject_of(frame_of(*GPUS, process), detail=detail)
    state.take_stack(ProcessStack(IT, (hostile,)))
    text = page_of(state, Paper(width, UNICODE))  # `written` measures each line
    assert "[/][red]"[: width - 2] in text
    if width >= 80:  # narrower, lines are cut
        assert text.count("訓") >= 5 * 150


def test_ascii() -> None:
    process = process_of(401, command="python 訓練.py", origin=PLACE)
    state = subject_of(frame_of(*GPUS, process), detail=detail_of())
    state.take_stack(ProcessStack(IT, ("  訓練 (a.py:1)",)))
    text = page_of(state, Paper(120, ASCII))
    assert text.isascii()
    assert "running, CPU%" in text


def test_the_key_is_that_of_the_process() -> None:
    state = ProcessPageState(ProcessKey("boot", id_of(401, START - 1)))
    for shown in shown_frames(frame_of(*GPUS, process_of(401))):
        state.show(shown)
    assert (state.rows, state.ended) == ([], True)
