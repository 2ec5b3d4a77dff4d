"""Machines with MIG: what CUDA counts before and from R570 on, and what nobody can tell."""

import pytest

from gputop.model.cuda.advice import advise
from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.export import uuid_export_line
from gputop.model.cuda.resolve import resolve
from gputop.model.machine.gpu import MigDevice
from tests.model.inventories import h100

OLD, NEW = "565.57.01", "570.86.10"


def mig(index: int, *places: tuple[int, int]) -> CudaDevice:
    """A GPU in MIG mode; the instances' UUIDs are MIG-<gpu>-<gi>-<ci>."""
    gpu = h100(index + 1)[index]
    instances = tuple(
        MigDevice(uuid=f"MIG-{index}-{gi}-{ci}", gi=gi, ci=ci, profile="1g.10gb")
        for gi, ci in places
    )
    return CudaDevice(index, gpu.uuid, gpu.pci_bus_id, gpu.name, mig_enabled=True, mig=instances)


TWO = [mig(0, (3, 0), (4, 0)), h100(2)[1]]
"""A GPU with two instances and a plain GPU."""


def shown(value: str | None, devices: list[CudaDevice], driver: str | None) -> list[str] | None:
    visible = resolve(value, devices, order="PCI_BUS_ID", driver_version=driver).visible
    return None if visible is None else [d.mig_uuid or f"GPU {d.index}" for d in visible]


@pytest.mark.parametrize(
    ("value", "driver", "visible"),
    [
        (None, OLD, ["MIG-0-3-0"]),
        (None, NEW, None),
        (None, None, None),
        ("0", OLD, ["MIG-0-3-0"]),
        ("0", NEW, None),
        ("1", OLD, ["GPU 1"]),
        ("2", OLD, []),
        ("0,1", OLD, ["MIG-0-3-0"]),
        ("1,0", OLD, None),
        ("0,0", OLD, []),
        ("-1", NEW, []),
        ("none", NEW, []),
        ("GPU-1", OLD, ["GPU 1"]),
        ("GPU-1", NEW, ["GPU 1"]),
        ("GPU-1", None, ["GPU 1"]),
        ("GPU-0", OLD, ["MIG-0-3-0"]),
        ("GPU-0", NEW, None),
        ("MIG-0-4-0", None, ["MIG-0-4-0"]),
        ("MIG-0-4-0,MIG-0-3-0", OLD, ["MIG-0-4-0"]),
        ("MIG-0-3-0,MIG-0-4-0", NEW, ["MIG-0-3-0", "MIG-0-4-0"]),
        ("MIG-0-3-0,MIG-0-4-0", None, None),
        ("MIG-0-3-0,MIG-0-3-0", None, []),
        ("MIG-GPU-0/4/0", None, ["MIG-0-4-0"]),
        ("MIG-GPU-0/4/0,MIG-0-4-0", NEW, []),
        ("MIG-GPU-0/5/0", NEW, []),
        ("MIG-GPU-1/0/0", NEW, []),
        ("MIG-GPU-f/3/0", NEW, []),
        ("MIG-GPU-/3/0", NEW, []),
        ("MIG-0-4-0,GPU-1", NEW, ["MIG-0-4-0"]),
        ("MIG-0-4", NEW, None),
        ("MIG-9", NEW, []),
        ("MIG-0-3-0,", NEW, ["MIG-0-3-0"]),
    ],
)
def test_mig_beside_a_plain_gpu(value: str | None, driver: str, visible: list[str] | None) -> None:
    assert shown(value, TWO, driver) == visible


@pytest.mark.parametrize(
    ("value", "driver"),
    [
        ("1", OLD),
        ("GPU-0", OLD),
        ("GPU-1", None),
        ("0", NEW),
        ("MIG-0-4", NEW),
        ("MIG-0-4-0,MIG-0-3-0", NEW),
        ("1,MIG-0-3-0", NEW),
        ("MIG-0-3-0,1", NEW),
    ],
)
def test_what_no_source_settles_is_marked(value: str, driver: str | None) -> None:
    assert not resolve(value, TWO, order="PCI_BUS_ID", driver_version=driver).documented


