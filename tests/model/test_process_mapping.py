"""The mapping of a process, and what the driver's lists say to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gputop.model.cuda.advice import advise
from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.evidence import EvidenceKind
from gputop.model.cuda.process_mapping import ProcessMapping, process_mapping
from gputop.model.cuda.reach import Machine
from gputop.model.machine.environment import CudaContext, Environ, RelatedProcess
from gputop.model.machine.probed import Probed, ProbedDevice
from tests.model.inventories import h100, indices, mixed
from tests.model.test_mig import TWO

N = "CUDA_VISIBLE_DEVICES"
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def numbered(count: int) -> tuple[CudaDevice, ...]:
    """GPUs whose minor numbers run the other way round."""
    return tuple(
        msgspec.structs.replace(device, minor=count - 1 - device.index) for device in h100(count)
    )


def look(
    variables: dict[str, str] | str,
    on: list[int],
    *,
    devices: tuple[CudaDevice, ...] = numbered(4),
    mps: bool = False,
    machine: dict[str, Any] | None = None,
    **around: Any,
) -> ProcessMapping:
    """A process with such variables (or why there are none), used GPUs and surroundings."""
    environ = Environ(variables) if isinstance(variables, dict) else Environ({}, variables)  # type: ignore[arg-type]
    here = Machine(devices, **(machine or {}))
    used = [devices[index] for index in on]
    return process_mapping(CudaContext(environ, **around), here, used, mps=mps)


def names(found: ProcessMapping) -> list[str]:
    return [name for _, name in found.evidence.names]


def child(value: str) -> RelatedProcess:
    return RelatedProcess(77, Environ({N: value}))


@pytest.mark.parametrize(
    ("variables", "on", "kind", "called"),
    [
        ({N: "2,1"}, [1], "ambiguous", ["cuda:1?"]),
        ({N: "2,1"}, [2], "confirmed", ["cuda:0"]),
        ({N: "1"}, [1], "confirmed", ["cuda:0"]),
        ({N: "3,2,1,0"}, [2, 1], "ambiguous", ["cuda:1?", "cuda:2?"]),
        ({N: "2,1", "LOCAL_RANK": "1"}, [1], "confirmed", ["cuda:1"]),
        ({N: "2,1", "SLURM_LOCALID": "1"}, [1], "confirmed", ["cuda:1"]),
        ({N: "2,1"}, [2, 1], "confirmed", ["cuda:0", "cuda:1"]),
        ({N: "2,1"}, [3], "contradicted", []),
        ({N: "2,1"}, [1, 3], "contradicted", []),
        ({N: ""}, [3], "contradicted", []),
        ({N: "2,1"}, [], "unused", []),
        ({}, [2], "ambiguous", ["cuda:2?"]),
        ({}, [0], "confirmed", ["cuda:0"]),
        ({}, [0, 1], "confirmed", ["cuda:0", "cuda:1"]),
        ({}, [0, 2], "ambiguous", ["cuda:0?", "cuda:2?"]),
        ({}, [0, 1, 2, 3], "confirmed", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ({"LOCAL_RANK": "2"}, [2], "confirmed", ["cuda:2"]),
        ({"LOCAL_RANK": "2"}, [0, 2], "confirmed", ["cuda:0", "cuda:2"]),
        ({"LOCAL_RANK": "1"}, [2], "ambiguous", ["cuda:2?"]),
        ({N: "0,9,0"}, [0], "confirmed", ["cuda:0"]),
        ("overwritten", [2], "unread", []),
        ("unreadable", [2], "unread", []),
        ("empty_block", [0], "confirmed", ["cuda:0"]),
    ],
)
def test_evidence(
    variables: dict[str, str] | str, on: list[int], kind: EvidenceKind, called: list[str]
) -> None:
    found = look(variables, on)
    assert (found.evidence.kind, names(found)) == (kind, called)
    assert all(line.isprintable() for line in found.reasoning())


def test_of_one_gpu_everybody_knows_the_name() -> None:
    for state in ("unreadable", "overwritten"):
        found = look(state, [0], devices=numbered(1))
        assert names(found) == ["cuda:0"]
    assert names(look("overwritten", [2], minors=(1,))) == ["cuda:0"]
    assert names(look("overwritten", [2], minors=(1, 2))) == []


def test_why_there_is_no_name() -> None:
    assert look("unreadable", [2]).why_not() == "private"
    assert look("overwritten", [2]).why_not() == "env-lost"
    assert look({N: "0"}, [1, 2]).why_not() == "?"
    assert look({N: "0"}, [0], devices=tuple(mixed())).why_not() == "unknown"
    assert look({N: "0"}, []).why_not() is None


def test_a_contradicted_mapping_is_not_claimed() -> None:
    found = look({N: "0,1"}, [3])
    assert (found.mapping.visible, found.mapping.certainty) == (None, "unknown")
    assert [hint.code for hint in found.advice] == ["env-contradicted"]
    assert (names(found), found.why_not()) == ([], "?")


@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_who_opens_every_gpu_and_is_on_one_has_hidden_the_others(framework: str) -> None:
    found = look({}, [2], frameworks=(framework,))
    assert (found.evidence.kind, names(found)) == ("ambiguous", ["cuda:0?"])
    assert names(look({}, [2], frameworks=("pytorch",))) == ["cuda:2?"]


def test_a_child_tells_what_the_parent_set_itself() -> None:
    found = look({}, [2], descendant=child("2"))
    assert (found.evidence.kind, names(found)) == ("inferred", ["cuda:0?"])
    assert indices(found.mapping.visible) == [2]
    assert "77" in found.evidence.because
    # The parent is where its child cannot be: then it says nothing of the parent.
    assert look({}, [1], descendant=child("2")).evidence.kind == "ambiguous"
    assert names(look("overwritten", [3], descendant=child("1,3"))) == ["cuda:1?"]
    assert look({N: "0"}, [3], descendant=child("3")).evidence.kind == "inferred"


def test_a_worker_that_overwrote_its_variables_probably_has_its_parents() -> None:
    found = look("overwritten", [3], ancestor=RelatedProcess(76, Environ({N: "1,3"})))
    assert (found.evidence.kind, names(found), found.why_not()) == ("inferred", ["cuda:1?"], None)
    assert "76" in found.evidence.because
    assert "env-clobbered" not in [hint.code for hint in found.advice]
    elsewhere = look("overwritten", [2], ancestor=RelatedProcess(76, Environ({N: "1,3"})))
    assert (names(elsewhere), elsewhere.why_not()) == ([], "env-lost")


def test_integers_count_among_the_device_nodes() -> None:
    found = look({N: "1", **PCI}, [3], minors=(0, 1))  # minors of GPU 3 and 2
    assert (indices(found.mapping.visible), names(found)) == ([3], ["cuda:0"])
    assert indices(found.inside.devices) == [2, 3]
    reasons = {hidden.device.index: hidden.reason for hidden in found.mapping.hidden}
    assert "device nodes" in reasons[0]
    assert reasons[2] == "no entry names it"


def test_a_container_is_told_by_its_variable_where_nodes_do_not() -> None:
    variables = {N: "1", "NVIDIA_VISIBLE_DEVICES": "1,3", **PCI}
    assert indices(look(variables, [3], in_container=True).mapping.visible) == [3]
    hidden = look({N: "0", "NVIDIA_VISIBLE_DEVICES": "void"}, [1], in_container=True)
    assert (hidden.mapping.certainty, hidden.why_not()) == ("unknown", "unknown")
    uuid = numbered(4)[1].uuid or ""
    assert names(look({N: uuid}, [1], in_container=True)) == ["cuda:0"]


def test_the_node_of_a_gpu_is_that_of_all_its_mig_devices() -> None:
    devices = tuple(msgspec.structs.replace(gpu, minor=gpu.index) for gpu in TWO)
    second = devices[0].parts()[1]
    variables = {"NVIDIA_VISIBLE_DEVICES": "0:1"}
    around = CudaContext(Environ(variables), minors=(0,), in_container=True)
    machine = Machine(devices, "580.65.06")
    found = process_mapping(around, machine, [second])
    assert names(found) == ["cuda:0"]
    assert found.inside.devices is not None
    assert [part.id for part in found.inside.devices[0].parts()] == [second.id]


@pytest.mark.parametrize(
    ("variables", "on", "visible", "certainty"),
    [
        ({"SLURM_JOB_GPUS": "2,3", N: "0,1"}, [], [2, 3], "expected"),
        ({"SLURM_JOB_GPUS": "2,3", N: "0,1"}, [2], [2, 3], "expected"),
        ({"SLURM_JOB_GPUS": "2-3", N: "0,1"}, [2], [2, 3], "expected"),
        ({"SLURM_JOB_GPUS": "2,3", N: "2,3"}, [], [2, 3], "expected"),
        ({"SLURM_JOB_GPUS": "2,3", N: "2,3"}, [2], [2, 3], "expected"),
        ({"SLURM_JOB_GPUS": "2,3", N: "1"}, [], None, "unknown"),
        ({"SLURM_JOB_GPUS": "2,3", N: "1"}, [3], None, "unknown"),
        ({"SLURM_JOB_GPUS": "2,3", N: ""}, [], [], "exact"),
        ({"SLURM_JOB_GPUS": "2,3", N: "-1"}, [], [], "exact"),
        ({"SLURM_JOB_GPUS": "2,3", N: "NoDevFiles"}, [], [], "exact"),
        ({"SLURM_JOB_GPUS": "2,3"}, [2], None, "unknown"),
        # The whole node: whether the others are hidden does not matter
        ({"SLURM_JOB_GPUS": "0,1,2,3", N: "2"}, [], [2], "exact"),
        ({"SLURM_JOB_GPUS": "0-3", N: "3,1"}, [3], [3, 1], "exact"),
        ({"SLURM_JOB_GPUS": "0,1,2,3"}, [], [0, 1, 2, 3], "exact"),
        ({"SLURM_JOB_GPUS": "0,1,2,3", "SLURM_STEP_GPUS": "3", N: "0"}, [3], [3], "expected"),
        # A job that does not tell its GPUs
        ({N: "1"}, [], None, "unknown"),
        ({N: "1"}, [1], [1], "predicted"),
        ({N: "1"}, [2], None, "unknown"),
    ],
)
def test_slurm(
    variables: dict[str, str], on: list[int], visible: list[int] | None, certainty: str
) -> None:
    found = look({"SLURM_JOB_ID": "4711", **PCI, **variables}, on).mapping
    known = None if found.visible is None else indices(found.visible)
    assert (known, found.certainty) == (visible, certainty)


def test_the_name_of_a_job_moves_no_cursor() -> None:
    variables = {"SLURM_JOB_ID": "1\u202e", "SLURM_JOB_GPUS": "1,3", N: "0,1", **PCI}
    (hint,) = look(variables, [], minors=(0, 1)).advice
    assert hint.text.startswith("GPU 1 of the machine is not in Slurm 1�, which has GPU 3")
    assert "(Slurm 1�)" in look({"SLURM_JOB_ID": "1\u202e", N: "0"}, []).mapping.because


def test_mps_numbers_anew() -> None:
    server = {"mps_servers": (Environ({N: "0,2", **PCI}),)}
    found = look({N: "1", **PCI}, [2], mps=True, machine=server)
    assert (indices(found.mapping.visible), names(found)) == ([2], ["cuda:0"])
    double = look({N: "0,2", **PCI}, [0], mps=True, machine=server)
    assert [hint.code for hint in double.advice] == ["mps-double-mask"]
    assert indices(double.mapping.visible) == [0]
    assert look({N: "1"}, [2], mps=True).mapping.certainty == "unknown"
    here = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/b"}  # another server's
    assert look({N: "1", **here}, [2], machine=server).mapping.certainty == "unknown"


def test_the_driver_itself_gives_the_order_of_different_cards() -> None:
    gpus = mixed()
    cards = tuple(
        ProbedDevice((gpus[i].uuid or "")[4:], gpus[i].pci_bus_id or "", "") for i in (1, 2, 0)
    )
    answers = {"probed": (Probed(cards),)}
    found = look({N: "0,2"}, [1, 0], devices=tuple(gpus), machine=answers)
    assert (found.mapping.certainty, names(found)) == ("exact", ["cuda:0", "cuda:1"])
    # It was asked what the list means, not whether the program has narrowed it.
    narrowed = look({N: "0,2"}, [0], devices=tuple(gpus), machine=answers)
    assert (narrowed.mapping.certainty, names(narrowed)) == ("predicted", ["cuda:1?"])
    # Within a container the same cards keep that order.
    nodes = tuple(msgspec.structs.replace(gpu, minor=gpu.index) for gpu in gpus)
    inside = look({N: "0"}, [2], devices=nodes, machine=answers, minors=(0, 2))
    assert indices(inside.mapping.visible) == [2]


def test_the_reasoning_is_told_in_words() -> None:
    told = " ".join(look({N: "1\x1b[2J", **PCI}, [3], minors=(0, 1)).reasoning())
    assert "CUDA_VISIBLE_DEVICES=1�[2J and CUDA_DEVICE_ORDER=PCI_BUS_ID" in told
    assert "It reaches GPU 2, GPU 3: the device nodes that the process can see." in told
    assert "There cuda:0 is GPU 3 (" in told
    assert "The driver sees it on GPU 3, which fits." in told
    assert "only root and its owner" in " ".join(look("unreadable", [1]).reasoning())


@pytest.mark.parametrize(
    ("variables", "on", "descendant"),
    [
        ({}, [2], None),  # equal cards: not their order is uncertain, but whether all are visible
        ({N: "2,1"}, [1], None),
        ({N: "0", **PCI}, [3], child("3")),
        ("overwritten", [3], RelatedProcess(77, Environ({N: "1,3", **PCI}))),
    ],
)
def test_an_order_that_is_not_in_doubt_need_not_be_set(
    variables: dict[str, str] | str, on: list[int], descendant: RelatedProcess | None
) -> None:
    found = look(variables, on, descendant=descendant)
    assert found.mapping.certainty == "predicted"
    assert "order-unset" not in [hint.code for hint in advise(found.mapping)]


def test_a_child_in_another_container_gives_nothing_to_one_that_reaches_no_gpu() -> None:
    child = RelatedProcess(77, Environ({"NVIDIA_VISIBLE_DEVICES": "all"}))
    found = look(
        {N: "", "NVIDIA_VISIBLE_DEVICES": "none"}, [0], in_container=True, descendant=child
    )
    assert found.evidence.kind == "contradicted"
    assert found.mapping.count is None
