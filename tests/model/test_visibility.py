"""The answers about CUDA_VISIBLE_DEVICES: entries, reasons, certainty, lines for a shell."""

import shlex

import msgspec
import pytest

from gputop.model.cuda.enumeration import CudaDevice, normalize_bus_id
from gputop.model.cuda.export import export_line, uuid_export_line
from gputop.model.cuda.resolve import resolve
from tests.model.inventories import h100, indices, mixed


def test_entries_tell_what_became_of_each() -> None:
    mapping = resolve("0,2,-1,1", h100(4), order="PCI_BUS_ID")
    assert [e.text for e in mapping.entries] == ["0", "2", "-1", "1"]
    assert [e.position for e in mapping.entries] == [0, 1, 2, 3]
    assert [e.outcome for e in mapping.entries] == ["visible", "visible", "stopped", "ignored"]
    assert [e.device and e.device.index for e in mapping.entries] == [0, 2, None, None]
    assert [e.message for e in mapping.entries if e.message] == [
        "entry 3 '-1' is negative: CUDA stops here, the entries before it stay visible",
    ]
    assert mapping.stopped_at is mapping.entries[2]
    assert (mapping.stopped_at.position, mapping.stopped_at.text) == (2, "-1")


def test_a_duplicate_discards_what_was_taken() -> None:
    mapping = resolve("0,1,0,2", h100(4), order="PCI_BUS_ID")
    outcomes = [entry.outcome for entry in mapping.entries]
    assert outcomes == ["discarded", "discarded", "duplicate", "ignored"]
    assert (
        mapping.entries[2].message == "entry 3 '0' names the GPU of entry 1 again:"
        " CUDA hides every GPU"
    )
    assert mapping.stopped_at is mapping.entries[2]
    assert {hidden.reason for hidden in mapping.hidden} == {
        "entry 3 '0' repeats a GPU, which hides every GPU"
    }
    assert len(mapping.hidden) == 4


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("4", "entry 1 '4' is out of range (GPUs here: 4, counted from 0)"),
        ("all", "entry 1 'all' is not a number"),
        (",1", "entry 1 is empty"),
        ("GPU-f", "entry 1 'GPU-f' is the UUID of no GPU here"),
        ("GPU-", "entry 1 'GPU-' is no UUID"),
    ],
)
def test_a_stop_at_the_first_entry_says_why_and_that_nothing_is_visible(
    value: str, message: str
) -> None:
    entry = resolve(value, h100(4)).entries[0]
    assert entry.message == f"{message}: CUDA stops here, no GPU is visible"


def test_messages_stay_printable() -> None:
    hostile = resolve("\x1b[2J\u202e" + "x" * 1000, h100(2)).entries[0].message
    assert hostile.isprintable()
    assert len(hostile) < 160


def test_hidden_gpus_have_a_reason() -> None:
    mapping = resolve("3,-1,1", h100(4), order="PCI_BUS_ID")
    assert [(h.device.index, h.reason) for h in mapping.hidden] == [
        (0, "no entry names it"),
        (1, "entry 3 names it, but the list ended at entry 2"),
        (2, "no entry names it"),
    ]
    # Which of them entry 2 would have been is not known without CUDA's order.
    reasons = {h.reason for h in resolve("-1,0", mixed()).hidden}
    assert reasons == {"the list ended at its first entry"}
    empty = resolve("", h100(2))
    assert {h.reason for h in empty.hidden} == {
        "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"
    }
    assert resolve(None, h100(2)).hidden == ()


def test_unset_and_empty_are_different() -> None:
    unset, empty = resolve(None, h100(2)), resolve("", h100(2))
    assert (indices(unset.visible), unset.reason, unset.entries) == ([0, 1], "unset", ())
    assert (indices(empty.visible), empty.reason, empty.entries) == ([], "empty_value", ())
    assert unset.stopped_at is None
    assert empty.stopped_at is None


def test_pci_order_ranks_by_bus_id_and_not_by_nvml_index() -> None:
    buses = {0: "00000001:01:00.0", 1: "0000:C1:00.0", 2: "00000000:0a:00.0", 3: "0000:0A:1F.0"}
    gpus = [CudaDevice(i, None, bus, f"model {i}") for i, bus in buses.items()]
    mapping = resolve(None, gpus, order="PCI_BUS_ID")
    assert (indices(mapping.visible), mapping.certainty) == ([2, 3, 1, 0], "exact")


def test_equal_gpus_are_expected_in_pci_order() -> None:
    for order in (None, "FASTEST_FIRST"):
        mapping = resolve("1,0", list(reversed(h100(2))), order=order)
        assert (indices(mapping.visible), mapping.certainty) == ([1, 0], "expected")


def test_one_gpu_is_exact_whatever_the_order() -> None:
    for order in (None, "FASTEST_FIRST", "PCI_BUS_ID"):
        mapping = resolve("0", [CudaDevice(0, None, None, None)], order=order)
        assert (indices(mapping.visible), mapping.certainty) == ([0], "exact")
        assert mapping.documented


