"""The listing of processes: order, filter, views, tags, and a cursor that follows a process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame, Host, Process, ProcessKey
from gputop.model.machine.gpu import DeviceHolder, Gpu
from gputop.model.metrics.process import PROCESS, ProcessRow
from gputop.model.processes.process_listing import ProcessListing
from gputop.model.processes.views import ViewRow
from gputop.tui.panes.table_cursor import TableCursor
from tests.builders import GIB, frame, gpu, id_of, process

GPUS = tuple(gpu(index) for index in range(3))
MIXED = (
    process(301, 0, user="amy", gpu_memory=30 * GIB, cpu=0.0),
    process(302, 1, user="bob", gpu_memory=20 * GIB, cpu=3.5),
    process(303, 1, user="amy", gpu_memory=10 * GIB, cpu=1.0),
)


def show(
    listing: ProcessListing, *processes: Process, gpus: Sequence[Gpu] = GPUS, time: float = 2000.0
) -> None:
    here = frame(gpus, processes, time)
    listing.show_frame(here, LogicalNames(here))


def listed(*processes: Process, gpus: Sequence[Gpu] = GPUS, **options: Any) -> ProcessListing:
    listing = ProcessListing(**options)
    show(listing, *processes, gpus=gpus)
    return listing


def pids(listing: ProcessListing) -> list[int]:
    return [line.row.process.pid for line in listing.rows]


def row_of(listing: ProcessListing, pid: int) -> ViewRow:
    return next(line for line in listing.rows if line.row.process.pid == pid)


def rank(pid: int, on: int = 0, **fields: Any) -> Process:
    """Of a launcher that is not on a GPU."""
    usual: dict[str, Any] = {"parent": 90, "start_time": 500.0 + pid, "gpu_memory": 10 * GIB}
    return process(pid, on, **{**usual, "command": f"python t.py --rank {pid}", **fields})


# Order


def test_text_sorts_from_a_and_numbers_from_the_highest() -> None:
    listing = listed(*MIXED)
    assert pids(listing) == [301, 302, 303]
    listing.sort_by("gpu_memory")
    assert (pids(listing), listing.order) == ([301, 302, 303], ("gpu_memory", True))
    listing.sort_by("user")
    assert (pids(listing), listing.order) == ([301, 303, 302], ("user", False))
    listing.sort_by("cpu")
    assert pids(listing) == [302, 303, 301]
    listing.sort_by("cpu")
    assert (pids(listing), listing.order) == ([301, 303, 302], ("cpu", False))


def test_by_gpu_and_those_with_most_memory_first() -> None:
    held = {501: (1, 3), 502: (0, 1), 503: (1, 5), 504: (0, 2), 505: (2, 9), 506: (0, 2)}
    listing = listed(*(process(pid, on, gpu_memory=g * GIB) for pid, (on, g) in held.items()))
    assert pids(listing) == [504, 506, 502, 503, 501, 505]
    listing.sort_by("gpu")
    assert pids(listing) == [505, 503, 501, 504, 506, 502]


def test_equal_rows_stay_where_they_are() -> None:
    processes = [process(500 + n) for n in range(8)]
    chance, listing = random.Random(1), ProcessListing()
    for metric_id in ("gpu", "user", "gpu_memory"):
        if metric_id != listing.sort_id:
            listing.sort_by(metric_id)
        for _ in range(5):
            chance.shuffle(processes)
            show(listing, *processes)
            assert pids(listing) == list(range(500, 508))


# The selected process


class Selection:
    """The cursor of a table that shows a list."""

    def __init__(self, listing: ProcessListing, room: int = 10) -> None:
        self.listing, self.room, self.cursor = listing, room, TableCursor()
        listing.arranged = self.follow
        self.follow()

    def follow(self) -> None:
        self.cursor.show([line.key for line in self.listing.rows], self.room)

    def select(self, index: int) -> None:
        self.cursor.select(index, self.room)

    @property
    def row(self) -> ViewRow | None:
        return self.listing.rows[self.cursor.index] if self.cursor.is_there else None

    @property
    def pid(self) -> int | None:
        return None if self.row is None else self.row.row.process.pid


def test_the_cursor_follows_its_process() -> None:
    processes = [process(100 + n, gpu_memory=(50 - n) * GIB) for n in range(40)]
    listing = listed(*processes, sort_id="gpu_memory")
    selection = Selection(listing)
    selection.select(1)
    processes[1] = process(101, gpu_memory=GIB)  # from the second place to the last
    show(listing, *processes)
    assert (selection.pid, selection.cursor.index, selection.cursor.top) == (101, 39, 30)
    listing.sort_by("gpu_memory")
    assert (selection.pid, selection.cursor.index, selection.cursor.top) == (101, 0, 0)
    listing.sort_by("pid")
    assert selection.pid == 101


def test_a_process_that_takes_its_place_is_not_selected() -> None:
    listing = listed(process(100), process(101), process(102))
    selection = Selection(listing)
    listing.toggle_ended()
    selection.select(1)
    show(listing, process(100), process(102), time=2001.0)
    assert selection.pid is None
    selection.select(selection.cursor.start)
    assert selection.pid == 102
    show(listing, time=2002.0)
    assert selection.pid is None


def test_a_reused_pid_is_another_process() -> None:
    listing = listed(process(100))
    selection = Selection(listing)
    selection.select(0)
    show(listing, process(100, start_time=999.0))
    assert selection.pid is None
    show(listing, process(100))
    assert selection.pid == 100


def test_a_process_on_two_gpus_has_two_rows() -> None:
    listing = listed(process(100), process(100, 1))
    selection = Selection(listing)
    selection.select(1)
    assert pids(listing) == [100, 100]
    row = selection.row
    assert row is not None
    assert row.row.gpu is not None
    assert row.row.gpu.index == 1


def test_filtering_keeps_the_cursor_on_its_process() -> None:
    listing = listed(process(100), process(200, user="bob"), process(300, user="bob"))
    selection = Selection(listing)
    selection.select(0)
    listing.filter_by("bob")
    assert selection.row is None
    listing.filter_by("")
    assert selection.pid == 100
    selection.select(2)
    listing.filter_by("bob")
    assert (selection.pid, selection.cursor.index) == (300, 1)


def test_the_selected_process_is_never_another_one() -> None:
    """Frames, sorting, views, folding and filters at random: what is selected is what was selected
    by hand, or nothing; and what is tagged is what was tagged."""
    chance = random.Random(7)
    pool = [
        rank(n, n % 3, user=chance.choice(["amy", "bob"]), parent=chance.choice([90, 91, n - 1]))
        for n in range(101, 131)
    ]
    listing = listed(*pool, me="amy")
    selection = Selection(listing)
    chosen: ViewRow | None = None
    for turn in range(2000):
        what = chance.randrange(6)
        if what == 0:
            now = [
                replace(other, gpu_memory=chance.randrange(9) * GIB)
                for other in chance.sample(pool, chance.randrange(31))
            ]
            show(listing, *now, time=2001.0 + turn)
        elif what == 1:
            listing.sort_by(chance.choice(list(PROCESS)))
        elif what == 2:
            listing.filter_by(chance.choice(["", "amy", "gpu:1", "mem>3G or bob", "12", "idle"]))
        elif what == 3:
            chance.choice([listing.toggle_tree, listing.show_users, listing.toggle_ended])()
        elif what == 4:
            listing.open(selection.row)
        elif listing.rows:
            selection.select(selection.cursor.start + chance.randrange(-3, 4))
            chosen = selection.row
            tags_change(listing, selection)
        assert selection.row is None or (chosen and selection.row.key == chosen.key)


def tags_change(listing: ProcessListing, selection: Selection) -> None:
    """Tagging a row changes the tags of its processes and of no others."""
    row = selection.row
    assert row is not None
    before, keys, was_tagged = listing.tagged, listing.keys_of(row), listing.is_tagged(row)
    listing.tag(row)
    assert set(listing.tagged) == (set(before) - set(keys) if was_tagged else {*before, *keys})
    assert listing.targets(row) == (listing.tagged or ([] if was_tagged else keys))
    listing.untag()
    assert listing.targets(row) == keys


# Views


@pytest.mark.parametrize(("me", "row"), [("amy", 0), ("bob", 1), ("eve", 0), (None, 0)])
def test_users_have_a_row_each_and_ones_own_is_first_chosen(me: str | None, row: int) -> None:
    listing = listed(*MIXED, me=me)
    assert listing.show_users() == row
    totals = [(line.row.process.user, line.row.process.gpu_memory) for line in listing.rows]
    assert totals == [("amy", 40 * GIB), ("bob", 20 * GIB)]
    commands = [line.row.process.command for line in listing.rows]
    assert commands == ["GPU 0,1: 2 processes", "GPU 1: 1 process"]
    assert listing.leave_view()
    assert pids(listing) == [301, 302, 303]


def test_a_user_is_opened_and_left_again() -> None:
    nobody = process(304, user=None, gpu_memory=GIB)
    listing = listed(*MIXED, nobody, me="amy")
    listing.show_users()
    assert listing.open(listing.rows[1])
    assert pids(listing) == [302]
    assert not listing.open(listing.rows[0])  # no group
    assert listing.leave_view()
    assert listing.view.shape == "users"
    assert listing.open(listing.rows[-1])
    assert pids(listing) == [304]
    assert listing.view.words(GPUS) == "of unknown users"
    assert [listing.leave_view() for _ in range(3)] == [True, True, False]
    assert pids(listing) == [301, 304, 302, 303]


def test_it_begins_with_the_user_that_was_asked_for() -> None:
    listing = listed(*MIXED, user="bob")
    assert pids(listing) == [302]
    show(listing)
    assert listing.why_empty() == ("no process is on a GPU", True)
    show(listing, MIXED[0])
    assert listing.why_empty() == ("no process matches this view; Esc goes back", True)
    assert listing.leave_view()
    assert pids(listing)[0] == 301


def test_a_group_of_the_tree_opens_and_closes() -> None:
    listing = listed(rank(101), rank(102), rank(201, parent=102), process(401, gpu_memory=GIB))
    listing.toggle_tree()
    assert pids(listing) == [90, 401]
    assert listing.open(listing.rows[0])
    assert pids(listing) == [90, 102, 101, 401]
    assert not listing.open(row_of(listing, 101))
    assert not listing.open(None)
    assert listing.open(listing.rows[0])
    assert pids(listing) == [90, 401]
    listing.toggle_tree()
    assert sorted(pids(listing)) == [101, 102, 201, 401]


def test_only_one_gpu_until_the_view_is_left_even_when_it_goes_away() -> None:
    listing = listed(*MIXED)
    assert listing.only_gpu_of(row_of(listing, 303))
    assert pids(listing) == [302, 303]
    listing.filter_by("amy")
    assert pids(listing) == [303]
    listing.filter_by("")
    show(listing, *MIXED, gpus=GPUS[:1])
    assert listing.why_empty() == ("no process matches this view; Esc goes back", True)
    assert listing.leave_view()
    assert len(listing.rows) == 3


def test_the_view_before_comes_back_after_that_of_a_gpu() -> None:
    listing = listed(*MIXED, user="amy")
    listing.only_gpu(GPUS[1].key)
    assert pids(listing) == [303]
    assert listing.leave_view()
    assert pids(listing) == [301, 303]


def test_only_a_mig_device() -> None:
    parts = [process(n, gpu_instance=n, compute_instance=0) for n in (1, 2)]
    listing = listed(*parts)
    assert listing.only_gpu_of(row_of(listing, 2))
    assert (pids(listing), listing.view.instance) == ([2], (2, 0))


def test_a_group_on_several_gpus_is_on_no_single_one() -> None:
    listing = listed(process(1000, 0), process(1001, 1))
    listing.show_users()
    assert not listing.only_gpu_of(listing.rows[0])
    assert not listed(process(1, None)).only_gpu_of(ViewRow(row_without_gpu(), None))


def row_without_gpu() -> ProcessRow:
    return ProcessRow(process(1, None), None, None)


# Tags


def key(pid: int) -> ProcessKey:
    return ProcessKey("boot", id_of(pid))


def test_a_tag_is_on_all_rows_of_its_process() -> None:
    listing = listed(*MIXED, process(302, 2, user="bob", gpu_memory=5 * GIB))
    listing.tag(listing.rows[-1])
    listing.tag(row_of(listing, 301))
    assert listing.tagged == [key(302), key(301)]
    assert [listing.is_tagged(line) for line in listing.rows] == [True, True, False, True]
    listing.tag(row_of(listing, 302))
    assert listing.tagged == [key(301)]
    listing.filter_by("bob")
    assert listing.targets(listing.rows[0]) == [key(301)]
    assert listing.untag()
    assert not listing.untag()
    assert listing.targets(listing.rows[0]) == [key(302)]


def test_a_group_is_tagged_whole() -> None:
    listing = listed(rank(101), rank(102), MIXED[0])
    listing.toggle_tree()
    group = row_of(listing, 90)
    listing.tag(group)
    assert {tag.process.pid for tag in listing.tagged} == {101, 102}
    listing.open(group)
    listing.tag(row_of(listing, 101))
    assert not listing.is_tagged(group)
    listing.tag(group)
    assert {tag.process.pid for tag in listing.tagged} == {101, 102}


def test_a_tag_stays_with_its_process() -> None:
    listing = listed(*MIXED)
    listing.tag(listing.rows[0])
    show(listing, *MIXED[1:], process(301, start_time=999.0))
    assert listing.tagged == listing.targets(listing.rows[0]) == []
    show(listing, *MIXED)
    assert listing.tagged == [key(301)]


# What is no process of now


def test_an_ended_process_stays_for_a_minute_and_cannot_be_tagged() -> None:
    listing = listed(*MIXED)
    show(listing, *MIXED[1:], time=2001.0)
    ended, *others = listing.rows
    assert (ended.row.process.pid, ended.kind, ended.note) == (301, "ended", "ended")
    assert [line.kind for line in others] == ["process", "process"]
    assert (listing.fitting, len(listing.every)) == (2, 2)
    assert listing.keys_of(ended) == []
    listing.tag(ended)
    assert listing.tagged == []
    listing.toggle_ended()
    assert pids(listing) == [302, 303]
    listing.toggle_ended()
    listing.sort_by("type")  # of equal rows, too, it keeps its place
    assert pids(listing) == [301, 302, 303]
    show(listing, *MIXED[1:], time=2062.0)
    assert pids(listing) == [302, 303]


def test_an_opener_cannot_be_tagged_even_if_it_is_listed_elsewhere() -> None:
    opener = DeviceHolder(
        pid=303, start_ticks=100_000, start_time=1000.0, user="amy", reason="open"
    )
    assert id_of(303).start_ticks == opener.start_ticks
    gpus = (gpu(0, memory_unaccounted=10 * GIB, holders=(opener,)), gpu(1))
    listing = listed(MIXED[2], gpus=gpus)
    line = next(line for line in listing.rows if line.kind == "unaccounted")
    listing.tag(line)
    assert (listing.tagged, listing.targets(line)) == ([], [])


@pytest.mark.parametrize(("windows", "end"), [(False, "here"), (True, "Windows runs it (WSL)")])
def test_processes_that_are_not_listed_have_a_reason(windows: bool, end: str) -> None:
    listing = ProcessListing()
    assert listing.why_empty() == ("", True)
    here = Frame(host=Host(name="node", wsl=windows), time=1.0, gpus=(gpu(0, listed="none"),))
    listing.show_frame(here, LogicalNames(here))
    words, is_expected = listing.why_empty()
    assert words.startswith("the driver does not list the processes here")
    assert (words.endswith(end), is_expected) == (True, False)


def test_a_filter_for_a_gpu_that_there_is_not() -> None:
    listing = listed(*MIXED)
    assert listing.filter_by("gpu:99") is None
    words = "there is no GPU 99: no process matches the filter; Esc drops it"
    assert listing.why_empty() == (words, False)


def test_a_filter_for_a_gpu_of_several_machines() -> None:
    listing = ProcessListing()
    listing.show_rows(listed(*MIXED).every, 0.0)
    listing.filter_by("gpu:1 eve")
    assert listing.why_empty() == ("no process matches the filter; Esc drops it", True)


def test_a_bad_filter_changes_nothing() -> None:
    listing = listed(*MIXED)
    listing.filter_by("amy mem>15G")
    error = listing.filter_by("amy mem>15")
    assert error is not None
    assert error.position == 8
    assert (listing.filter, pids(listing)) == ("amy mem>15G", [301])


# PIDs


def test_a_pid_is_found_by_its_first_digits() -> None:
    listing = listed(*MIXED, process(3011, 2))
    assert listing.find_pid("302", "~") == (1, "PID 302")
    assert listing.find_pid("301", "~") == (0, "PID 301")
    assert listing.find_pid("30", "~") == (0, "PID 30~")
    assert listing.find_pid("3011", "~") == (3, "PID 3011")
    assert listing.find_pid("9", "~") == (None, "no PID 9")
    listing.filter_by("bob")
    assert listing.find_pid("301", "~") == (None, "PID 301 is not in this view")
