"""`gputop map --pid`: a process's own variables come first, and what is inferred is never exact."""

from __future__ import annotations

import pytest

from tests.conftest import MachineFactory, require_root
from tests.test_map_reach import FOUR, PCI, N, ask, gpus, on, told
from tests.views import living, nodes

pytestmark = pytest.mark.system

OTHER = {N: "0", **PCI}


@pytest.mark.parametrize(
    ("own", "child", "used", "devices", "certainty", "evidence", "names"),
    [
        # Jupyter, which starts a job on one of its GPUs
        ("0,1,2,3", "0", [0], [0, 1, 2, 3], "exact", "confirmed", ["cuda:0"]),
        ("0,1,2,3", "1", [2, 3], [0, 1, 2, 3], "predicted", "ambiguous", ["cuda:2?", "cuda:3?"]),
        # It may have narrowed its list itself, as the child's shows
        ("0,1,2,3", "2", [2], [2], "predicted", "inferred", ["cuda:0?"]),
        ("3,1", "1,3", [1], [1, 3], "predicted", "inferred", ["cuda:0?"]),
        ("3,1", "1,3", [1, 3], [3, 1], "exact", "confirmed", ["cuda:1", "cuda:0"]),
        ("3,1", "0", [], [3, 1], "exact", "unused", []),
        # Its own do not fit: what the child was given is likely, and no more
        ("0", "3", [3], [3], "predicted", "inferred", ["cuda:0?"]),
        ("0", "2,3", [3], [2, 3], "predicted", "inferred", ["cuda:1?"]),
        ("", "3", [3], [3], "predicted", "inferred", ["cuda:0?"]),
        # Neither fits
        ("0", "1", [3], None, "unknown", "contradicted", []),
        # Unset, and on one of four
        (None, "2", [2], [2], "predicted", "inferred", ["cuda:0?"]),
        (None, "1", [2], [0, 1, 2, 3], "predicted", "ambiguous", ["cuda:2?"]),
        (None, "0,1", [0, 1, 2, 3], [0, 1, 2, 3], "exact", "confirmed",
         ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
    ],
)  # fmt: skip
def test_children(
    machine: MachineFactory, own: str | None, child: str, used: list[int],
    devices: list[int] | None, certainty: str, evidence: str, names: list[str],
) -> None:  # fmt: skip
    here = machine(FOUR)
    variables = PCI if own is None else {N: own, **PCI}
    with living([], variables, {N: child}) as pid:
        on(here, pid, *used)
        _, found = ask(here, pid)
    assert (gpus(found), found["certainty"]) == (devices, certainty)
    assert found["value"] == own  # never a child's
    assert found["process"]["evidence"] == evidence
    assert [process["name"] for process in found["process"]["names"]] == names


@pytest.mark.parametrize("contained", [True, False])
def test_a_child_in_a_container_of_its_own_tells_nothing(
    machine: MachineFactory, contained: bool
) -> None:
    """Its numbers count the GPUs of that container."""
    if contained:
        require_root()
    here = machine(FOUR)
    script = f"env {N}=0 cat <&3 >/dev/null"
    if contained:
        script = f"unshare --mount sh -c '{nodes(3, folder='/dev')} && exec {script}'"
    with living([], {N: "1", **PCI}, script=[f"{script} &"], programs=["cat"]) as pid:
        on(here, pid, 0)
        _, found = ask(here, pid)
    assert found["process"]["evidence"] == ("contradicted" if contained else "inferred")


def test_a_child_counts_in_its_own_job(machine: MachineFactory) -> None:
    """The parent wrote over its variables; the child has them with those of the job."""
    here = machine(FOUR)
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "2,3"}
    with living([], {N: "9", **job}, {N: "1,0"}) as pid:
        on(here, pid, 3)
        _, found = ask(here, pid)
    assert (gpus(found), found["certainty"]) == (None, "unknown")  # 1,0 may be 3,2, or 1,0
    with living([], {N: "9", **job}, {N: "0,1"}) as pid:
        on(here, pid, 3)
        _, found = ask(here, pid)
    assert (gpus(found), found["certainty"]) == ([2, 3], "predicted")


def test_children_that_disagree_tell_nothing(machine: MachineFactory) -> None:
    here = machine(FOUR)
    with living([], {N: "0"}, {N: "2"}, {N: "3"}) as pid:
        on(here, pid, 3)
        _, found = ask(here, pid)
    assert (gpus(found), found["process"]["evidence"]) == (None, "contradicted")


def test_what_is_inferred_sets_nothing_in_a_shell(machine: MachineFactory) -> None:
    here = machine(FOUR)
    with living([], {N: "0", **PCI}, {N: "3"}) as pid:
        on(here, pid, 3)
        text = told(here, pid)
    assert f"It was started with {N}=0" in text
    assert "Probably cuda:0 is GPU 3 (uncertain:" in text
    assert not [line for line in text.splitlines() if line.startswith(("export", "unset"))]
