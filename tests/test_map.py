"""`gputop map`, through a command line of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.commands.map import run
from gputop.errors import GputopError
from gputop.model.cuda.inventory import read_inventory
from gputop.model.machine.frame import Frame, Host, Process
from gputop.model.machine.gpu import Gpu
from gputop.parser import read
from gputop.protocol.codec import encode
from tests.conftest import MachineFactory
from tests.limits import trouble_within
from tests.model.test_visibility_vectors import Vector, named, vectors

KEYS = [
    *("value", "order", "certainty", "documented", "devices"),
    *("set", "stopped_at", "hidden", "advice"),
]
LOGS = Path(__file__).parent / "data" / "articles"
GIB = 1024**3
Map = Callable[..., tuple[int, str, str]]


def main(arguments: list[str]) -> int:
    """As the program's own: errors are one line, and an exit status."""
    try:
        return run(read(arguments))
    except GputopError as error:
        print(f"gputop: {error}", file=sys.stderr)
        return error.exit_code


@pytest.fixture
def gputop_map(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Map:
    """Run `gputop map` on an inventory: exit status, output, errors."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "machine.json"

    def call(inventory: dict[str, Any] | str | bytes, *arguments: str) -> tuple[int, str, str]:
        text = json.dumps(inventory) if isinstance(inventory, dict) else inventory
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        status = main(["map", "--inventory", str(path), *arguments])
        return status, *capsys.readouterr()

    return call


def described(inventory: str) -> dict[str, Any]:
    gpus: list[Any] = next(v["gpus"] for v in vectors("driver") if v["inventory"] == inventory)
    return {"gpus": gpus}


def busy_frame() -> Frame:
    gpus = tuple(
        Gpu(
            index=i,
            uuid=f"GPU-{i}aa",
            name="NVIDIA H200",
            pci_bus_id=f"00000000:{i + 1:02X}:00.0",
            memory_total=140 * GIB,
            memory_free=(140 - 139 * (i == 1)) * GIB,
        )
        for i in range(4)
    )
    process = Process(pid=7, gpu_uuid="GPU-1aa", user="bob", gpu_memory=139 * GIB)
    return Frame(host=Host(name="node"), time=0.0, gpus=gpus, processes=(process,))


DRIVERS = {
    "any": "580.65.06",
    "<390": "384.1",
    ">=410": "410.48",
    "<570": "565.1",
    ">=570": "570.1",
}


@named(vectors("driver"))
def test_published_case(vector: Vector, gputop_map: Map) -> None:
    machine = {"gpus": vector["gpus"], "driver_version": DRIVERS[vector["driver"]]}
    if "cuda_order" in vector:
        machine["cuda_order"] = vector["cuda_order"]
    value = ["--unset"] if vector["value"] is None else ["--", vector["value"]]
    order = [] if vector["order"] is None else ["--order", vector["order"]]
    status, text, errors = gputop_map(machine, "--json", *order, *value)
    answer = json.loads(text)
    if "\n" in (vector["value"] or ""):  # it may be a page: what has a line end is never a value
        assert (answer["unknown"][:14], status) == ("not understood", 2)
        return
    assert list(answer) == KEYS
    assert errors == ""
    if vector["expect"] is None:
        assert (answer["certainty"], answer["devices"], status) == ("unknown", None, 0)
        return
    seen = [device["mig_uuid"] or device["gpu"] for device in answer["devices"]]
    assert seen == vector["expect"]
    assert status == (0 if seen else 1)
    assert answer["documented"] == (vector["confidence"] != "low")
    assert [device["logical"] for device in answer["devices"]] == list(range(len(seen)))
    stop = answer["stopped_at"]
    assert (stop and stop["position"]) == vector["stops_at"]


def test_a_device_and_its_names(gputop_map: Map) -> None:
    status, text, _ = gputop_map(described("h100x4"), "--json", "2,-1,0")
    answer = json.loads(text)
    (device,) = answer["devices"]
    assert list(device) == ["logical", "gpu", "uuid", "mig_uuid", "pci_bus_id", "names"]
    assert device["names"]["pytorch"] == "cuda:0"
    assert device["names"]["tensorflow"] == "/device:GPU:0"
    assert device["names"]["vllm"] == "cuda:0"
    assert answer["stopped_at"] == {"position": 1, "entry": "-1", "reason": "negative"}
    assert [(h["gpu"], bool(h["reason"])) for h in answer["hidden"]] == [
        (0, True),
        (1, True),
        (3, True),
    ]
    assert [(a["code"], a["level"]) for a in answer["advice"]] == [("value-hides-rest", "warning")]
    assert (status, answer["set"]) == (0, None)


def test_the_order_of_a_mixed_box(gputop_map: Map) -> None:
    machine = described("mixed2_koboldcpp1023")
    status, text, _ = gputop_map(machine, "--json", "--unset")
    answer = json.loads(text)
    assert (answer["certainty"], answer["devices"], answer["set"]) == ("unknown", None, [0, 1])
    assert status == 0
    clocked = {"gpus": [{**gpu, "sm_clock_max": 1_700_000_000} for gpu in machine["gpus"]]}
    answer = json.loads(gputop_map(clocked, "--json", "0")[1])
    assert (answer["certainty"], answer["devices"][0]["gpu"]) == ("predicted", 1)
    seen = {**machine, "cuda_order": [1, 0]}
    answer = json.loads(gputop_map(seen, "--json", "0")[1])
    assert (answer["certainty"], answer["devices"][0]["gpu"]) == ("exact", 1)


def test_a_machine_from_a_frame(gputop_map: Map) -> None:
    frame = encode(busy_frame())
    status, text, _ = gputop_map(frame, "1,2")
    assert status == 0
    assert "cuda:0" in text
    assert "-> GPU 1  H200  0000:02:00.0  1.0 GiB unused" in text
    assert "warning: GPU 1 (cuda:0) is full: used by bob." in text
    assert "export CUDA_VISIBLE_DEVICES=1,2" in text
    assert "hidden: GPU 0, GPU 3 (no entry names it)" in text
    # `gputop --json --watch` writes one frame a line.
    assert gputop_map(frame + b"\n" + frame + b"\n", "1,2")[:2] == (0, text)


def test_text_where_the_order_cannot_be_told(gputop_map: Map) -> None:
    status, text, _ = gputop_map(described("mixed2_koboldcpp1023"), "1,0")
    assert status == 0
    assert "2 GPUs are visible: GPU 0, GPU 1; which is cuda:0 is not known" in text
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in text


def test_a_mistake_is_not_offered_to_be_copied(gputop_map: Map) -> None:
    for mistake in ("[0,1]", "CUDA_VISIBLE_DEVICES = 1 python x.py", "0,0", "0,1,9"):
        text = gputop_map(described("h100x4"), mistake)[1]
        assert "error: " in text
        assert f"={mistake}" not in text
        assert "unset CUDA" not in text
        corrected = {"0,0": "0", "0,1,9": "0,1"}.get(mistake)
        line = f"export CUDA_VISIBLE_DEVICES={corrected}  # without the mistake\n"
        assert text.endswith(line) if corrected else "export CUDA" not in text
    assert "export CUDA_VISIBLE_DEVICES=-1" in gputop_map(described("h100x4"), "-1")[1]


def test_text_of_nothing_and_of_hostile_things(gputop_map: Map) -> None:
    machine = {"gpus": [{"index": 0, "uuid": "GPU-a", "name": "\x1b[2J\u202e"}]}
    status, text, _ = gputop_map(machine, "\x1b]0;x\x07")
    assert status == 1
    assert "no GPU is visible" in text
    assert all(line.isprintable() for line in text.splitlines())
    assert all(line.isprintable() for line in gputop_map(machine, "0")[1].splitlines())


def test_a_framework(gputop_map: Map) -> None:
    machine = described("h100x4")
    text = gputop_map(machine, "1", "--framework", "jax")[1]
    assert "CudaDevice(id=0)" in text
    assert "/device:GPU:0" not in text
    answer = json.loads(gputop_map(machine, "1", "--framework", "jax", "--json")[1])
    assert answer["devices"][0]["names"] == {"jax": "CudaDevice(id=0)"}


@pytest.mark.parametrize("value", ["-1", "-1,0", "-0x", "- 1"])
def test_a_value_may_begin_with_a_minus(value: str, gputop_map: Map) -> None:
    arguments = [value] if value[1] != " " else ["--", value]
    assert json.loads(gputop_map(described("h100x4"), "--json", *arguments)[1])["value"] == value


def test_a_whole_shell_line(gputop_map: Map) -> None:
    line = "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2,1 python train.py"
    answer = json.loads(gputop_map(described("h100x4"), "--json", line)[1])
    assert (answer["value"], answer["order"], answer["advice"]) == ("2,1", "PCI_BUS_ID", [])
    typo = json.loads(gputop_map(described("h100x4"), "--json", "CUDA_VISIBLE_DIVICES=1 x")[1])
    assert (typo["value"], typo["advice"][0]["code"]) == (None, "name-typo")


def test_the_callers_own_environment(gputop_map: Map, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = described("h100x4")
    assert json.loads(gputop_map(machine, "--json")[1])["value"] is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    answer = json.loads(gputop_map(machine, "--json")[1])
    assert (answer["value"], answer["order"]) == ("2,1", "PCI_BUS_ID")
    assert json.loads(gputop_map(machine, "--json", "0")[1])["order"] is None
    assert json.loads(gputop_map(machine, "--json", "--unset")[1])["value"] is None
    monkeypatch.setenv("CUDA_VISIBLE_DIVICES", "2")
    assert json.loads(gputop_map(machine, "--json")[1])["advice"][0]["code"] == "name-typo"


def test_second_layers(gputop_map: Map) -> None:
    frame = encode(busy_frame()).decode()
    layers = [
        "--tf-visible-devices",
        "1,0",
        "--tf-logical",
        "1:2048,2048",
        "--memory-fraction",
        "0.4",
    ]
    answer = json.loads(gputop_map(frame, "1,2", "--json", *layers)[1])
    assert list(answer) == [*KEYS, "layers"]
    names = [
        (claim["name"], claim["gpu"], claim["memory_limit"])
        for claim in answer["layers"]["tensorflow"]
    ]
    assert names == [
        ("/device:GPU:0", 2, 2 * GIB),
        ("/device:GPU:1", 2, 2 * GIB),
        ("/device:GPU:2", 1, None),
    ]
    claims = [tuple(claim[key] for key in ("gpu", "fraction", "bytes", "fits"))
              for claim in answer["layers"]["memory"]]  # fmt: skip
    assert claims == [
        (1, 0.4, 56 * GIB, False),
        (2, 0.4, 56 * GIB, True),
        (2, None, 4 * GIB, True),
    ]
    text = gputop_map(frame, "1,2", *layers)[1]
    assert "TensorFlow /device:GPU:1  -> GPU 2  2.00 GiB" in text
    assert "0.4 of GPU 1 is 56.00 GiB, which is NOT free now" in text


def test_logical_devices_that_do_not_fit_together(gputop_map: Map) -> None:
    frame = encode(busy_frame())
    text = gputop_map(frame, "1,2", "--tf-logical", "0:1024,1024")[1]
    assert "the limits of GPU 1 are 2.00 GiB, which is NOT free now" in text
    assert "the limits" not in gputop_map(frame, "1,2", "--tf-logical", "0:512,512")[1]


def test_jax_takes_three_quarters_of_the_gpus_that_it_sees(gputop_map: Map) -> None:
    frame = encode(busy_frame())
    text = gputop_map(frame, "1,2", "--framework", "jax")[1]
    assert "JAX takes 0.75 of each GPU at its first operation" in text
    assert "0.75 of GPU 1 is 105.00 GiB, which is NOT free now" in text
    assert "0.75 of GPU 2 is 105.00 GiB, which is free now" in text
    status, text, _ = gputop_map(frame, "1,2", "--jax-visible-devices", "1")
    assert status == 0
    assert "jax.devices()[0]      -> GPU 2" in text
    assert "0.75 of GPU 1" not in text
    text = gputop_map(frame, "1,2", "--framework", "jax", "--memory-fraction", "0.5")[1]
    assert "0.5 of GPU 2 is 70.00 GiB" in text
    assert "0.75" not in text
    # Which is which is not known, but all are visible and each is asked for as much.
    mixed = described("mixed2_koboldcpp1023")
    memory = {"memory_total": 8 * GIB, "memory_free": 8 * GIB}
    machine = {"gpus": [{**gpu, **memory} for gpu in mixed["gpus"]]}
    answer = json.loads(gputop_map(machine, "--unset", "--framework", "jax", "--json")[1])
    assert [claim["bytes"] for claim in answer["layers"]["memory"]] == [6 * GIB, 6 * GIB]
    answer = json.loads(gputop_map(machine, "--unset", "--tf-logical", "0:1024", "--json")[1])
    assert (answer["layers"]["error"], answer["layers"]["memory"]) == ("unknown", [])


@pytest.mark.parametrize(
    ("options", "gpu"),
    [
        (("--local-rank", "1"), 2),
        (("--device", "cuda:1"), 2),
        (("--device", "/gpu:0"), 1),
        (("--device", "torch.cuda.set_device(1)"), 2),
        # TensorFlow's names count what TensorFlow selected, others do not.
        (("--tf-visible-devices", "1", "--device", "/gpu:0"), 2),
        (("--tf-visible-devices", "1,0", "--device", "/gpu:0"), 2),
        (("--tf-visible-devices", "[1,0]", "--device", "/gpu:0"), 1),
        (("--tf-visible-devices", "1", "--device", "cuda:0"), 1),
        (("--tf-logical", "0:1024,1024", "--device", "/device:GPU:1"), 1),
        (("--tf-logical", "0:1024,1024", "--device", "/device:GPU:2"), 2),
    ],
)
def test_the_gpu_that_a_program_asks_for(
    options: tuple[str, ...], gpu: int, gputop_map: Map
) -> None:
    status, text, _ = gputop_map(described("h100x4"), "1,2", "--json", *options)
    found = json.loads(text)["layers"]
    assert [device["gpu"] for device in found["device"] or found["local_rank"]] == [gpu]
    assert (status, found["error"]) == (0, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--device", "cuda:2"), "For physical GPU 2 use cuda:1."),
        (("--device", "/gpu:2"), "/device:GPU:2 does not exist: 'unknown device'"),
        (("--local-rank", "2"), "LOCAL_RANK=2 raises an error: there is no GPU 2 among the 2"),
        (("--jax-visible-devices", "GPU-9e"), "JAX raises an error: 'GPU-9e' is not a list"),
        (("--jax-visible-devices", "2"), "JAX raises an error: there is no GPU 2 among the 2"),
        (("--tf-visible-devices", "1", "--device", "/gpu:1"), "1 GPU is visible"),
    ],
)
def test_a_selection_that_raises(options: tuple[str, ...], said: str, gputop_map: Map) -> None:
    status, text, _ = gputop_map(described("h100x4"), "1,2", *options)
    assert status == 1
    assert said in text
    answer = json.loads(gputop_map(described("h100x4"), "1,2", "--json", *options)[1])
    assert answer["layers"]["error"]
    assert answer["layers"]["message"] in text


def test_which_gpu_a_name_is_may_not_be_known(gputop_map: Map) -> None:
    options = ("1,0", "--device", "cuda:0", "--local-rank", "1", "--jax-visible-devices", "0")
    status, text, _ = gputop_map(described("mixed2_koboldcpp1023"), *options)
    assert status == 0
    assert text.count("which GPU is which is not known") == 3
    status, text, _ = gputop_map(described("mixed2_koboldcpp1023"), "1,0", "--device", "cuda:2")
    assert status == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--tf-visible-devices", "2"), "tf_error_range"),
        (("--tf-visible-devices", "x"), "tf_error_parse"),
        (("--tf-logical", "2:1024"), "tf_error_range"),
    ],
)
def test_tensorflows_errors(options: tuple[str, str], error: str, gputop_map: Map) -> None:
    status, text, _ = gputop_map(described("h100x4"), "1,2", "--json", *options)
    assert json.loads(text)["layers"]["error"] == error
    assert status == 1
    assert "TensorFlow raises an error" in gputop_map(described("h100x4"), "1,2", *options)[1]


def test_a_tensorflow_log(gputop_map: Map) -> None:
    machine = {"gpus": [{"index": 5, "uuid": "GPU-a", "pci_bus_id": "00000000:05:00.0"}]}
    status, text, _ = gputop_map(machine, "--tf-log", str(LOGS / "k40c.log"))
    assert status == 0
    assert "/device:GPU:0  device: 0  -> GPU 5  K40c  0000:05:00.0" in text
    assert "The bus id says this is physical GPU 5." in text
    assert "/device:GPU:0: 3 operations" in text
    answer = json.loads(gputop_map(machine, "--tf-log", str(LOGS / "k40c.log"), "--json")[1])
    assert answer["devices"] == [
        {
            "name": "/device:GPU:0",
            "cuda_ordinal": 0,
            "gpu": 5,
            "uuid": "GPU-a",
            "pci_bus_id": "0000:05:00.0",
        }
    ]
    status, text, _ = gputop_map(machine, "--tf-log", str(LOGS / "xla_only.log"))
    assert status == 1
    assert "libcudart.so.10.0" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--unset", "0"), "--unset"),
        (("0", "--driver", "new"), "--driver 'new'"),
        (("0", "--tf-logical", "0"), "'0' are not GPU:MIB"),
        (("0", "--memory-fraction", "1.5"), "above 0 and at most 1, not 1.5"),
        (("0", "--memory-fraction", "nan"), "above 0 and at most 1, not nan"),
        (("0", "--local-rank", "-1"), "there is no -1 (--local-rank)"),
        (("0", "--device", "cpu"), "'cpu' names no GPU of a program"),
        (("--tf-log", "/no/such/file"), "'/no/such/file' cannot be read: No such file"),
        (("--inventory", "/no/such/file"), "'/no/such/file' cannot be read: No such file"),
        (("--inventory", "/"), "'/' cannot be read: Is a directory"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], said: str, gputop_map: Map) -> None:
    status, text, errors = gputop_map(described("h100x4"), *arguments)
    assert (status, text) == (2, "")
    assert said in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "truncated"),
        ("hello", "malformed"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field `gpus`"),
        ('{"gpus": [{"uuid": "GPU-1"}]}', "missing required field `index`"),
        ('{"gpus": [{"index": "0"}]}', "Expected `int`"),
        ('{"gpus": [{"index": 0}, {"index": 0}]}', "same index"),
        ('{"gpus": [{"index": 0}], "cuda_order": [1]}', "cuda_order"),
        ('{"gpus": [], "host": 3}', "Expected `object`"),
        ("[" * 100_000, "machine"),
        (b"\xff\xfe", "machine"),
    ],
)
def test_broken_inventories_are_named(text: str, said: str, gputop_map: Map) -> None:
    status, _, errors = gputop_map(text, "0")
    assert status == 2
    assert "machine.json" in errors
    assert said in errors
    assert errors.count("\n") == 1


@pytest.mark.system
def test_the_machine_itself(machine: MachineFactory) -> None:
    simulated = machine("h200x8")
    program = "import sys; from tests.test_map import main; sys.exit(main(sys.argv[1:]))"
    done = simulated.run([sys.executable, "-c", program, "map", "--json", "3,1"])
    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert [device["gpu"] for device in answer["devices"]] == [3, 1]
    assert answer["devices"][0]["uuid"] == simulated.gpu(3)["uuid"]


MIXED: dict[str, Any] = {
    "gpu": {
        "name": {"each": ["GeForce GTX 1660 SUPER", "GeForce RTX 3090", "NVIDIA A100"]},
        "uuid": "GPU-5e00000{i}-0000-4000-8000-00000000000{i}",
        "pci": {"bus_id": "00000000:0{i}:00.0"},
    },
    "gpus": 3,
    "cuda_order": [2, 1, 0],
}


@pytest.mark.system
@pytest.mark.parametrize(("order", "expected"), [((), [2, 0]), (("--order", "PCI_BUS_ID"), [0, 2])])
def test_the_driver_makes_integers_exact(
    order: tuple[str, ...], expected: list[int], machine: MachineFactory
) -> None:
    """Three models, which CUDA counts from behind unless by PCI bus id."""
    simulated = machine(MIXED)
    command = [sys.executable, "-m", "gputop", "map", "--json", *order, "0,2"]
    if not order:
        alone = json.loads(simulated.run(command).stdout)
        assert (alone["certainty"], alone["devices"]) == ("unknown", None)
    asked = json.loads(simulated.run([*command, "--verify"]).stdout)
    assert asked["certainty"] == "exact"
    assert [device["gpu"] for device in asked["devices"]] == expected
    assert asked["verified"] == {"ok": True, "reason": "verified by the driver"}


@pytest.mark.system
def test_it_starts_without_textual() -> None:
    program = "import sys, gputop.commands.map; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.system
def test_an_inventory_of_too_many_parts(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"gpus":[' + '{"index":1},' * 3_000_000 + '{"index":1}]}')

    def read() -> None:
        read_inventory(path.read_bytes(), str(path))

    assert "it has more than 262144 lists and objects" in trouble_within(read)
    path.write_text('{"gpus":[' + "[]," * 300_000 + '[]]}\n{"gpus":[{"index":3}]}\n')
    assert read_inventory(path.read_bytes(), str(path)).devices[0].index == 3
