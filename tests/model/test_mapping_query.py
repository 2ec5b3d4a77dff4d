"""A mapping query: shell lines, what a program asks for, the driver's word, offers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gputop.model.cuda.frameworks import Layers
from gputop.model.cuda.inventory import Inventory, frame_inventory, read_inventory
from gputop.model.cuda.mapping_query import (
    MappingQuery,
    MappingResult,
    by_level,
    completion,
    judge,
    mapping_result,
    reasons,
    suggest,
    who_is_on,
)
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import MigDevice
from gputop.model.machine.probed import Probed, ProbedDevice
from tests.builders import GIB, frame, gpu, process

UUIDS = [f"GPU-{k}f00d000-0000-0000-0000-00000000000{k}" for k in range(4)]
OWN = MappingQuery(None, None)


def h200(index: int, **fields: Any) -> Any:
    bus = f"00000000:{index + 1:02X}:00.0"
    plain = {"uuid": UUIDS[index], "pci_bus_id": bus, "memory_free": 140 * GIB}
    return gpu(index, **{**plain, **fields})


def mig_gpu(index: int, *uuids: str, **fields: Any) -> Any:
    parts = tuple(MigDevice(uuid=u, gi=k + 1, ci=0, profile="1g.18gb") for k, u in enumerate(uuids))
    return h200(index, mig_mode=True, mig=parts, **fields)


FOUR = frame([h200(k) for k in range(4)])


def ask(
    text: str | None, machine: Frame = FOUR, order: str | None = None, **more: Any
) -> MappingResult:
    return mapping_result(MappingQuery(text, order, **more), frame_inventory(machine))


def indices(found: MappingResult) -> list[int]:
    return [device.index for device in found.mapping.visible or ()]


def ids(found: MappingResult, inventory: Inventory | None = None) -> list[str]:
    return [hint.code for hint in judge(found, inventory.usage if inventory else {})]


def probed(value: str | None, order: str | None, *at: int) -> Probed:
    devices = tuple(ProbedDevice(UUIDS[k][4:], f"0000:{k + 1:02x}:00.0", "H200") for k in at)
    return Probed(devices, None, value, order)


# --- the line ----------------------------------------------------------------------------------


def test_a_value_is_not_a_line() -> None:
    found = ask("2,1")
    assert (indices(found), found.is_line, found.line_advice, found.probe_result) == (
        [2, 1],
        False,
        (),
        None,
    )


def test_a_line_sets_both_variables() -> None:
    line = "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=3,1 python train.py"
    found = ask(line, order="FASTEST_FIRST")
    assert found.is_line
    assert (found.mapping.value, found.mapping.order) == ("3,1", "PCI_BUS_ID")
    assert (indices(found), found.mapping.certainty) == ([3, 1], "exact")
    kept = ask("CUDA_VISIBLE_DEVICES=3 python train.py", order="PCI_BUS_ID")
    assert kept.mapping.order == "PCI_BUS_ID"


def test_a_line_that_sets_nothing_leaves_it_unset() -> None:
    found = ask("CUDA_VISIBLE_DEVICES=1 && python train.py")
    assert found.mapping.value is None
    assert ids(found) == ["shell-not-exported"]


@pytest.mark.parametrize(
    ("program", "missing"),
    [
        ("python train.py --device cuda:2", ["cuda:2"]),
        ("python train.py --device cuda:1", []),
        ("python -c \"tf.device('/device:GPU:7')\"", ["/device:GPU:7"]),
        ("python -c 'jax.device_put(x, CudaDevice(id=3))'", ["cuda:3"]),
        ("run --devices=cuda:0,cuda:2 --other cuda:9 --again cuda:2", ["cuda:2", "cuda:9"]),
        ("python train.py --lr 2 --gpus 5", []),
    ],
)
def test_what_the_rest_of_the_line_asks_for(program: str, missing: list[str]) -> None:
    found = ask(f"CUDA_VISIBLE_DEVICES=1,2 {program}")
    said = [hint.text.split(" does not exist")[0].split(" ")[-1] for hint in found.request_advice]
    assert said == missing


def test_a_device_that_is_asked_for_by_itself() -> None:
    found = ask("1,2", layers=Layers(device="cuda:2"))
    assert ids(found) == ["request-out-of-visible"]
    assert "For physical GPU 2 use cuda:1" in found.request_advice[0].text
    assert ids(ask("1,2", layers=Layers(device="cuda:1"))) == []


# --- what is said ------------------------------------------------------------------------------


def test_the_order_of_advice() -> None:
    full = h200(1, memory_used=139 * GIB, memory_free=GIB)
    machine = frame([h200(0), full], [process(7, on=1, gpu_uuid=UUIDS[1], user="bob")])
    found = ask("CUDA_VISIBLE_DEVICES =1,9 python --device cuda:5", machine)
    assert found.line_advice[0].code == "shell-space-before-equals"
    found = ask("CUDA_VISIBLE_DEVICES=1,9 python --device cuda:5", machine)
    advice = judge(found, frame_inventory(machine).usage)
    assert [hint.code for hint in advice] == [
        "value-out-of-range",
        "gpu-full",
        "request-out-of-visible",
    ]
    assert [hint.code for hint in by_level(advice)] == [
        "value-out-of-range",
        "request-out-of-visible",
    ]


def test_errors_come_first() -> None:
    advice = by_level(judge(ask("1x,0,9", frame([h200(0, sm=132), h200(1, sm=4)])), {}))
    assert [hint.level for hint in advice] == sorted(
        (hint.level for hint in advice), key=["error", "warning", "info"].index
    )
    assert {hint.level for hint in advice} == {"error", "warning", "info"}


@pytest.mark.parametrize(
    ("value", "said"),
    [("0,9", 0), ("1,1", 0), ("1,-1", 1), ("1,-1,0", 0), ("none", 0), ("1,2", 0), ("[0]", 0)],
)
def test_no_reason_is_given_twice(value: str, said: int) -> None:
    found = ask(value)
    assert len(reasons(found, judge(found, {}))) == said


def test_a_number_of_two_digits_is_one_number() -> None:
    many = frame([gpu(k, pci_bus_id=f"0000:{k + 1:02x}:00.0") for k in range(16)])
    found = ask("15,10,-1", many)
    assert (indices(found), ids(found)) == ([15, 10], [])


def test_who_is_on_a_gpu_and_on_a_part_of_one() -> None:
    machine = frame(
        [mig_gpu(0, "MIG-a", "MIG-b"), h200(1)],
        [
            process(1, gpu_uuid=UUIDS[0], gpu_instance=1, compute_instance=0, user="amy"),
            process(2, gpu_uuid=UUIDS[0], gpu_instance=2, compute_instance=0, user="bob"),
            process(3, gpu_uuid=UUIDS[1], user="eve"),
        ],
    )
    inventory = frame_inventory(machine)
    parts = [part for device in inventory.devices for part in device.parts()]
    seen = [list(who_is_on(machine, inventory, part)) for part in parts]
    assert seen == [["amy"], ["bob"], ["eve"]]


# --- the driver's word -------------------------------------------------------------------------


def test_the_driver_agrees_or_not() -> None:
    good, bad = probed("2,1", None, 2, 1), probed("2,0", None, 1)
    machine = frame(FOUR.gpus, ())
    inventory = frame_inventory(machine)
    answers = (good, bad)
    agreed = mapping_result(MappingQuery("2,1", None), inventory, answers).probe_result
    assert agreed is not None
    assert agreed.ok is True
    differs = mapping_result(MappingQuery("2,0", None), inventory, answers).probe_result
    assert differs is not None
    assert differs.ok is False
    assert "cuda:0 is GPU 1" in differs.reason
    assert (
        mapping_result(MappingQuery("2,1", "PCI_BUS_ID"), inventory, answers).probe_result is None
    )
    failed = Probed(None, "there is no libcuda.so.1", "0", None)
    probe_result = mapping_result(MappingQuery("0", None), inventory, (failed,)).probe_result
    assert probe_result is not None
    assert "there is no libcuda.so.1" in probe_result.reason


def test_the_drivers_order_is_used() -> None:
    mixed = frame([h200(0), h200(1, name="NVIDIA A100")])
    inventory = frame_inventory(mixed)
    assert mapping_result(MappingQuery("0", None), inventory).mapping.visible is None
    found = mapping_result(MappingQuery("0", None), inventory, (probed(None, None, 1, 0),))
    assert (indices(found), found.mapping.certainty, found.exact) == ([1], "exact", True)
    assert found.ranks == {1: "0", 0: "1"}


def test_what_the_driver_says_may_be_a_surprise() -> None:
    answers = (probed(None, None, 1, 0, 2, 3), probed("0", None, 1), probed("2", None, 2))
    inventory = frame_inventory(FOUR)
    found = mapping_result(MappingQuery("0", None), inventory, answers)
    assert found.probe_result is not None
    assert found.probe_result.ok is True
    assert found.contradiction is not None
    assert "cuda:0 is GPU 1, gputop expected GPU 0" in found.contradiction.reason
    assert mapping_result(MappingQuery("2", None), inventory, answers).contradiction is None
    assert mapping_result(MappingQuery("3", None), inventory, answers).contradiction is None


# --- what is offered ---------------------------------------------------------------------------


def offered(text: str, machine: Frame = FOUR, order: str | None = None) -> str | None:
    found = ask(text, machine, order)
    inventory = frame_inventory(machine)
    return completion(text, found, inventory, lambda named: suggest([machine], OWN, named))


@pytest.mark.parametrize(
    ("text", "order", "offer"),
    [
        ("", None, UUIDS[0]),
        ("", "PCI_BUS_ID", "0"),
        ("1,", "PCI_BUS_ID", "1,0"),
        ("0,1,", "PCI_BUS_ID", "0,1,2"),
        ("0,", None, "0,1"),
        (f"{UUIDS[0]},", "PCI_BUS_ID", f"{UUIDS[0]},{UUIDS[1]}"),
        ("0,1,2,3,", None, None),
        ("0,9,", None, None),
        ("0,0,", None, None),
        ("x,", None, None),
        ("GPU-2", None, UUIDS[2]),
        (f"{UUIDS[1]},GPU-3f", None, f"{UUIDS[1]},{UUIDS[3]}"),
        ("GPU-", None, None),
        ("GPU-9", None, None),
        (UUIDS[2], None, None),
        ("2", None, None),
        ("CUDA_VISIBLE_DEVICES=", None, None),
        ("CUDA_VISIBLE_DEVICES=1,", None, None),
    ],
)
def test_offers(text: str, order: str | None, offer: str | None) -> None:
    assert offered(text, order=order) == offer


def test_mig_devices_are_completed() -> None:
    machine = frame([mig_gpu(0, "MIG-c7aa", "MIG-d5bb"), h200(1)])
    assert offered("MIG-c7", machine) == "MIG-c7aa"
    assert offered("MIG-c7aa,", machine) is None
    assert offered("", machine) == UUIDS[1]


def test_numbers_are_not_offered_where_they_cannot_be_told() -> None:
    mixed = frame([h200(0), h200(1, name="NVIDIA A100")])
    assert offered("", mixed) in UUIDS
    assert offered("0,", mixed) is None


def test_the_free_gpu_is_that_of_the_command() -> None:
    busy = h200(0, memory_used=30 * GIB)
    mine = process(7, gpu_uuid=UUIDS[1])
    machine = frame([busy, h200(1), h200(2, utilization=0.9), h200(3)], [mine])
    choice = suggest([machine], OWN)
    assert [gpu.index for gpu in choice.gpus or ()] == [3]
    assert set(choice.reasons) == {"0", "1", "2"}
    assert suggest([machine], MappingQuery("1,0", None)).gpus is None
    assert offered("3,", machine) is None


def test_a_gpu_that_was_busy_a_second_ago_is_not_free() -> None:
    busy = frame([h200(0, utilization=0.9), h200(1)], time=2000.0)
    idle = frame([h200(0), h200(1)], time=2001.0)
    later = frame([h200(0), h200(1)], time=2003.5)
    assert [gpu.index for gpu in suggest([busy, idle], OWN).gpus or ()] == [1]
    assert [gpu.index for gpu in suggest([busy, later], OWN).gpus or ()] == [0]


@pytest.mark.parametrize(
    "text", ["\x1b[2J", ",", ",,", "\u202e", "GPU-,", "=", "CUDA_VISIBLE_DEVICES='", "0," * 2000]
)
def test_nothing_raises(text: str) -> None:
    found = ask(text, layers=Layers(device=text))
    judge(found, {})
    completion(text, found, frame_inventory(FOUR), lambda named: None)
    offered(text)


@pytest.mark.parametrize(
    ("text", "certainty"),
    [(None, "predicted"), ("0", "expected"), ("0,1,3", "predicted"), ("2", "predicted"),
     (UUIDS[3], "exact"), (UUIDS[2], "predicted"), ("", "exact"), ("9", "exact")],
)  # fmt: skip
def test_a_lost_gpu_may_not_be_counted(text: str | None, certainty: str) -> None:
    gpus = [h200(k) if k != 2 else h200(k, error="GPU is lost", state="lost") for k in range(4)]
    mapping = ask(text, frame(gpus)).mapping
    assert mapping.certainty == certainty
    assert ("GPU 2 is lost" in mapping.because) == (certainty == "predicted")
    of_file = read_inventory(msgspec.json.encode(frame(gpus)), "node.json")
    assert mapping_result(MappingQuery(text, None), of_file).mapping == mapping
