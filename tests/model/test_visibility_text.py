"""Any text at all, of any length, has an answer; numbers are read as C reads them."""

import ctypes
import random

import pytest

from gputop.model.cuda.entries import ENDS, read_number
from gputop.model.cuda.enumeration import CudaDevice, normalize_bus_id
from gputop.model.cuda.export import export_line, uuid_export_line
from gputop.model.cuda.mapping import Mapping
from gputop.model.cuda.resolve import resolve
from tests.model.inventories import h100, mixed

PIECES = (
    *(str(n) for n in range(-2, 6)),
    *(",", ",", ",", " ", "\t", "\n", "+", "-", "0x", "08", "GPU-", "MIG-", "gpu-", "GPU-1942190a"),
    *("GPU-2", "/", ".", "9" * 5000, "１", "²", "٣", "，", "\ud800", "\x00", "\x1b", "a", "é", "🎛"),
)


def random_values(count: int) -> list[str]:
    rng = random.Random(20131)
    return ["".join(rng.choices(PIECES, k=rng.randrange(9))) for _ in range(count)]


def check_shape(mapping: Mapping, devices: list[CudaDevice]) -> None:
    """Assert what holds of every answer to a list."""
    entries, visible = mapping.entries, mapping.visible
    assert ",".join(entry.text for entry in entries) == mapping.value
    assert all(entry.message for entry in entries if entry.outcome in ENDS)
    logical = [entry.position for entry in entries if entry.outcome == "visible"]
    assert logical == list(range(len(logical)))
    outcomes = [entry.outcome for entry in entries]
    ends = [o for o in outcomes if o in ("stopped", "duplicate")]
    assert len(ends) == (mapping.stopped_at is not None)
    if mapping.stopped_at is not None:
        after = outcomes[mapping.stopped_at.position + 1 :]
        assert set(after) <= {"ignored"}
    if visible is None:
        assert mapping.certainty == "unknown"
        assert mapping.hidden == ()
        return
    assert mapping.certainty != "unknown"
    assert len(set(visible)) == len(visible) == mapping.count == len(logical)
    together = {d.index for d in visible} | {h.device.index for h in mapping.hidden}
    assert together == {device.index for device in devices}
    assert len(visible) + len(mapping.hidden) == len(devices)


@pytest.mark.parametrize("devices", [[], h100(1), h100(4), mixed()], ids=["0", "1", "4", "mixed"])
def test_any_text_has_an_answer(devices: list[CudaDevice]) -> None:
    for value in random_values(1500):
        for order in (None, "PCI_BUS_ID", value):
            mapping = resolve(value, devices, order=order)
            if value:
                check_shape(mapping, devices)
            assert (export_line(mapping) or "").isprintable()
            uuid_export_line(mapping)
        normalize_bus_id(value)


def test_numbers_are_read_as_the_c_library_reads_them() -> None:
    strtoul = ctypes.CDLL(None).strtoul
    strtoul.restype = ctypes.c_ulong
    alphabet = "0123456789+-x \t\n\v\f\r\x1c\x85abc."
    rng = random.Random(7)
    for _ in range(5000):
        text = "".join(rng.choices(alphabet, k=rng.randrange(24)))
        assert (read_number(text) or 0) == ctypes.c_int32(strtoul(text.encode(), None, 10)).value, (
            text
        )


@pytest.mark.parametrize(
    "value",
    [
        "9" * 100_000,
        "-" + "9" * 100_000,
        "0" * 100_000 + "1",
        " " * 100_000,
        "," * 100_000,
        "GPU-" + "a" * 100_000,
        ",".join(str(n) for n in range(10_000)),
        "0,9," + ",".join(str(n) for n in range(10, 10_000)),
        "GPU-1,GPU-x," + ",".join(f"GPU-{n:x}942" for n in range(10_000)),
        "0," * 50_000,
    ],
    ids=lambda value: f"{value[:9]}-{len(value)}",
)
# Not a measurement: a reading in quadratic time would take minutes.
@pytest.mark.timeout(20)
def test_very_long_values_are_answered(value: str) -> None:
    check_shape(resolve(value, h100(8), order="PCI_BUS_ID"), h100(8))
