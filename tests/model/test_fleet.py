"""Many hosts as plain data: lamps, rows, their order, sums, users, the filter."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.fleet.fleet import Fleet, free_gpus
from gputop.model.fleet.host_row import HostRow, HostState, ordered
from gputop.model.fleet.host_summary import LampKind, lamp
from gputop.model.fleet.link import HostLink
from gputop.model.machine.frame import Frame, Host, Problem
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.sections import Health, Xid
from gputop.model.machine.text import ranges
from gputop.model.processes.filter import parse
from gputop.model.processes.process_rows import rows
from gputop.model.processes.views import View
from tests.builders import GIB, frame, gpu, process
from tests.model.test_pick_mig import part

IDLE_AFTER = 600.0
UP = HostLink("connected", "installed", age=0.4, round_trip=0.02)
SICK = Health(xids=(Xid(number=79, time=1990.0),))


def of_host(name: str, shown: Frame | None, link: HostLink = UP, **more: Any) -> HostState:
    """The state of a host, whose machine is its own."""
    if shown is not None:
        own = {gpu.uuid: f"{gpu.uuid}-{name}" for gpu in shown.gpus}
        shown = replace(
            shown,
            host=replace(shown.host, boot_id=f"boot of {name}"),
            gpus=tuple(replace(gpu, uuid=own[gpu.uuid]) for gpu in shown.gpus),
            processes=tuple(replace(p, gpu_uuid=own.get(p.gpu_uuid)) for p in shown.processes),
        )
    return HostState(name, shown, link, **more)


def rows_of(*states: HostState) -> list[HostRow]:
    fleet = Fleet(IDLE_AFTER)
    fleet.take(states)
    return fleet.rows


@pytest.mark.parametrize(
    ("kind", "card"),
    [
        ("free", gpu()),
        ("used", gpu(1, utilization=0.9, idle_for=0.0)),
        ("idle", gpu(1, idle_for=601.0)),
        ("used", gpu(1, idle_for=599.0)),
        ("hung", gpu(1, stale_for=30.0)),
        ("sick", gpu(1, health=SICK)),
        ("unknown", gpu(2, stale_for=2.0)),
        ("unknown", gpu(2, listed="none")),
        ("used", gpu(2, listed="none", utilization=0.5)),
        ("idle", gpu(2, memory_used=9 * GIB, idle_for=601.0)),
        ("used", gpu(2, mig_mode=True, idle_for=601.0)),
    ],
)
def test_a_lamp_is_the_gravest_that_fits(kind: LampKind, card: Gpu) -> None:
    shown = frame([gpu(), card], [process(1, on=1)])
    assert lamp(shown, card, IDLE_AFTER) == kind


@pytest.mark.parametrize(
    ("state", "level", "words"),
    [
        (of_host("a", None, HostLink("waiting")), None, "waiting for its turn"),
        (of_host("a", None, HostLink("connecting")), None, "connecting"),
        (of_host("a", None, HostLink("connecting"), failure="refused"), "error",
         "refused; connecting"),
        (of_host("a", None, HostLink("login", words="login wanted: publickey")), "warning",
         "log in with L: publickey"),
        (of_host("a", frame(), HostLink("ended", words="refused"), retry_in=3.5), "error",
         "refused; again in 3s"),
        (of_host("a", None, UP), None, "waiting for the driver"),
        (of_host("a", None, HostLink("connected", age=9.0)), "error", "no answer for 9s"),
        (of_host("a", replace(frame(), problem=Problem(code="no_gpu", text="m", advice=""))),
         "error", "m"),
    ],
)  # fmt: skip
def test_a_host_that_shows_nothing_says_why(state: HostState, level: str, words: str) -> None:
    [row] = rows_of(state)
    assert (row.level, row.remark, row.summary, row.free) == (level, words, None, None)
    assert row.free_indices == ()


@pytest.mark.parametrize(
    ("state", "level", "words"),
    [
        (of_host("a", frame()), None, ""),
        (of_host("a", frame(), UP._replace(words="no psutil there")), None, "no psutil there"),
        (of_host("a", frame(), rebooted=42.0), "warning", "rebooted 42s ago"),
        (of_host("a", frame([gpu(0, health=SICK), gpu(1, health=SICK), gpu(2, stale_for=9.0)])),
         "error", "XID 79 GPU 0-1 +1"),
        (of_host("a", frame(), UP._replace(age=7.0)), "error", "no answer for 7s"),
        (of_host("a", replace(frame(), interval=5.0), UP._replace(age=7.0)), None, ""),
        (of_host("a", frame(), UP._replace(age=5.0), interval=3.0), None, ""),
        (of_host("a", frame(), UP._replace(age=6.0), interval=3.0), "error", "no answer for 6s"),
    ],
)  # fmt: skip
def test_what_a_host_needs(state: HostState, level: str | None, words: str) -> None:
    [row] = rows_of(state)
    assert (row.level, row.remark) == (level, words)
    assert row.summary is not None


def test_what_is_old_is_not_offered_as_free() -> None:
    [row] = rows_of(of_host("a", frame(), UP._replace(age=7.0)))
    assert (row.free, row.free_indices) == (None, ())


def test_the_order_of_hosts() -> None:
    rows = rows_of(
        of_host("connecting", None, HostLink("connecting")),
        of_host("well", frame([gpu(0), gpu(1)])),
        of_host("idle", frame([gpu(0, idle_for=700.0)], [process(1)])),
        of_host("rebooted", frame([gpu(0)]), rebooted=5.0),
        of_host("login", None, HostLink("login")),
        of_host("down", None, HostLink("ended")),
        of_host("sick", frame([gpu(0, health=SICK)])),
    )
    assert [row.host for row in ordered(rows, "worst")] == [
        "sick", "down", "login", "rebooted", "idle", "well", "connecting",
    ]  # fmt: skip
    assert [row.host for row in ordered(rows, "free")][:3] == ["well", "rebooted", "connecting"]
    assert ordered(rows, "given") == rows


def test_sums_and_free_gpus() -> None:
    fleet = Fleet(IDLE_AFTER)
    busy = frame([gpu(0), gpu(1), gpu(2), gpu(3)], [process(7, on=1, user="bob")])
    fleet.take([of_host("a", busy), of_host("b", busy), of_host("c", None, HostLink("ended"))])
    assert fleet.totals == (3, 2, 1, 8, 6, (0, 0), 1)
    assert free_gpus(fleet.rows) == ["a:0,2-3", "b:0,2-3"]
    assert [row.row.host for row in fleet.processes] == ["a", "b"]


def test_slices_are_counted_apart_from_whole_gpus() -> None:
    """A lamp for each slice; the GPU that they are parts of is no free GPU."""
    divided = gpu(0, mig_mode=True, mig=(part(1), part(2), part(3, memory_used=GIB)))
    train = process(7, gpu_instance=1, compute_instance=0)
    one, both = frame([divided], [train]), frame([divided, gpu(1)], [train])
    fleet = Fleet(IDLE_AFTER)
    fleet.take([of_host("one", one), of_host("both", both)])
    summaries = [row.summary for row in fleet.rows if row.summary]
    lamps = ("used", "free", "used")
    assert [summary.lamps for summary in summaries] == [lamps, (*lamps, "free")]
    assert [summary.free_indices for summary in summaries] == [(), (1,)]
    assert (fleet.totals.gpus, fleet.totals.free, fleet.totals.slices) == (3, 1, (2, 6))
    assert free_gpus(fleet.rows) == ["one: 1 of 3 slices", "both:1, 1 of 3 slices"]
    assert [row.host for row in ordered(fleet.rows, "free")] == ["both", "one"]
    fleet.take([of_host("one", one)])
    assert fleet.totals.free is None
    late = of_host("late", one, UP._replace(age=7.0))
    fleet.take([late])
    assert (fleet.totals.slices.words, free_gpus(fleet.rows)) == ("", [])


def test_sums_of_what_is_not_known_are_not_0() -> None:
    fleet = Fleet(IDLE_AFTER)
    unseen = of_host("a", frame([gpu(0, listed="none")]))
    full = of_host("b", frame([gpu(0)], [process(7, user="bob")]))
    empty = of_host("c", frame())
    for states, free, users in (
        ([], None, None), ([of_host("d", None, HostLink("ended"))], None, None),
        ([unseen], None, None), ([unseen, full], None, 1), ([unseen, empty], 1, None),
        ([full], 0, 1), ([empty], 1, 0),
    ):  # fmt: skip
        fleet.take(states)
        assert (fleet.totals.free, fleet.totals.users) == (free, users), states


def test_a_host_that_claims_to_be_another_one() -> None:
    """It may be one with two names, or lie: its GPUs count once, and as free for nobody; it hides
    no process. A container has the boot id, and its own GPU."""
    fleet = Fleet(IDLE_AFTER)
    same, container = of_host("a", frame()), frame([gpu(4)])
    inside = replace(container, host=Host(name="c", boot_id="boot of a"))
    fleet.take([same, same._replace(host="a.lab"), HostState("container", inside, UP)])
    first, second, third = fleet.rows
    assert (first.remark, second.remark) == ("a.lab claims to be this machine", "claims to be a")
    assert (first.level, second.level, third.same_machine_as) == ("warning", "warning", None)
    assert (fleet.totals.gpus, fleet.totals.free) == (2, 1)
    assert free_gpus(fleet.rows) == ["container:4"]
    busy, other = process(7, user="bob"), process(8, user="eve")
    true = of_host("a", frame([gpu(0)], [busy]))
    for lie in (frame([gpu(0)], [other]), frame([gpu(0)], [busy, other])):
        fleet.take([of_host("a", lie)._replace(host="liar"), true])
        assert {row.row.process.user for row in fleet.processes} == {"bob", "eve"}
        assert len(fleet.processes) == fleet.totals.users == 2
        assert (fleet.totals.gpus, free_gpus(fleet.rows)) == (1, [])


def test_models_load_and_free_memory_of_a_host() -> None:
    cards = (
        gpu(0, utilization=0.9, memory_free=30 * GIB),
        gpu(1, utilization=0.3, memory_free=10 * GIB, name="NVIDIA A100-SXM4-80GB"),
        gpu(2, utilization=None, memory_free=None),
        gpu(3, utilization=0.0, memory_free=80 * GIB, stale_for=30.0),
    )
    [row] = rows_of(of_host("node1", frame(cards)))
    assert row.summary is not None
    assert row.summary.models == ("H200", "A100-SXM4-80GB")
    assert row.summary.utilization == pytest.approx(0.6)
    assert row.summary.memory_free == 40 * GIB
    [row] = rows_of(of_host("node1", frame(cards[2:])))
    assert row.summary is not None
    assert (row.summary.utilization, row.summary.memory_free) == (None, None)


def test_a_frame_is_looked_through_once() -> None:
    fleet, state = Fleet(IDLE_AFTER), of_host("a", frame())
    fleet.take([state])
    before = fleet.rows[0].summary
    fleet.take([state._replace(link=UP._replace(age=0.9))])
    assert fleet.rows[0].summary is before
    fleet.take([of_host("a", frame())])
    assert fleet.rows[0].summary is not before


def test_numbers_in_short() -> None:
    assert ranges([]) == ""
    assert ranges([3]) == "3"
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("host:node1", ["bob@node1.lab:2222"]),
        ("host:NODE1.lab", ["bob@node1.lab:2222"]),
        ("host:bob@node1.lab:2222", ["bob@node1.lab:2222"]),
        ("!host:node1", ["node10", "10.0.0.5"]),
        ("host:10", []),
        ("host:10.0.0.5 train", ["10.0.0.5"]),
        ("node1", ["bob@node1.lab:2222", "node10"]),
        ("host:node10 or host:10.0.0.5", ["node10", "10.0.0.5"]),
    ],
)
def test_the_filter_knows_hosts(text: str, hosts: list[str]) -> None:
    fleet, one = Fleet(IDLE_AFTER), frame([gpu()], [process(7)])
    fleet.take([of_host(name, one) for name in ("bob@node1.lab:2222", "node10", "10.0.0.5")])
    fits = parse(text)
    assert [row.row.host for row in fleet.processes if fits(row.row)] == hosts


def test_one_machine_alone_has_no_host() -> None:
    alone = rows(frame([gpu()], [process(7)]))
    assert not any(map(parse("host:node"), alone))
    assert not any(map(parse("!host:node"), alone))


def test_users_over_all_hosts() -> None:
    """Of a user the GPUs are counted over hosts, and idle memory is summed."""
    fleet = Fleet(IDLE_AFTER)
    held = [process(7, on=0, gpu_memory=3 * GIB, idle_for=900.0), process(7, on=1, user="bob")]
    one = frame([gpu(0), gpu(1)], held)
    fleet.take([of_host("a", one), of_host("b", one)])
    lines = View(shape="users").lines(fleet.processes, ("gpu_memory", True))
    alice, bob = (line.row for line in lines)
    assert alice.process.command == "2 GPUs on 2 hosts: 2 processes"
    assert (alice.process.gpu_memory, alice.idle_memory) == (6 * GIB, 6 * GIB)
    assert (bob.process.user, bob.process.gpu_memory) == ("bob", None)