def test_unset_from_r570_shows_one_compute_instance_of_each_gpu_instance() -> None:
    both = resolve(None, TWO, driver_version=NEW)
    assert (both.certainty, both.count, both.visible) == ("unknown", 3, None)
    assert [advice.code for advice in advise(both)] == ["mig-unknown"]
    assert both.visible_set == (*TWO[0].parts(), TWO[1])
    split = resolve(None, [mig(0, (1, 0), (1, 1), (2, 0))], driver_version=NEW)
    assert (split.count, split.visible_set) == (2, None)
    alone = resolve(None, [mig(0, (1, 0))], driver_version=NEW)
    assert (alone.certainty, alone.visible) == ("exact", mig(0, (1, 0)).parts())


def test_a_gpu_in_mig_mode_without_instances_cannot_be_counted() -> None:
    devices = [mig(0), h100(2)[1]]
    for driver in (OLD, NEW):
        mapping = resolve(None, devices, order="PCI_BUS_ID", driver_version=driver)
        assert (mapping.certainty, mapping.visible) == ("exact", (devices[1],))
        assert [h.reason for h in mapping.hidden] == ["GPU 0 is in MIG mode and has no instance"]
        assert resolve("0", devices, order="PCI_BUS_ID", driver_version=driver).visible is None


def test_instances_that_are_not_known_leave_the_answer_open() -> None:
    devices = [h100(1)[0], CudaDevice(1, "GPU-ffff", "0000:02:00.0", "H", mig_enabled=True)]
    for value in (None, "1", "MIG-0", "MIG-GPU-f/1/0", "GPU-f"):
        for driver in (OLD, NEW, None):
            mapping = resolve(value, devices, driver_version=driver)
            assert (mapping.certainty, mapping.visible) == ("unknown", None)
            assert all(entry.outcome == "unresolved" for entry in mapping.entries)


def test_the_rule_that_decides_is_named() -> None:
    old = resolve("MIG-0-3-0,MIG-0-4-0", TWO, driver_version=OLD)
    assert (old.reason, old.entries[1].outcome) == ("mig_single_instance", "stopped")
    assert "before R570" in old.entries[1].message
    assert [d.label for d in old.visible or ()] == ["GPU 0:3 MIG 1g.10gb"]
    split = resolve("MIG-0-1-0,MIG-0-1-1", [mig(0, (1, 0), (1, 1))], driver_version=NEW)
    assert (split.reason, split.documented) == ("mig_one_ci_per_gi", False)
    unset = resolve(None, TWO, driver_version=OLD, order="PCI_BUS_ID")
    assert {h.reason for h in unset.hidden} == {
        "drivers before R570 give a process one MIG device and no GPU beside it"
    }
    unknown = resolve("0", TWO)
    assert "R570" in unknown.because
    assert [h.device.label for h in resolve("GPU-1", TWO, driver_version=NEW).hidden] == [
        "GPU 0:3 MIG 1g.10gb",
        "GPU 0:4 MIG 1g.10gb",
    ]


def test_cuda_enumerates_64_mig_devices() -> None:
    devices = [mig(i, *((gi, 0) for gi in range(7))) for i in range(10)]
    value = ",".join(part.mig_uuid or "" for device in devices for part in device.parts())
    mapping = resolve(value, devices, driver_version=NEW)
    assert (mapping.count, mapping.reason, mapping.documented) == (64, "mig_limit", False)
    assert resolve(None, devices, driver_version=NEW).count == 64


def test_mig_uuids_make_an_export_line() -> None:
    line = uuid_export_line(resolve("MIG-GPU-0/4/0", TWO))
    assert line == "export CUDA_VISIBLE_DEVICES=MIG-0-4-0"


def test_without_mig_mode_no_mig_device_exists() -> None:
    mapping = resolve("MIG-GPU-0/1/0", h100(2))
    assert (mapping.visible, mapping.reason) == ((), "unknown_uuid")
    # MIG- then names a GPU, as GPU- does.
    assert resolve("MIG-1", h100(2)).visible == (h100(2)[1],)
