"""TensorFlow's logs, of all generations."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.tf_log import LogDevice, TfLog, explain, physical, read_tf_log
from tests.model.test_visibility_vectors import Vector, inventory, named, vectors

LOGS = Path(__file__).parents[1] / "data" / "articles"


def read(name: str) -> TfLog:
    return read_tf_log((LOGS / f"{name}.log").read_text(encoding="utf-8"))


def machine(*buses: str) -> list[CudaDevice]:
    return [CudaDevice(i, None, f"00000000:{bus.upper()}.0", None) for i, bus in enumerate(buses)]


def ids(log: TfLog, devices: list[CudaDevice]) -> set[str]:
    return {advice.code for advice in explain(log, devices)}


@named(vectors("tf_log"))
def test_published_case(vector: Vector) -> None:
    (device,) = read_tf_log(vector["tf_log"]).devices
    gpu = physical(device.bus_id, inventory(vector))
    assert gpu is not None
    assert [gpu.index] == vector["expect"]
    (advice,) = explain(read_tf_log(vector["tf_log"]), inventory(vector))
    assert (advice.code, advice.level) == ("tf-log-device-number", "info")
    assert "'device: 0' is the CUDA ordinal inside the process" in advice.text
    assert "physical GPU 3" in advice.text


GENERATIONS = [
    "/job:localhost/replica:0/task:0/gpu:1 -> device: 0, name: T, pci bus id: 0000:05:00.0",
    "/job:localhost/replica:0/task:0/gpu:1 -> device: 0, name: T, pci bus\nid: 0000:05:00.0",
    "I gpu_device.cc:885] Creating TensorFlow device (/gpu:1) -> (device: 0, name: T, "
    "pci bus id: 0000:05:00.0)",
    "/job:localhost/replica:0/task:0/device:GPU:1 -> device: 0, name: T, "
    "pci bus id: 0000:05:00.0, compute capability: 7.5",
    "Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:1 with 9 MB memory) -> "
    "physical GPU (device: 0, name: T, pci bus id: 0000:05:00.0, compute capability: 7.5)",
    "Created device /job:localhost/replica:0/task:0/device:GPU:1 with 9 MB memory:  -> "
    "device: 0, name: T, pci bus id: 0000:05:00.0, compute capability: 9.0",
]


@pytest.mark.parametrize("text", GENERATIONS)
def test_device_mappings_of_all_generations(text: str) -> None:
    memory = 9 if "MB" in text else None
    device = LogDevice("/device:GPU:1", 0, "T", "0000:05:00.0", memory)
    assert read_tf_log(text).devices == (device,)


def test_a_device_of_another_task_keeps_its_task() -> None:
    text = "/job:worker/replica:0/task:3/device:GPU:0 -> device: 0, name: T, pci bus id: 0:5:0.0"
    assert read_tf_log(text).devices[0].name == "/job:worker/replica:0/task:3/device:GPU:0"


def test_a_bus_id_on_the_next_line() -> None:
    log = read("k40c")
    assert log.devices == (LogDevice("/device:GPU:0", 0, "Tesla K40c", "0000:05:00.0"),)
    assert log.operations == {"/device:GPU:0": 3}


def test_only_xlas_devices_means_that_libraries_are_missing() -> None:
    log = read("xla_only")
    assert log.devices == ()
    assert log.xla == tuple(f"/device:XLA_GPU:{k}" for k in range(4))
    assert len(log.missing_libraries) == 6
    assert log.bus_ids[3] == "0000:db:00.0"
    (advice,) = explain(log, machine("b1:00", "b2:00", "da:00", "db:00"))
    assert (advice.code, advice.level) == ("tf-log-no-gpu", "error")
    for word in ("libcudart.so.10.0", "XLA_GPU:0", "on the CPU", "CUDA ordinal 3 is GPU 3"):
        assert word in advice.text


XLA = "/job:localhost/replica:0/task:0/device:XLA_GPU:0"


@pytest.mark.parametrize(
    ("text", "id_", "sees", "words"),
    [
        (f"{XLA} -> device: XLA_GPU device", "tf-log-xla-only", True, "if none was registered"),
        (f"{XLA} -> device: XLA_GPU device\nMatMul: (MatMul): {XLA}\n", "tf-log-xla-only", True,
         "placed on /device:XLA_GPU:0 (1 operation of this log)"),
        (f"MatMul: (MatMul): {XLA}\nb: (Const): {XLA.replace('GPU', 'CPU')}\n",
         "tf-log-xla-only", True, "(1 operation of this log)"),
        (f"Skipping registering GPU devices...\n{XLA} -> device: XLA_GPU device\n",
         "tf-log-no-gpu", False, "but for those that are compiled by XLA or placed on"),
        (f"Skipping registering GPU devices...\nMatMul: (MatMul): {XLA}\n",
         "tf-log-no-gpu", True, "(1 operation of this log)"),
        ("Skipping registering GPU devices...\n", "tf-log-no-gpu", False, "runs on the CPU."),
    ],
)  # fmt: skip
def test_what_xla_runs_on_a_card_is_not_said_to_run_on_the_cpu(
    text: str, id_: str, sees: bool, words: str
) -> None:
    log = read_tf_log(text)
    (advice,) = explain(log, [])
    assert (advice.code, log.sees_gpu, log.has_gpu) == (id_, sees, False)
    assert words in advice.text
    assert ("every ordinary operation" in advice.text) == ("XLA" not in text)


def test_repeated_bus_ids_are_doubted_and_logical_devices_are_not() -> None:
    devices = machine("02:00", "03:00")
    assert "tf-log-repeated-bus-id" in ids(read("four"), devices)
    assert "tf-log-repeated-bus-id" not in ids(read("masked"), devices)
    split = GENERATIONS[3] + "\n" + GENERATIONS[3].replace("GPU:1", "GPU:0")
    assert len(read_tf_log(split).devices) == 2
    assert ids(read_tf_log(split), devices) == {"tf-log-device-number"}
    (numbers,) = explain(read("masked"), devices)
    assert "'device: 1', 'device: 2' are CUDA ordinals" in numbers.text
    assert "physical GPU 0, 1." in numbers.text
    # A masked process counts from 0: somebody chose among the visible GPUs.
    assert "visible_device_list" in numbers.text
    assert "visible_device_list" not in next(explain(read("four"), devices)).text
    assert "No GPU of this machine" in next(explain(read("masked"), [])).text
    some = next(explain(read("masked"), machine("03:00"))).text
    assert "physical GPU none of this machine, 0." in some


def test_placements_are_summed_up() -> None:
    k520 = machine("00:03", "00:04", "00:05", "00:06")
    assert read("k520").operations == {"/device:GPU:0": 3}
    assert [d.bus_id for d in read("k520").devices][3] == "0000:00:06.0"
    assert ids(read("k520"), k520) == {"tf-log-device-number"}
    placed = read("k520_placed")
    assert placed.operations == {"/device:CPU:0": 2, "/device:GPU:1": 1}
    assert placed.on_cpu == ("b", "a")
    soft = read("soft_placement")
    assert soft.operations == {"/device:CPU:0": 7, "/device:GPU:0": 4}
    assert "tf-log-on-cpu" in ids(soft, k520)
    assert read("eager").operations == {"/device:GPU:0": 3}
    twice = "a: (Const): /job:localhost/replica:0/task:0/device:GPU:0\n2020-01-01 00:00:00.1: I t/c"
    twice += "/placer.cc:54] a: (Const)/job:localhost/replica:0/task:0/device:GPU:0\n"
    assert read_tf_log(twice).operations == {"/device:GPU:0": 1}


def test_no_gpu_and_a_full_gpu() -> None:
    assert read("no_gpu").operations == {"/device:CPU:0": 3}
    assert ids(read("no_gpu"), []) == {"tf-log-no-gpu"}
    assert read("full").full == (2,)
    assert ids(read("full"), []) == {"tf-log-full"}


def test_an_operation_that_a_device_refuses() -> None:
    (advice,) = explain(read("refused"), [])
    assert (advice.code, advice.level) == ("tf-log-refused", "error")
    assert "a_gpu cannot be put on /device:GPU:0: no supported kernel" in advice.text
    later = (
        "Cannot assign a device for operation x: Could not satisfy explicit device specification "
        "'/GPU:9' because no devices matching that specification are registered; available: CPU:0"
    )
    assert read_tf_log(later).refused == (
        ("x", "/GPU:9", "no devices matching that specification are registered"),
    )


def test_a_list_of_physical_devices() -> None:
    log = read("physical_devices")
    assert log.listed == {"GPU": 4, "XLA_GPU": 4}
    assert log.has_gpu
    (advice,) = explain(log, [])
    assert "4 GPUs are listed" in advice.text
    (one,) = explain(msgspec.structs.replace(log, listed={"GPU": 1, "XLA_GPU": 1}), [])
    assert "1 GPU is listed" in one.text


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        (True, ["eager", "four", "k520_placed", "physical_devices"]),
        (False, ["no_gpu", "xla_only", "full", "refused"]),
    ],
)
def test_whether_there_was_a_gpu(expected: bool, names: list[str]) -> None:
    assert [read(name).has_gpu for name in names] == [expected] * 4


def test_a_text_that_is_no_log() -> None:
    assert not list(explain(read_tf_log("hello\x00\ud800"), []))


@given(st.lists(st.sampled_from([*GENERATIONS, "a: ", "/gpu:0", " -> device: ", "\n", "x"])))
def test_any_text_has_an_answer(pieces: list[str]) -> None:
    list(explain(read_tf_log("".join(pieces)), machine("05:00")))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece",
    [
        *("Found device 0 with properties:", "/gpu:0", "a" * 9, "a: ", "] "),
        *("Cannot assign a device to node x:", "name='/physical_device:GPU:"),
    ],
)
def test_a_long_log_is_read_in_linear_time(piece: str) -> None:
    read_tf_log(piece * 50_000)


@pytest.mark.long
def test_numbers_that_python_refuses_and_lines_without_an_end() -> None:
    """A million words of which the rest of the line is searched for another take hours."""
    digits = "9" * 5000
    assert not read_tf_log(f"/device:GPU:0 -> device: {digits}, name: x, pci bus id: 1").devices
    assert read_tf_log("CUDA device ordinal 1 " * 1_000_000).full == ()
