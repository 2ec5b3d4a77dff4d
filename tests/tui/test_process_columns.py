"""The cells of the process table, and the rule above it, without a table."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.processes.process_listing import ProcessListing
from gputop.model.processes.views import View
from gputop.tui.glyphs import UNICODE
from gputop.tui.panes.columns import Fitted, heading, row
from gputop.tui.panes.lines import Piece
from gputop.tui.panes.process_columns import ProcessColumns
from gputop.tui.panes.process_rule import count_words, rule, sort_mark
from tests.builders import GIB, frame, gpu, process


def card(index: int, **fields: Any) -> Gpu:
    return gpu(index, pci_bus_id=f"00000000:{index + 1:02X}:00.0", minor=index, **fields)


GPUS = tuple(card(index) for index in range(4))
NOW = 2000.0
UNKNOWN = process(
    304, None, user=None, gpu_memory=None, sm_utilization=None, cpu=None, rss=None, state=None,
    start_time=None, command=None,
)  # fmt: skip


class Drawn:
    """The cells of a list in a width, as the table draws them, and their heading."""

    def __init__(
        self, here: Frame, width: int = 120, listing: ProcessListing | None = None,
        columns: ProcessColumns | None = None, idle_after: float = 600.0,
    ) -> None:  # fmt: skip
        self.listing = listing or ProcessListing(idle_after=idle_after)
        self.listing.show_frame(here, LogicalNames(here))
        self.columns = columns or ProcessColumns(())
        self.width, self.gap = width, 2 if width >= 110 else 1
        self.columns.show(self.listing)
        self.fitted: Fitted[Any] = self.columns.fitted(width, self.gap, UNICODE)

    @property
    def head(self) -> str:
        mark = sort_mark(self.listing, UNICODE)
        return text_of(heading(self.fitted, self.gap, self.listing.order[0], mark))[1:]

    @property
    def pieces(self) -> list[list[Piece]]:
        return [row(self.fitted, line, self.gap, "…") for line in self.listing.rows]

    @property
    def lines(self) -> list[str]:
        return [text_of(pieces) for pieces in self.pieces]


def text_of(pieces: list[Piece]) -> str:
    return "".join(text for text, _ in pieces)


def around(**variables: str) -> CudaContext:
    return CudaContext(Environ(variables))


@pytest.mark.parametrize("width", [200, 120, 80, 40, 20])
def test_columns_stand_under_their_labels(width: int) -> None:
    here = frame(GPUS, [
        process(301, 1, user="bob", gpu_memory=3 * GIB, cpu=0.0, sm_utilization=0.1, state="D"),
        process(302, 0, user="amy", gpu_memory=2 * GIB, cpu=3.5, idle_for=900.0, type="C+G"),
        process(1234567, user="a" * 30, cpu=99.99, gpu_memory=0),
        UNKNOWN,
    ])  # fmt: skip
    drawn = Drawn(here, width, ProcessListing("gpu_memory"))
    starts = [drawn.head.index(label) for label in ("USER", "COMMAND") if label in drawn.head]
    assert len(drawn.lines) == 4
    for line in drawn.lines:
        assert len(line) < width
        assert all(start == 0 or line[start - 1] == " " for start in starts)
        for label in ("PID", "GPU-MEM", "CPU%"):
            if label in drawn.head:
                end = drawn.head.index(label) + len(label)
                assert line[end - 1] != " "
                assert line.ljust(width)[end] == " "


def test_a_column_that_tells_nothing_is_not_shown() -> None:
    """IDLE, TYPE and S; and it stays for a minute, so as not to come and go."""
    plain, *_ = ordinary = (process(401, idle_for=599.0), process(402, state="S"))
    columns = ProcessColumns(())

    def heads(*processes: Any, after: float) -> set[str]:
        drawn = Drawn(frame(GPUS, processes, NOW + after), 160, columns=columns)
        return {"IDLE", "TYPE", "S"} & set(drawn.head.split())

    held = {"gpu_memory": 10 * GIB}
    assert heads(*ordinary, after=0) == set()
    idle = replace(plain, idle_for=600.0, **held)
    assert heads(idle, after=1) == {"IDLE"}
    assert heads(*ordinary, after=2) == {"IDLE"}
    assert heads(*ordinary, replace(plain, state="D"), after=62) == {"S"}
    assert heads(*ordinary, process(403, type="G"), after=63) == {"S", "TYPE"}
    assert heads(*ordinary, after=124) == set()
    assert heads(replace(idle, gpu_memory=0), after=125) == set()


def test_script_first_or_the_whole_line_from_a_character_on() -> None:
    command = "/opt/conda/bin/python3 -u /home/alice/train.py --lr 3e-4"
    here, columns = frame(GPUS, [process(100, command=command)]), ProcessColumns(())
    assert Drawn(here, columns=columns).lines[0].rstrip().endswith(" train.py --lr 3e-4")
    columns.full_command = True
    assert Drawn(here, 160, columns=columns).lines[0].rstrip().endswith(f" {command}")
    columns.shift = 16
    drawn = Drawn(here, 160, columns=columns)
    assert drawn.head.rstrip().endswith("COMMAND from 16")
    assert drawn.lines[0].rstrip().endswith(f" {command[16:]}")


def test_what_is_not_known_of_a_process() -> None:
    [line] = Drawn(frame(GPUS, [UNKNOWN]), 200).lines
    assert "not in this /proc" in line
    assert line.split("not in")[0].split() == ["–", "–", "304", *["–"] * 6]
    [line] = Drawn(frame(GPUS, [replace(UNKNOWN, elsewhere=True)]), 200).lines
    assert line.rstrip().endswith("may be a host PID")
    zeros = process(1000, gpu_memory=0, sm_utilization=0.0, cpu=0.0, rss=0, state="R")
    [line] = Drawn(frame(GPUS, [zeros]), 200).lines
    assert line.split()[4:8] == ["0"] * 4


def test_mig_instances_are_named() -> None:
    mig = gpu(0, mig_mode=True)
    [line] = Drawn(frame([mig], [process(100, gpu_instance=3, compute_instance=0)])).lines
    assert line.split()[0] == "0:3"
    parts = [process(pid, gpu_instance=13, compute_instance=pid) for pid in range(3)]
    drawn = Drawn(frame([mig], parts))
    assert {line.split()[0] for line in drawn.lines} == {"0:13", "0:13/1", "0:13/2"}
    assert drawn.head.index("GPU") == 3


def test_the_cuda_column_says_what_a_process_calls_its_gpu() -> None:
    here = frame(GPUS, [
        process(401, 1, cuda_context=around(CUDA_VISIBLE_DEVICES="3,1")),
        process(402, 2, cuda_context=around()),
        process(403, 3, cuda_context=CudaContext(Environ({}, "unreadable"))),
        process(404, 3, cuda_context=CudaContext(Environ({}, "overwritten"))),
        process(405, 0),
    ])  # fmt: skip
    by_pid = {line.split()[2]: line.split()[1] for line in Drawn(here).lines}
    assert by_pid == {
        "401": "cuda:1?", "402": "cuda:2?", "403": "private", "404": "env-lost", "405": "–",
    }  # fmt: skip


def test_a_misspelt_variable_is_a_warning_on_its_row() -> None:
    typo = process(401, cuda_context=around(CUDA_VISIBLE_DIVICES="1"))
    [line] = Drawn(frame(GPUS, [typo])).lines
    assert "! CUDA_VISIBLE_DIVICES train.py" in line


def test_what_a_gpu_said_before_it_hung_is_dim_and_a_failed_one_has_no_name() -> None:
    gpus = (card(0), card(1, stale_for=40.0), card(2, error="GPU is lost"))
    parts = [process(100 + n, n, sm_utilization=0.5, cuda_context=around()) for n in range(3)]
    drawn = Drawn(frame(gpus, parts))
    roles = [role for pieces in drawn.pieces for text, role in pieces if text.strip() == "50"]
    assert roles == ["text", "quiet", "quiet"]
    assert ["cuda:" in line for line in drawn.lines] == [True, True, False]


def test_by_user_it_says_what_could_be_had_back_and_cuts_no_sum() -> None:
    idle = [process(401 + n, 1, user="bob", idle_for=900.0, sm_utilization=0.5,
                    gpu_memory=10 * GIB) for n in range(3)]  # fmt: skip
    busy = [process(501 + n, 2, user="amy", idle_for=0.0, sm_utilization=0.9, gpu_memory=GIB)
            for n in range(20)]  # fmt: skip
    listing = ProcessListing(idle_after=600.0)
    listing.show_users()
    drawn = Drawn(frame(GPUS, idle + busy), 80, listing)
    heads = ["USER", "↓GPU-MEM", "IDLE-MEM", "SM%", "CPU%", "RSS", "TIME", "PROCESSES"]
    assert drawn.head.split() == heads
    assert [line.split()[:4] for line in drawn.lines] == [
        ["bob", "30.0G", "30.0G", "150"], ["amy", "20.0G", "0", "1800"],
    ]  # fmt: skip


@pytest.mark.parametrize("width", [200, 80, 40])
def test_the_mark_of_the_order_moves_nothing(width: int) -> None:
    listing = three()
    drawn = Drawn(listing.frame or frame(GPUS, []), width, listing)
    usual = text_of(heading(drawn.fitted, drawn.gap))
    for column, _ in drawn.fitted:
        listing.sort_by(column.id)
        again = Drawn(listing.frame or frame(GPUS, []), width, listing)
        mark = sort_mark(listing, UNICODE)
        marked = text_of(heading(again.fitted, again.gap, column.id, mark))
        assert marked.replace(mark, " ").rstrip() == usual.rstrip()
        assert re.search(rf"{column.label}{mark}|{mark}{column.label}", marked), marked
        assert width == 40 or not re.search(rf"\S{mark}\S", marked), marked


# The rule


def ruled(listing: ProcessListing, span: tuple[int, int, int] = (1, 3, 3), width: int = 100) -> str:
    text = text_of(rule(listing, span, width, UNICODE))
    assert len(text) == width
    return text


def three(**options: Any) -> ProcessListing:
    listing = ProcessListing(**options)
    parts = [process(301, user="amy"), process(302, 1, user="bob"), process(303, 1, user="amy")]
    listing.show_frame(here := frame(GPUS, parts), LogicalNames(here))
    return listing


def test_the_first_process_of_a_gpu_stands_out_from_the_others() -> None:
    """Without a word or a row more; and only in the order of GPUs."""
    here = frame(GPUS, [process(301, 0), process(302, 1), process(303, 1), process(304, 1),
                        process(305, 2), process(306, 2)])  # fmt: skip
    roles = [next(role for text, role in pieces if text.strip()) for pieces in Drawn(here).pieces]
    assert roles == ["text", "heading", "quiet", "quiet", "heading", "quiet"]
    by_pid = Drawn(here, listing=ProcessListing("pid"))
    assert {next(role for text, role in line if text.strip()) for line in by_pid.pieces} == {"text"}


def test_the_rule_says_what_was_chosen() -> None:
    listing = three(me="amy")
    assert ruled(listing).startswith("─ Processes ───")
    assert ruled(listing).endswith("─ by GPU ── 3 ─")
    listing.sort_by("gpu")
    assert ruled(listing).endswith("─ by GPU ↓ ── 3 ─")
    listing.tag(listing.rows[0])
    listing.view = View(whose=("amy",))
    listing.only_gpu(GPUS[1].key)
    listing.toggle_tree()
    listing.filter_by("train")
    words = "─ Processes ── 1 tagged ── of amy, on GPU 1, tree ── filter: train ───"
    assert ruled(listing).startswith(words)
    assert ruled(listing).endswith("─ 1 of 3 ─")
    listing.show_users()
    assert "─ on GPU 1, by user ─" in ruled(listing)
    assert "by GPU-MEM ↓" in ruled(listing)


def test_the_rule_counts_processes_and_not_rows() -> None:
    listing = three()
    assert count_words(listing, (1, 3, 3)) == "3"
    assert count_words(listing, (1, 2, 3)) == "1-2 of 3"
    assert count_words(listing, (2, 3, 4)) == "rows 2-3 of 4, 3 processes"
    listing.filter_by("amy")
    assert count_words(listing, (1, 2, 2)) == "2 of 3"
    assert count_words(listing, (1, 1, 2)) == "rows 1-1 of 2, 2 of 3 processes"


def test_a_long_filter_is_cut_and_a_narrow_rule_leaves_out_the_count() -> None:
    listing = three()
    listing.filter_by("!" + "x" * 200)
    assert " filter: !xxx" in ruled(listing)
    assert "xxx… ─" in ruled(listing)
    assert ruled(three(), width=20) == "─ Processes ────────"
