"""What a graph shows: dots in time, and how far up it goes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gputop.model.machine.sections import Bar1Memory, Identity, Nvlink, Pcie, Thermal
from gputop.model.metrics import graph
from gputop.model.metrics.gpu import GPU
from tests.builders import GIB, gpu

NONE = float("-inf")


def drawn(times: list[float], values: list[float], span: float, cells: int, across: int = 1) -> Any:
    return graph.line(values, graph.window(times, span, cells, across)[1], len(times))


def test_a_dot_shows_what_began_in_it_or_holds_from_before() -> None:
    times, values = [10.0, 11.0, 12.0, 13.0], [1.0, 5.0, 2.0, 3.0]
    assert drawn(times, values, 5.0, 5) == [NONE, 1.0, 5.0, 2.0, 3.0]
    assert drawn(times, values, 4.0, 2) == [5.0, 3.0]  # the greater of two
    assert drawn(times, values, 4.0, 4, 2) == [1.0, 1.0, 5.0, 5.0, 2.0, 2.0, 3.0, 3.0]


def test_a_gap_is_a_gap_and_hides_no_value() -> None:
    times, values = [10.0, 11.0, 12.0, 13.0], [1.0, NONE, NONE, 3.0]
    assert drawn(times, values, 4.0, 4) == [1.0, NONE, NONE, 3.0]
    assert drawn(times, values, 4.0, 2) == [1.0, 3.0]


def test_what_began_later_is_of_the_newest_times() -> None:
    assert drawn([10.0, 11.0, 12.0], [7.0], 3.0, 3) == [NONE, NONE, 7.0]
    assert drawn([12.0, 13.0, 14.0], [7.0], 3.0, 1) == [7.0]


def test_the_picture_moves_by_whole_cells() -> None:
    """A value stays in its dot while time goes on within a cell, and then goes one cell left."""
    begins = [graph.window([1000.0 + n / 4], 60.0, 40)[0] for n in range(24)]
    steps = [b - a for a, b in pairwise(begins)]
    assert set(steps) == {0.0, 1.5}
    assert all(begin + 60.0 - 1.5 <= 1000.0 + n / 4 < begin + 60.0
               for n, begin in enumerate(begins))  # fmt: skip


@pytest.mark.parametrize(
    ("length", "span"),
    [(0, 60), (60, 60), (61, 120), (121, 180), (300, 300), (301, 600), (601, 900), (5000, 900)],
)
def test_the_span_is_as_long_as_the_past(length: float, span: float) -> None:
    assert graph.fitting([1000.0, 1000.0 + length]) == span
    assert graph.fitting([]) == 60
    assert graph.fitting([1000.0, 1000.0 + length], 300.0) == min(span, 300.0)


@pytest.mark.parametrize(
    ("id_", "peak", "top"),
    [
        ("utilization", 0.2, 1.0),
        ("fan", 1.2, 1.2),
        ("temperature", 61.0, 100.0),
        ("memory_used", 5.0, 140.0 * GIB),
        ("power", 300.0, 700.0),
        ("power", 730.0, 730.0),
        ("sm_clock", 345e6, 500e6),  # what it can do is not known
        ("pcie.rx", 0.0, 1e9),
        ("pcie.rx", 4e3, 1e9),
        ("pcie.rx", 1.1e9, 2e9),
        ("pcie.rx", 2e9, 2e9),
        ("nvlink.tx", 4e3, 1e9),
        ("bar1.used", 4 * 1024.0, GIB),
        ("memory_unaccounted", 4 * 1024.0**2, 140.0 * GIB),
        ("power_more.instant", 61.0, 700.0),
    ],
)
def test_how_far_up_it_goes(id_: str, peak: float, top: float) -> None:
    assert graph.ceiling([gpu(power_limit=700.0), gpu(1)], id_, peak) == top


@pytest.mark.parametrize(
    ("id_", "top"),
    [("pcie.tx", 63e9), ("pcie.rx", 63e9), ("nvlink.tx", 450e9), ("bar1.used", 256.0 * GIB)],
)
def test_a_trifle_is_not_a_full_bar(id_: str, top: float) -> None:
    """An H200 on PCIe 5.0 x16 with its 18 NVLinks, of which one is down."""
    card = gpu(
        pcie=Pcie(generation=1, generation_max=5, width=16, width_max=16),
        nvlink=Nvlink(up=17, down=1),
        identity=Identity(architecture="Hopper"),
        bar1=Bar1Memory(total=256 * GIB),
    )
    assert graph.ceiling([card], id_, 4 * 1024.0**2) == pytest.approx(top, rel=0.001)
    assert graph.ceiling([card], id_, 1e12) == 1e12


@pytest.mark.parametrize("generation", [None, 0, 9])
def test_a_link_of_which_little_is_known(generation: int | None) -> None:
    pcie = Pcie(generation_max=generation, width_max=16)
    card = gpu(pcie=pcie, nvlink=Nvlink(up=18), identity=Identity(architecture="Rubin"))
    assert graph.ceiling([card], "pcie.tx", 5.0) == graph.ceiling([card], "nvlink.tx", 5.0) == 1e9


@pytest.mark.parametrize(("peak", "top"), [(0.9, 1), (1.1, 2), (3, 5), (7, 10), (61, 100)])
def test_round_numbers(peak: float, top: float) -> None:
    assert graph.ceiling([gpu()], "power", peak) == pytest.approx(top)


@pytest.mark.parametrize(
    ("id_", "text"),
    [
        ("utilization", "97%"),
        ("temperature", "61°C"),
        ("memory_used", "98.1G"),
        ("power", "540 W"),
        ("sm_clock", "1980 MHz"),
        ("pcie.rx", "1.07 GB/s"),
        ("thermal.margin", "26°C"),
        ("idle_for", "41m00s"),
        ("name", "H200"),
    ],
)
def test_values_have_their_units(id_: str, text: str) -> None:
    card = gpu(utilization=0.97, temperature=61.0, memory_used=int(98.1 * GIB), power=540.4,
              sm_clock=1_980_000_000, pcie=Pcie(rx=float(GIB)), thermal=Thermal(margin=26.0),
              idle_for=2460.0)  # fmt: skip
    assert graph.with_unit(GPU[id_], GPU[id_].read(card), "°") == text