def test_mixed_models_are_unknown_but_the_stop_and_the_count_are_not() -> None:
    mapping = resolve("1,0,7,2", mixed())
    assert (mapping.certainty, mapping.visible, mapping.visible_set) == ("unknown", None, None)
    assert (mapping.count, mapping.reason) == (2, "out_of_range")
    assert [e.outcome for e in mapping.entries] == ["visible", "visible", "stopped", "ignored"]
    assert mapping.entries[0].device is None
    assert mapping.hidden == ()
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in mapping.because


def rated(*speeds: tuple[str, int, int, int]) -> list[CudaDevice]:
    """GPUs by name, cores, SMs and clock in MHz."""
    return [
        msgspec.structs.replace(d, name=name, cores=cores, sms=sms, sm_clock=clock * 10**6)
        for d, (name, cores, sms, clock) in zip(h100(len(speeds)), speeds, strict=True)
    ]


GTX_1660, RTX_3090 = ("1660S", 1408, 22, 1785), ("3090", 10496, 82, 1695)
RTX_2080TI, P40 = ("2080 Ti", 4352, 68, 1545), ("P40", 3840, 30, 1531)


@pytest.mark.parametrize(
    ("speeds", "predicted"),
    [
        ((GTX_1660, RTX_3090), [1, 0]),
        ((GTX_1660, RTX_3090, GTX_1660, RTX_3090), [1, 3, 0, 2]),
        ((P40, RTX_2080TI, RTX_3090), [2, 1, 0]),
        # Cores and clock disagree; SMs and cores disagree; two models tie.
        ((("a", 100, 10, 2000), ("b", 110, 11, 1000)), None),
        ((("a", 100, 20, 1000), ("b", 110, 10, 1000)), None),
        ((("a", 100, 10, 1000), ("b", 100, 10, 1000)), None),
        ((("a", 100, 10, 1000), ("b", 90, 9, 900), ("b", 90, 9, 800)), None),
        ((("a", 100, 10, 1000), ("b", 100, 12, 1000)), None),
    ],
)
def test_mixed_models_are_predicted_where_every_measure_ranks_them_alike(
    speeds: tuple[tuple[str, int, int, int], ...], predicted: list[int] | None
) -> None:
    for order in (None, "FASTEST_FIRST"):
        mapping = resolve(None, rated(*speeds), order=order)
        assert indices(mapping.visible) == predicted
        assert mapping.certainty == ("unknown" if predicted is None else "predicted")
    assert resolve(None, rated(*speeds), order="PCI_BUS_ID").certainty == "exact"


@pytest.mark.parametrize("value", [None, "2,0,1"])
def test_the_set_is_known_where_every_gpu_is_visible(value: str | None) -> None:
    mapping = resolve(value, mixed())
    assert (mapping.certainty, mapping.visible) == ("unknown", None)
    assert set(indices(mapping.visible_set) or ()) == {0, 1, 2}


@pytest.mark.parametrize("value", ["", "-1", "0,0", "GPU-2,GPU-0"])
def test_what_does_not_depend_on_the_order_is_exact_on_mixed_models(value: str) -> None:
    for order in (None, "FASTEST_FIRST", "PCI_BUS_ID"):
        mapping = resolve(value, mixed(), order=order)
        assert mapping.certainty == "exact"
        assert mapping.documented
        assert indices(mapping.visible) == ([2, 0] if "GPU" in value else [])


@pytest.mark.parametrize("order", ["", "pci_bus_id", "PCI_BUS", " PCI_BUS_ID", "FASTEST"])
def test_with_another_spelling_of_the_order_cuda_does_not_start(order: str) -> None:
    for value in (None, "", "0", "3,2", "GPU-1"):
        mapping = resolve(value, h100(4), order=order)
        assert (mapping.certainty, mapping.visible, mapping.count) == ("exact", (), 0)
        assert (mapping.reason, len(mapping.hidden)) == ("order", 4)
        assert repr(order) in mapping.because
    assert export_line(resolve("3,2", h100(4), order="x")) == (
        "export CUDA_VISIBLE_DEVICES=3,2 CUDA_DEVICE_ORDER=x"
    )


@pytest.mark.parametrize("bus", [None, "", "garbage", "00000000:01:00.0"])
def test_bus_ids_that_are_missing_or_equal_make_no_order(bus: str | None) -> None:
    gpus = [*h100(1), CudaDevice(1, "GPU-ffff", bus, "H")]
    for order in (None, "PCI_BUS_ID"):
        assert resolve("0", gpus, order=order).certainty == "unknown"
    assert indices(resolve("GPU-f", gpus).visible) == [1]


def test_models_without_a_name_are_not_taken_for_equal() -> None:
    gpus = [CudaDevice(d.index, d.uuid, d.pci_bus_id, None) for d in h100(2)]
    assert resolve("0", gpus).certainty == "unknown"


