"""What holds of every value, on every machine."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.resolve import resolve
from gputop.model.machine.gpu import MigDevice
from tests.model.inventories import h100, indices

ENTRIES = st.one_of(
    st.integers(-3, 9).map(str),
    st.sampled_from(["", " 1", "+2", "-0", "01", "1x", "x", "GPU-1", "GPU-", "MIG-0", "0x1", "２"]),
    st.text(max_size=4),
)
VALUES = st.one_of(st.none(), st.text(), st.lists(ENTRIES, max_size=6).map(",".join))
ORDERS = st.one_of(st.none(), st.sampled_from(["PCI_BUS_ID", "FASTEST_FIRST"]), st.text())
DRIVERS = st.one_of(st.none(), st.sampled_from(["565.57.01", "580.65.06"]), st.text())


@st.composite
def machines(draw: st.DrawFn) -> list[CudaDevice]:
    """Up to four GPUs, of which any may lack anything, differ in model or be in MIG mode."""
    return [
        CudaDevice(
            index=index,
            uuid=draw(st.sampled_from([None, f"GPU-{index}aa", "GPU-1bb"])),
            pci_bus_id=draw(st.sampled_from([None, f"0000:0{9 - index}:00.0"])),
            name=draw(st.sampled_from([None, "A", "B"])),
            mig_enabled=draw(st.booleans()),
            mig=draw(st.sampled_from([None, (), (MigDevice(uuid=f"MIG-{index}", gi=1, ci=0),)])),
            cores=draw(st.sampled_from([None, 1, 2])),
            sms=draw(st.sampled_from([None, 1, 2])),
            sm_clock=draw(st.sampled_from([None, 1, 2])),
        )
        for index in range(draw(st.integers(0, 4)))
    ]


def model(value: str, count: int) -> list[int]:
    """The stop rule on integers, written a second time."""
    taken: list[int] = []
    for entry in value.split(","):
        match = re.match(r"[ \t\n\v\f\r]*([+-]?[0-9]+)", entry)
        if match is None:
            return taken
        number = int(match[1])
        if not 0 <= number < count:
            return taken
        if number in taken:
            return []
        taken.append(number)
    return taken


@given(value=VALUES, devices=machines(), order=ORDERS, driver=DRIVERS)
def test_any_value_has_an_answer_that_holds_together(
    value: str | None, devices: list[CudaDevice], order: str | None, driver: str | None
) -> None:
    mapping = resolve(value, devices, order=order, driver_version=driver)
    everything = [part for device in devices for part in device.parts()]
    for group in (mapping.visible, mapping.visible_set):
        assert group is None or len(group) == len(set(group)) <= len(everything)
        assert set(group or ()) <= set(everything)
    assert (mapping.visible is None) == (mapping.certainty == "unknown")
    if mapping.visible is not None:
        assert mapping.count == len(mapping.visible)
        hidden = [h.device for h in mapping.hidden]
        assert sorted(map(repr, (*mapping.visible, *hidden))) == sorted(map(repr, everything))
        assert all(h.reason for h in mapping.hidden)
    if value:
        assert ",".join(entry.text for entry in mapping.entries) == value


@given(value=VALUES.filter(bool), count=st.integers(0, 6))
def test_integers_follow_the_stop_rule(value: str, count: int) -> None:
    mapping = resolve(value, h100(count), order="PCI_BUS_ID")
    if not value.startswith(("GPU-", "MIG-")):
        assert indices(mapping.visible) == model(value, count)
