"""What must hold of the mapping of any process: nothing is exact that does not follow."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.process_mapping import ProcessMapping, process_mapping
from gputop.model.cuda.process_mapping import hides_all as hides_all_values
from gputop.model.cuda.reach import Machine
from gputop.model.machine.environment import AgentSurroundings, CudaContext, Environ, RelatedProcess
from tests.model.inventories import h100, mixed
from tests.model.test_mig import TWO

N, ORDER, PIPE = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY"
UUIDS = [device.uuid or "" for device in h100(4)]

VALUES = st.sampled_from(
    ["", "-1", "0", "1", "2", "3", "0,1", "1,0", "3,1", "0,1,2,3", "0,0", "9", "1,9", "x", "0,-1,2",
     UUIDS[1], f"{UUIDS[3]},{UUIDS[0]}", UUIDS[2][:9], "GPU-", "MIG-0-3-0", "0,GPU-1", "NoDevFiles"]
)  # fmt: skip
VARIABLES = st.fixed_dictionaries(
    {},
    optional={
        N: VALUES,
        ORDER: st.sampled_from(["PCI_BUS_ID", "FASTEST_FIRST", "pci"]),
        "NVIDIA_VISIBLE_DEVICES": st.sampled_from(
            ["all", "none", "void", "1,3", "0", "0:1", "junk"]
        ),
        "SLURM_JOB_ID": st.sampled_from(["1", "2"]),
        "SLURM_JOB_GPUS": st.sampled_from(["0", "2,3", "0,1", "0,1,2,3", "0-3", "6,7", "x"]),
        "SLURM_STEP_GPUS": st.sampled_from(["3", "0", "2,3"]),
        "PBS_JOBID": st.just("7"),
        PIPE: st.sampled_from(["/dev/null", "/tmp/nvidia-mps", "/tmp/other", ""]),
        "LOCAL_RANK": st.sampled_from(["0", "2"]),
        "CUDA_VISIBLE_DIVICES": st.just("1"),
    },
)
ENVIRONS = st.builds(Environ, VARIABLES) | st.sampled_from(
    [Environ({}, missing) for missing in ("overwritten", "unreadable", "too_long", "empty_block")]
)
MINORS = st.none() | st.frozensets(st.integers(0, 4), max_size=4).map(sorted).map(tuple)
AROUND = st.builds(
    CudaContext,
    environ=ENVIRONS,
    minors=MINORS,
    in_container=st.booleans(),
    frameworks=st.sampled_from([(), ("pytorch",), ("tensorflow",)]),
    descendant=st.none() | st.builds(RelatedProcess, st.just(77), st.builds(Environ, VARIABLES)),
)
SURROUNDINGS = st.just(AgentSurroundings()) | st.builds(
    AgentSurroundings,
    minors=MINORS.map(lambda minors: minors or None),
    container=st.booleans(),
    job=st.sampled_from([None, "Slurm 1"]),
    job_gpus=st.sampled_from([None, "2,3", "0,1,2,3"]),
)


def numbered(devices: list[CudaDevice]) -> tuple[CudaDevice, ...]:
    return tuple(msgspec.structs.replace(device, minor=device.index) for device in devices)


MACHINES = st.builds(
    Machine,
    devices=st.sampled_from(
        [numbered(h100(4)), numbered(h100(2)), numbered(h100(1)), numbered(mixed()),
         numbered(list(TWO)), tuple(h100(4))]
    ),
    driver_version=st.sampled_from(["580.65.06", "550.54", None]),
    mps_servers=st.sampled_from([(), (Environ({N: "0,2", ORDER: "PCI_BUS_ID"}),),
                                 (Environ({N: "1"}),), (Environ({N: ""}),),
                                 (Environ({}, "unreadable"),), (Environ({PIPE: "/tmp/other"}),)]),
    surroundings=SURROUNDINGS,
)  # fmt: skip


@st.composite
def processes(draw: st.DrawFn) -> tuple[CudaContext, Machine, list[CudaDevice], ProcessMapping]:
    around, machine = draw(AROUND), draw(MACHINES)
    parts = [part for device in machine.devices for part in device.parts()]
    used = draw(st.lists(st.sampled_from(parts), unique=True, max_size=4))
    mps = draw(st.sampled_from([None, True, False])) if used else None
    return around, machine, used, process_mapping(around, machine, used, mps=mps)


Case = tuple[CudaContext, Machine, list[CudaDevice], ProcessMapping]


@settings(max_examples=200)
@given(processes())
def test_what_holds_of_any_process(case: Case) -> None:
    """One table of them for all: to think them up takes as long as what is asked of them."""
    check_exactness(case)
    check_consistency(case)
    check_child(case)


def check_exactness(case: Case) -> None:
    """What is exact follows."""
    around, _, used, found = case
    mapping, environ = found.mapping, around.environ
    if mapping.certainty != "exact" or mapping.visible is None:
        return
    if found.inside.devices == ():
        return  # no variable gives it a GPU
    # Its own variables are known, and nobody else's were taken.
    assert found.variables == "read"
    assert (mapping.value, mapping.order) == (
        environ.variables.get(N),
        environ.variables.get(ORDER),
    )
    assert found.evidence.kind in ("confirmed", "unused")
    # The driver sees it nowhere else.
    assert {device.id for device in used} <= {device.id for device in mapping.visible}
    # The GPUs that it can reach are known, unless its value means the same among any.
    inside, value = found.inside.devices, mapping.value
    named = value is not None and value.startswith(("GPU-", "MIG-"))
    if inside is None:
        assert hides_all_values(mapping) or (named and mapping.visible)
        return
    assert found.inside.certainty == "exact" or hides_all_values(mapping)
    assert {device.index for device in mapping.visible} <= {device.index for device in inside}
    # Integers count in an order that is documented.
    several = len(inside) > 1 and len(mapping.visible) > 0
    if several and not named and not any(device.instance for device in mapping.visible):
        assert environ.variables.get(ORDER) == "PCI_BUS_ID" or found.mps
    # None of what may hide GPUs, or number them, was passed over.
    if around.minors is not None:
        assert {device.minor for device in mapping.visible} <= set(around.minors)


def check_consistency(case: Case) -> None:
    """Nothing that is said contradicts itself."""
    around, _, used, found = case
    mapping = found.mapping
    text = " ".join((*found.reasoning(), *(hint.text for hint in found.advice)))
    assert text.isprintable()
    assert "driver itself" not in text
    assert "cuda:0 in the first case and cuda:0" not in text
    if N in around.environ.variables:
        assert "every GPU is visible" not in text
    if found.inside.devices == ():
        assert "Use a UUID" not in text
        assert mapping.count in (0, None)
    if found.variables != "read":
        assert mapping.value is None
        assert found.shell_lines == ()
        assert "unset" not in text
    if found.evidence.kind in ("contradicted", "inferred"):
        assert found.shell_lines == ()
        assert mapping.certainty != "exact"
    if mapping.visible is not None:
        places = [device.id for device in mapping.visible]
        for place, name in found.evidence.names:
            if not name.endswith("?"):
                assert name == f"cuda:{places.index(place)}"
                assert mapping.certainty in ("exact", "expected")
    assert {place for place, _ in found.evidence.names} <= {device.id for device in used}
    if mapping.count == 0 and used:
        raise AssertionError("it is on a GPU and said to see none")


def check_child(case: Case) -> None:
    """A child changes nothing where the process's own variables explain it."""
    around, machine, used, found = case
    alone = msgspec.structs.replace(around, descendant=None)
    mps = found.mps or None if not used else found.mps
    without = process_mapping(alone, machine, used, mps=mps)
    if without.mps == found.mps and without.evidence.kind in ("confirmed", "unused"):
        assert process_mapping(around, machine, used, mps=mps) == without