def test_the_drivers_own_order_counts() -> None:
    mapping = resolve("0,2", mixed(), order="pci_bus_id", cuda_order=[2, 0, 1])
    assert (indices(mapping.visible), mapping.certainty) == ([2, 1], "exact")
    fewer = resolve(None, mixed(), cuda_order=[2, 0])
    assert indices(fewer.visible) == [2, 0]
    assert [h.reason for h in fewer.hidden] == ["the CUDA driver does not count GPU 1"]
    for misfit in ([0, 1, 7], [0, 0, 1]):
        assert resolve("0", h100(3), cuda_order=misfit).certainty == "unknown"


def test_a_gpu_without_a_uuid_leaves_abbreviations_undecided() -> None:
    gpus = [*h100(1), CudaDevice(1, None, "0000:02:00.0", "H")]
    whole = h100(1)[0].uuid or ""
    assert indices(resolve(whole, gpus).visible) == [0]
    for value in ("GPU-0", "GPU-f", f"{whole},GPU-f,GPU-0"):
        mapping = resolve(value, gpus)
        assert (mapping.certainty, mapping.reason) == ("unknown", "uuid_missing")
        assert mapping.visible is None
        assert {entry.outcome for entry in mapping.entries} == {"unresolved"}


def test_mig_machines_still_know_what_names_nothing() -> None:
    gpus = [*h100(1), CudaDevice(1, "GPU-ffff", "0000:02:00.0", "H", mig_enabled=True)]
    for value in ("", "-1,0", "none", "GPU-a"):
        mapping = resolve(value, gpus)
        assert (mapping.visible, mapping.certainty) == ((), "exact")
    for unknown in (None, "0", "9", "MIG-0"):
        for cuda_order in (None, [0, 1]):
            assert resolve(unknown, gpus, cuda_order=cuda_order).certainty == "unknown"
    plain = resolve("GPU-0", gpus)
    assert (indices(plain.visible), plain.documented) == ([0], False)


def test_no_gpus() -> None:
    assert resolve(None, []).visible == ()
    assert resolve("0", []).reason == "out_of_range"
    assert resolve("GPU-0", []).reason == "unknown_uuid"


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (None, "unset CUDA_VISIBLE_DEVICES"),
        ("", "export CUDA_VISIBLE_DEVICES=''"),
        ("2,1", "export CUDA_VISIBLE_DEVICES=2,1"),
        ("GPU-0942", "export CUDA_VISIBLE_DEVICES=GPU-0942"),
        ("0; rm -rf x", "export CUDA_VISIBLE_DEVICES='0; rm -rf x'"),
        ("0'1", "export CUDA_VISIBLE_DEVICES='0'\\''1'"),
    ],
)
def test_export_line(value: str | None, line: str) -> None:
    assert export_line(resolve(value, h100(4))) == line


def test_export_line_carries_the_order_that_integers_depend_on() -> None:
    line = "export CUDA_VISIBLE_DEVICES=2,1 CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert export_line(resolve("2,1", h100(4), order="PCI_BUS_ID")) == line
    for value in ("GPU-0", "-1", ""):
        line = f"export CUDA_VISIBLE_DEVICES={shlex.quote(value)}"
        assert export_line(resolve(value, h100(4), order="PCI_BUS_ID")) == line


def test_uuid_export_line_means_the_same_under_every_order() -> None:
    gpus = mixed()
    line = uuid_export_line(resolve("2,0", gpus, order="PCI_BUS_ID"))
    assert line == f"export CUDA_VISIBLE_DEVICES={gpus[2].uuid},{gpus[0].uuid}"
    assert line is not None
    again = resolve(line.split("=")[1], gpus)
    assert (indices(again.visible), again.certainty) == ([2, 0], "exact")
    assert uuid_export_line(resolve("2,0", gpus)) is None
    assert uuid_export_line(resolve("", gpus)) == "export CUDA_VISIBLE_DEVICES=-1"
    assert uuid_export_line(resolve("0", [CudaDevice(0, None, None, None)])) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:02:00.0", (0, 2, 0)),
        ("0000:02:00.0", (0, 2, 0)),
        ("02:00.0", (0, 2, 0)),
        ("00000000:AB:1F.0", (0, 0xAB, 0x1F)),
        ("0000:ab:1f.0", (0, 0xAB, 0x1F)),
        ("00010000:0a:00.0", (0x10000, 10, 0)),
        ("0000:02:00", (0, 2, 0)),
        (None, None),
        ("", None),
        ("0000:02:20.0", None),
        ("0000:02:00.8", None),
        ("0000:02:00.0\n", None),
        (" 0000:02:00.0", None),
        ("０000:02:00.0", None),
        ("000000000:02:00.0", None),
        ("not a bus id", None),
    ],
)
def test_normalize_bus_id(text: str | None, address: tuple[int, int, int] | None) -> None:
    assert normalize_bus_id(text) == address
