"""Which GPUs a new job gets."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import msgspec
import pytest

from gputop.errors import UsageError
from gputop.model.cuda.pick import PickedValue, PickRequest, choose, export_line, value_of
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, GpuPart
from tests.builders import GIB, frame, gpu, process

ONE_PROBLEM: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"error": "GPU is lost"}, {}, "the driver says: GPU is lost"),
    ({"stale_for": 3.0}, {}, "it does not answer"),
    ({"uuid": None}, {}, "its UUID is not known"),
    ({"state": "asleep", "memory_used": None}, {}, "it is asleep"),
    ({"mig_mode": True}, {}, "MIG mode"),
    ({"compute_mode": "prohibited"}, {}, "compute mode is prohibited"),
    ({"memory_used": 2 * GIB}, {}, "2.00G in use, by nobody who can be seen"),
    ({"memory_used": None}, {}, "in use is not known"),
    ({"memory_free": 19 * GIB}, {"min_free": 20 * GIB}, "19.0G of its memory unused"),
    ({"memory_free": None}, {"min_free": 20 * GIB}, "free is not known"),
    ({"memory_total": 16 * GIB}, {"min_free": 20 * GIB}, "only 16.0G of memory"),
    ({"utilization": 0.11}, {}, "11 % busy, more than 10 %"),
    ({"utilization": 0.503}, {"max_utilization": 0.5}, "50.3 % busy, more than 50 %"),
    ({"utilization": None}, {}, "its utilization is not known"),
    ({}, {"exclude": ("0",)}, "excluded"),
    ({}, {"exclude": ("gpu-0",)}, "excluded"),
    ({}, {"value": ""}, "CUDA_VISIBLE_DEVICES='' hides it"),
]


def card(index: int = 0, **fields: Any) -> Gpu:
    plain = {"pci_bus_id": f"00000000:{index + 1:02X}:00.0", "memory_free": 140 * GIB}
    return gpu(index, **{**plain, **fields})


def value_for(
    machine: Frame, gpus: Sequence[Gpu], order: str | None, by_uuid: bool = False
) -> PickedValue:
    return value_of(machine, list(map(GpuPart, gpus)), order, by_uuid)


def picked(*frames: Frame, **wanted: Any) -> list[int] | None:
    gpus = choose(frames, PickRequest(**wanted)).gpus
    return None if gpus is None else [gpu.index for gpu in gpus]


@pytest.mark.parametrize(("fields", "wanted", "reason"), ONE_PROBLEM)
def test_every_refusal_has_its_reason(
    fields: dict[str, Any], wanted: dict[str, Any], reason: str
) -> None:
    choice = choose([frame([card(**fields)])], PickRequest(**wanted))
    assert (choice.gpus, choice.suitable) == (None, 0)
    assert reason in choice.reasons["0"]
    lasting = {"MIG", "prohibited", "of memory", "excluded", "hides"}
    assert choice.possible is not any(word in reason for word in lasting)


def test_a_gpu_without_fault() -> None:
    choice = choose([frame([card()])], PickRequest(min_free=140 * GIB))
    assert (choice.reasons, choice.note) == ({}, None)
    assert choice.gpus == (card(),)


def test_processes() -> None:
    alone = frame([card()], [process(1), process(2, user=None), process(3, user="bob")])
    assert choose([alone], PickRequest(min_free=GIB)).reasons == {
        "0": "processes of alice, bob, 1 of unknown users"
    }
    assert picked(alone, min_free=GIB, shared=True) == [0]
    assert picked(frame([card()], [process(1, type="G")])) == [0]
    strict = frame([card(compute_mode="exclusive_process")], [process(1)])
    (reason,) = choose([strict], PickRequest(min_free=GIB, shared=True)).reasons.values()
    assert reason.endswith("its compute mode is exclusive")


def test_the_highest_utilization_of_the_window_counts() -> None:
    looks = [frame([card(utilization=value)]) for value in (0.05, 0.5, 0.0)]
    assert "50 % busy" in choose(looks, PickRequest(max_utilization=0.1)).reasons["0"]
    assert picked(*looks) == [0]  # it is free now
    assert picked(*looks, max_utilization=0.5) == [0]
    unsure = [frame([card(utilization=None)]), frame([card(utilization=0.0)])]
    assert "not known" in choose(unsure, PickRequest(max_utilization=0.1)).reasons["0"]
    assert picked(*unsure, max_utilization=1.0) == [0]


def test_quiet_before_busy_and_before_a_screen() -> None:
    gpus = [card(0, display_active=True), card(1, utilization=0.3), card(2, utilization=0.1)]
    assert picked(frame(gpus), max_utilization=1.0) == [2]
    assert picked(frame(gpus), max_utilization=1.0, count=2) == [1, 2]
    used = frame([card(0), card(1)], [process(1, 0)])
    assert picked(used, shared=True, min_free=GIB) == [1]


def test_one_model_is_preferred_or_demanded() -> None:
    mixed = [card(0), card(1, name="NVIDIA L4"), card(2, name="NVIDIA L4"), card(3, name="T4")]
    assert picked(frame(mixed), count=2) == [1, 2]
    assert picked(frame(mixed), count=3) is not None
    choice = choose([frame(mixed)], PickRequest(count=3, same_model=True))
    assert (choice.gpus, choice.suitable, choice.possible) == (None, 4, False)
    # A GPU whose model is not known is like no other.
    assert picked(frame([card(0, name=None), card(1, name=None)]), count=2, same_model=True) is None


def test_more_memory_before_neighbourhood() -> None:
    gpus = [card(0, name="L4", memory_total=24 * GIB), card(1)]
    assert picked(frame(gpus)) == [1]
    near = [card(0, name="L4", memory_total=24 * GIB), card(1, name="L4", memory_total=24 * GIB)]
    assert picked(frame([*near, card(2), card(9)]), count=2) == [2, 9]


def test_neighbours_by_bus_id_whatever_the_index() -> None:
    buses = ["0A", "18", "87", "90"]
    gpus = [card(i, pci_bus_id=f"00000000:{bus}:00.0") for i, bus in enumerate(buses)]
    assert picked(frame(gpus), count=2) == [2, 3]
    assert picked(frame(gpus), count=3) == [1, 2, 3]
    assert picked(frame(gpus)) == [0]
    turned = [msgspec.structs.replace(gpu, index=3 - gpu.index) for gpu in gpus]
    assert picked(frame(turned), count=2) == [1, 0]
    domains = [card(i, pci_bus_id=f"0000000{i // 2}:01:0{i % 2}.0") for i in range(1, 5)]
    assert picked(frame(domains), count=2) == [2, 3]


def matrix(text: str) -> tuple[tuple[str | None, ...], ...]:
    """A table as `nvidia-smi topo -m` prints it; - is not known."""
    return tuple(
        tuple(None if word == "-" else word for word in line.split())
        for line in text.strip().splitlines()
    )


NVLINK = matrix(
    """
    X    SYS  NV12 SYS
    SYS  X    SYS  NV4
    NV12 SYS  X    SYS
    SYS  NV4  SYS  X
    """
)
PCIE = matrix(
    """
    X    NODE SYS  SYS
    NODE X    SYS  SYS
    SYS  SYS  X    PIX
    SYS  SYS  PIX  X
    """
)


@pytest.mark.parametrize(
    ("links", "count", "best"),
    [(NVLINK, 2, [0, 2]), (PCIE, 2, [2, 3]), (None, 2, [0, 1]), (matrix("- -\n- -"), 2, [0, 1])],
)
def test_the_best_connected_come_first(links: Any, count: int, best: list[int]) -> None:
    whole = frame([card(i) for i in range(4)])
    assert picked(msgspec.structs.replace(whole, links=links), count=count) == best


def test_a_busy_gpu_is_not_taken_for_its_links() -> None:
    gpus = [card(0), card(1), card(2, utilization=0.5), card(3, utilization=0.5)]
    whole = msgspec.structs.replace(frame(gpus), links=NVLINK)
    assert picked(whole, count=2, max_utilization=1.0) == [0, 1]


def test_many_gpus_are_chosen_in_time() -> None:
    gpus = [card(i) for i in range(64)]
    row = ["NV18"] * 64
    links = tuple((*row[:i], "X", *row[i + 1 :]) for i in range(64))
    assert picked(msgspec.structs.replace(frame(gpus), links=links), count=32) == list(range(32))


def test_ties_do_not_depend_on_the_order_of_a_frame() -> None:
    gpus = [card(i) for i in range(4)]
    assert {tuple(picked(frame(p), count=2) or ()) for p in permutations(gpus)} == {(0, 1)}
    assert picked(frame([card(0, memory_free=100 * GIB), card(1)])) == [1]
    assert picked(frame([card(0, pci_bus_id=None), card(1)])) == [1]


def test_exclusion() -> None:
    three = frame([card(i) for i in range(3)])
    assert picked(three, exclude=("0", "GPU-1")) == [2]
    for word in ("7", "GPU-7", "x", "-1", "GPU-"):
        with pytest.raises(UsageError, match="names no GPU here"):
            picked(three, exclude=(word,))


def test_only_what_the_caller_sees() -> None:
    four = frame([card(i) for i in range(4)])
    choice = choose([four], PickRequest(value="2,3"))
    assert choice.gpus == (four.gpus[2],)
    assert choice.note is not None
    assert choice.note.startswith("your own CUDA_VISIBLE_DEVICES='2,3' leaves GPU 2, GPU 3 (likely")
    assert choose([four], PickRequest(value="GPU-3")).note == (
        "your own CUDA_VISIBLE_DEVICES='GPU-3' leaves GPU 3"
    )
    assert choose([four], PickRequest(value="0,1,2,3")).note is None
    mixed = frame([card(0), card(1, name="L4")])
    choice = choose([mixed], PickRequest(value="0"))
    assert choice.gpus is None
    assert "is not known" in choice.reasons["0"]
    assert picked(mixed, value="0", order="PCI_BUS_ID") == [0]
    assert picked(mixed, value="1,0") == [0]


def test_indices_only_where_they_are_exact() -> None:
    four = frame([card(i) for i in range(4)])
    chosen = four.gpus[1:3]
    assert value_for(four, chosen, None, by_uuid=True).text == "GPU-1,GPU-2"
    value = value_for(four, chosen, None)
    assert (value.text, "PCI_BUS_ID" in str(value.note)) == ("1,2", True)
    value = value_for(four, chosen, "PCI_BUS_ID")
    assert (value.text, value.note) == ("1,2", None)
    alone = frame([card(5)])
    assert value_for(alone, alone.gpus, None).text == "0"
    mixed = frame([card(0, name="L4"), card(1)])
    assert value_for(mixed, mixed.gpus[1:], None).text is None


def test_indices_count_by_bus_and_not_by_nvml() -> None:
    turned = frame([card(0, pci_bus_id="00000000:90:00.0"), card(1)])
    assert value_for(turned, turned.gpus[:1], "PCI_BUS_ID").text == "1"
    unknown = frame([card(0, pci_bus_id=None), card(1)])
    value = value_for(unknown, unknown.gpus[1:], "PCI_BUS_ID")
    assert (value.text, "--uuid" in str(value.note)) == (None, True)


def test_beside_a_gpu_in_mig_mode() -> None:
    gpus = [card(0, mig_mode=True), card(1), card(2)]
    new = msgspec.structs.replace(frame(gpus), driver_version="580.95.05")
    old = msgspec.structs.replace(new, driver_version="550.1")
    assert picked(new, count=2) == [1, 2]
    assert value_for(new, new.gpus[1:], None, by_uuid=True).note is None
    assert value_for(new, new.gpus[1:], "PCI_BUS_ID").text is None
    assert "not documented" in (value_for(old, old.gpus[1:], None, by_uuid=True).note or "")


def test_a_uuid_that_is_none_gives_no_line_for_a_shell() -> None:
    """Another machine may say anything of itself."""
    evil = frame([gpu(0, uuid="GPU-1;touch X", name="A"), gpu(1, uuid="GPU-2\n", name="B")])
    lines = [export_line(evil, [GpuPart(named)], "FASTEST_FIRST") for named in evil.gpus]
    assert lines == ["", ""]
