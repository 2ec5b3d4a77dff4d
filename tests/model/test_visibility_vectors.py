"""Published cases of what CUDA_VISIBLE_DEVICES means: driver runs, NVIDIA's guide, bug reports."""

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.model.visibility import Device, Mapping, resolve
from tests.model.inventories import h100, indices

Vector = dict[str, Any]
VECTORS_FILE = Path(__file__).parents[1] / "data" / "visibility" / "vectors.json"


def driver_vectors() -> list[Vector]:
    """The cases of the driver's own rule; other layers are read by other modules."""
    vectors = json.loads(VECTORS_FILE.read_text(encoding="utf-8"))["vectors"]
    return [vector for vector in vectors if vector["layer"] == "driver"]


def needs_mig(vector: Vector) -> bool:
    """Whether a MIG device is in the machine; MIG devices are not resolved."""
    return any(gpu.get("mig") or gpu.get("mig_enabled") for gpu in vector["gpus"])


MIG = [v for v in driver_vectors() if needs_mig(v)]
PLAIN = [v for v in driver_vectors() if not needs_mig(v)]
# A null answer "cannot be known from what is given": it is checked to be unknown.
OPEN = [v for v in PLAIN if v["expect"] is None]
ANSWERED = [v for v in PLAIN if v["expect"] is not None]
SETTLED = [v for v in ANSWERED if v["confidence"] in ("high", "medium")]
DISPUTED = [v for v in ANSWERED if v["confidence"] == "low"]
# These give the order that CUDA was seen to use. Without it, nothing but a prediction is left.
OBSERVED = [v for v in ANSWERED if "cuda_order" in v]


def named(vectors: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[v["id"] for v in vectors])


def inventory(vector: Vector) -> list[Device]:
    return [
        Device(g["index"], g["uuid"], g["pci_bus_id"], g["name"], bool(g.get("mig_enabled")))
        for g in vector["gpus"]
    ]


def answer(vector: Vector) -> Mapping:
    return resolve(
        vector["value"],
        inventory(vector),
        order=vector["order"],
        cuda_order=vector.get("cuda_order"),
    )


def test_every_published_case_is_in_one_of_the_selections() -> None:
    assert len(driver_vectors()) == 95
    sizes = {
        "mig": len(MIG),
        "settled": len(SETTLED),
        "disputed": len(DISPUTED),
        "open": len(OPEN),
        "observed": len(OBSERVED),
    }
    assert sizes == {"mig": 12, "settled": 73, "disputed": 9, "open": 1, "observed": 8}


@named(SETTLED)
def test_settled_case(vector: Vector) -> None:
    mapping = answer(vector)
    assert indices(mapping.visible) == vector["expect"]
    assert mapping.count == len(vector["expect"])
    stop = mapping.stopped_at
    assert (None if stop is None else stop.position) == vector["stops_at"]
    # The cases about the order give no reason; that of an unset value is that it is unset.
    reason = vector["reason"] or ("unset" if vector["value"] is None else None)
    assert mapping.reason == reason
    assert mapping.documented
    by_bus_id = vector["order"] == "PCI_BUS_ID" or "cuda_order" in vector
    assert mapping.certainty in (("exact",) if by_bus_id else ("exact", "expected"))


@named(DISPUTED)
def test_disputed_case_is_marked(vector: Vector) -> None:
    mapping = answer(vector)
    assert not mapping.documented
    # Where sources disagree a case also lists "alternatives"; its "expect" is the reading from
    # left to right, which is ours.
    assert indices(mapping.visible) == vector["expect"]
    assert mapping.reason == vector["reason"]


@named(OPEN)
def test_open_case_is_unknown(vector: Vector) -> None:
    mapping = answer(vector)
    assert (mapping.certainty, mapping.visible, mapping.documented) == ("unknown", None, False)


@named(OBSERVED)
def test_mixed_models_without_an_observed_order_are_unknown(vector: Vector) -> None:
    mapping = resolve(vector["value"], inventory(vector), order=vector["order"])
    assert (mapping.certainty, mapping.visible) == ("unknown", None)
    everything = {gpu["index"] for gpu in vector["gpus"]}
    complete = set(vector["expect"]) == everything
    known = set(indices(mapping.visible_set) or ())
    assert known == (everything if complete else set())
    assert mapping.count == len(vector["expect"])


@named(OBSERVED)
def test_an_observed_order_is_exact(vector: Vector) -> None:
    assert answer(vector).certainty == "exact"


@named(MIG)
def test_mig_is_unknown_and_says_so(vector: Vector) -> None:
    mapping = answer(vector)
    assert (mapping.certainty, mapping.visible, mapping.visible_set) == ("unknown", None, None)
    assert (mapping.count, mapping.reason, mapping.hidden) == (None, "mig", ())
    assert "MIG" in mapping.because
    assert {entry.outcome for entry in mapping.entries} == {"unresolved"}


@pytest.mark.parametrize(
    ("value", "visible", "reason"),
    [
        ("one,two,3", [], "not_a_number"),
        ("3,2,two,one", [3, 2], "not_a_number"),
        ("1gpu2,2ampere", [1, 2], None),
        ("0-2", [0], None),
        ("1.0", [1], None),
        ("2 ", [2], None),
        ("[0,1]", [], "not_a_number"),
        ("0,,1", [0], "empty_entry"),
        (",0", [], "empty_entry"),
        ("²", [], "not_a_number"),
        ("99999999999999999999", [], "out_of_range"),
        ("-99999999999999999999", [], "negative"),
        ("0,1,2,3,-1,0", [0, 1, 2, 3], "negative"),
        ("0,junk,0", [0], "not_a_number"),
        ("GPU-0942,GPU-0", [], "duplicate"),
        ("GPU-194,GPU-09421", [1, 0], None),
        ("GPU-4", [], "unknown_uuid"),
        ("00", [0], None),
        ("1,01", [], "duplicate"),
    ],
)
def test_documented_forms(value: str, visible: list[int], reason: str | None) -> None:
    mapping = resolve(value, h100(4), order="PCI_BUS_ID")
    assert (indices(mapping.visible), mapping.reason) == (visible, reason)
    assert mapping.documented


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        ("0x1", [0]),
        ("08", []),
        ("4294967296", []),
        ("-4294967296", []),
        ("\t1", [1]),
        ("0,-0", []),
        ("0,9,0", [0]),
        ("GPU-0942,GPU-f,GPU-0942", [0]),
        ("GPU-", []),
        ("GPU-1942190A", []),
        ("gpu-1942190a", []),
        (" GPU-1", []),
        ("GPU-1 ", []),
        ("GPU-1, GPU-2", [1]),
        ("2,GPU-1", [2]),
        ("GPU-1,2", [1]),
        ("GPU-1,MIG-2", [1]),
        ("1942190a-aa31-4ff1-4aa9-c388d80f85f1", []),
        ("3942190a", []),
    ],
)
def test_undocumented_forms_are_marked(value: str, visible: list[int]) -> None:
    mapping = resolve(value, h100(4), order="PCI_BUS_ID")
    assert indices(mapping.visible) == visible
    assert not mapping.documented
