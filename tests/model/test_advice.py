"""Mistakes, and what is said of them."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model.cuda.advice import (
    advise,
    container_advice,
    environ_advice,
    request_advice,
    requested,
    requests_advice,
)
from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.frameworks import FRAMEWORKS, Framework, device_name
from gputop.model.cuda.inventory import DeviceUse
from gputop.model.cuda.mapping import Mapping
from gputop.model.cuda.pasted.reading import read_pasted
from gputop.model.cuda.process_mapping import process_mapping
from gputop.model.cuda.reach import Machine
from gputop.model.cuda.resolve import resolve
from gputop.model.cuda.tf_log import explain, read_tf_log
from gputop.model.machine.environment import CudaContext, Environ, parse_environ
from gputop.model.machine.finding import Finding
from gputop.model.machine.gpu import MigDevice
from tests.model.inventories import h100, mixed
from tests.model.test_mig import TWO
from tests.model.test_visibility_vectors import VECTORS_FILE, inventory, vectors

LINTS = json.loads(VECTORS_FILE.with_name("lints.json").read_text(encoding="utf-8"))["lints"]
EIGHT = next(inventory(v) for v in vectors("driver") if v["inventory"] == "h100x8")
SPLIT = [
    msgspec.structs.replace(
        h100(1)[0],
        mig_enabled=True,
        mig=tuple(MigDevice(uuid=f"MIG-c{ci + 1}", gi=1, ci=ci) for ci in (0, 1)),
    )
]


def of_value(value: str) -> tuple[Finding, ...]:
    devices = SPLIT if value.startswith("MIG-") else EIGHT
    mapping = resolve(value, devices, order="PCI_BUS_ID", driver_version="580.65.06")
    return advise(mapping)


def of_shell(text: str) -> tuple[Finding, ...]:
    line = read_pasted(text)
    return () if line is None else line.advice


def of_name(name: str) -> tuple[Finding, ...]:
    return environ_advice(parse_environ(f"{name}=2\0".encode()))


def of_request(text: str) -> tuple[Finding, ...]:
    name, _, value = text.partition(" under CUDA_VISIBLE_DEVICES=")
    found = request_advice(name, resolve(value, h100(4)))
    return (found,) if found else ()


def of_log(text: str) -> tuple[Finding, ...]:
    name = "/device:GPU:0 "
    gpus = [CudaDevice(i, None, f"0000:{bus}:00.0", None) for i, bus in enumerate((2, 3, 82, 83))]
    return tuple(explain(read_tf_log(name + text), gpus))


def of_environment(text: str) -> tuple[Finding, ...]:
    if text.startswith("CUDA_DEVICE_ORDER="):
        return advise(resolve("0", h100(4), order=text.partition("=")[2]))
    if text.startswith("CUDA_VISIBLE_DEVICES unset"):
        here = Machine(tuple(h100(4)))
        return process_mapping(CudaContext(), here, here.devices[2:3]).advice
    if "NUL" in text:
        return environ_advice(parse_environ(bytes(100)))
    if text.startswith("MPS"):
        here = Machine(tuple(h100(4)), mps_servers=(Environ({N: "0,2"}),))
        return process_mapping(CudaContext(Environ({N: "0,2"})), here, (), mps=True).advice
    return of_shell(text)


KINDS: dict[str, Callable[[str], tuple[Finding, ...]]] = {
    "name": of_name,
    "shell": of_shell,
    "value": of_value,
    "env": of_environment,
    "request": of_request,
    "log": of_log,
}


OTHER_WORDS = {
    "0,,1": "Empty entry after 0: CUDA stops there, only GPU 0 is visible.",
    "cuda:2 under CUDA_VISIBLE_DEVICES=1,2": ("2 GPUs are visible, named cuda:0 (GPU 1) and cuda:1"
     " (GPU 2). cuda:2 does not exist: 'CUDA error: invalid device ordinal'. For physical GPU 2 use"
     " cuda:1."),
}  # fmt: skip
"""Where gputop's message is on purpose not the suggested card, word for word."""


@pytest.mark.parametrize("lint", LINTS, ids=[lint["input"] for lint in LINTS])
def test_published_mistake(lint: dict[str, Any]) -> None:
    found = {advice.code: advice for advice in KINDS[lint["kind"]](lint["input"])}
    advice = found[lint["id"]]
    assert advice.level == lint["severity"]
    assert advice.text == OTHER_WORDS.get(lint["input"], lint["message"])


def test_the_published_mistakes_are_those_of_the_file() -> None:
    assert len(LINTS) == 27


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("0,1", []),
        ("GPU-9e8d35e3", []),
        ("GPU-47", []),
        ("GPU-1", ["value-gpu-dash-index"]),
        ("-1", []),
        ("0,1,-1", []),
        (" 1, 0 ", []),
        ("", ["value-hides-all"]),
        ("[0,1]", ["value-brackets"]),
        ("0;1", ["value-semicolon"]),
        ("0 1", ["value-spaces"]),
        ("0:1", ["value-range"]),
        ("1gpu2", ["value-junk"]),
        ("1\u00a0", ["value-junk"]),  # a blank, but not one of C's
        ("all", ["value-word"]),
        ("0,one", ["value-word"]),
        ("1,5,9", ["value-out-of-range"]),
        ("0,0", ["value-duplicate"]),
        ("0,9,0", ["value-out-of-range"]),
        ("GPU-e", ["value-ambiguous-uuid"]),
        ("0aa11ebd-627f-af3f", ["value-uuid-without-prefix"]),
        ("2,GPU-9e8d35e3", ["value-mixed-kinds"]),
        ("08", ["value-out-of-range"]),
        ("gpu-9e8d35e3", ["value-word"]),
    ],
)
def test_a_value(value: str, ids: list[str]) -> None:
    found = of_value(value)
    assert [advice.code for advice in found] == ids
    assert all(advice.text.isprintable() and advice.text for advice in found)


def test_messages_say_what_remains() -> None:
    (out,) = of_value("1,9")
    assert out.text == "There is no GPU 9 here: only GPU 1 is visible."
    (hides,) = of_value("-1,0,1")
    assert hides.text == "-1 ends the list: 0, 1 are not visible."
    assert advise(resolve(None, h100(2))) == ()


@pytest.mark.parametrize("name", [EIGHT[0].uuid, "GPU-9942", "MIG-c1"])
def test_an_entry_that_stands_twice_is_not_two_prefixes(name: str) -> None:
    (hint,) = of_value(f"{name},{name}")
    assert hint.code == "value-duplicate"
    assert hint.text.startswith(f"{name} is named twice: CUDA rejects the whole list")


def test_the_order_where_it_decides() -> None:
    (unset,) = advise(resolve("0", mixed()))
    assert (unset.code, unset.level) == ("order-unset", "warning")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in unset.text
    assert advise(resolve("GPU-194", mixed())) == ()
    assert advise(resolve("0", mixed(), order="PCI_BUS_ID")) == ()


def test_mig_limits() -> None:
    two = "MIG-0-3-0,MIG-0-4-0"
    assert [a.code for a in advise(resolve(two, TWO, driver_version="565.1"))] == [
        "mig-single-instance"
    ]
    assert advise(resolve(two, TWO, driver_version="580.1")) == ()
    (unknown,) = advise(resolve("0", TWO, driver_version="580.1"))
    assert (unknown.code, unknown.level) == ("mig-unknown", "info")


def test_the_chosen_gpus_and_their_users() -> None:
    usage = {
        0: DeviceUse(100, 2, ("bob", "eve")),
        1: DeviceUse(100, 60, ("bob",)),
        2: DeviceUse(100, 1),
    }
    found = advise(resolve("2,1,0", h100(4)), usage)
    assert [(advice.code, advice.text) for advice in found] == [
        ("gpu-full", "GPU 2 (cuda:0) is full."),
        ("gpu-in-use", "GPU 1 (cuda:1) is used by bob."),
        ("gpu-full", "GPU 0 (cuda:2) is full: used by bob eve."),
    ]
    assert advise(resolve("3", h100(4)), usage) == ()


def test_tensorflow_skips_small_gpus() -> None:
    gpus = [msgspec.structs.replace(d, sms=sms) for d, sms in zip(h100(2), (5, 80), strict=True)]
    assert [advice.code for advice in advise(resolve("0,1", gpus))] == ["tf-skips-gpu"]
    assert advise(resolve("0", gpus)) == ()


@pytest.mark.parametrize(
    "name",
    [
        *("cuda:2", "CudaDevice(id=2)", "cupy.cuda.Device(2)", "cuda.gpus[2]", "device_id=2"),
        *("CUDA2", "torch.cuda.set_device(2)", 'torch.device("cuda", 2)', "get_device_name(2)"),
    ],
)
def test_a_name_that_does_not_exist(name: str) -> None:
    found = request_advice(name, resolve("1,2", h100(4)))
    assert found is not None
    assert found.text == (
        "2 GPUs are visible, named cuda:0 (GPU 1) and cuda:1 (GPU 2). cuda:2 does not exist:"
        " 'CUDA error: invalid device ordinal'. For physical GPU 2 use cuda:1."
    )


@pytest.mark.parametrize(
    "line",
    [
        *("uv run --with jax[cuda12] t.py", "conda run -n cuda12 t.py", "/opt/cuda12/bin/nvcc"),
        *("python t.py --gpu_num 2", "srun --gres gpu:4 t.py", "x:server-cuda13"),
        *("torchrun --nnodes 2 --nproc_per_node 4", "accelerate launch --num_machines 2"
          " --num_processes 4", "vllm --data-parallel-size 4 --data-parallel-size-local 2"),
    ],
)  # fmt: skip
def test_words_that_ask_for_no_gpu_that_is_not_there(line: str) -> None:
    assert requests_advice(line.split(), resolve("0,1", h100(4))) == ()


def test_words_that_ask_for_too_much() -> None:
    mapping = resolve("0,1", h100(4))
    for line, code in (
        ("python t.py --gpu_num 3", "request-too-many"), ("torchrun --nproc_per_node=4 t.py",
         "request-too-many"), ("llama-server --device CUDA2", "request-out-of-visible"),
    ):  # fmt: skip
        assert [advice.code for advice in requests_advice(line.split(), mapping)] == [code]


def test_blanks_beside_uuids_and_indices_behind_an_end() -> None:
    cards = h100(4)
    (blank,) = advise(resolve(f"{cards[0].uuid}, {cards[1].uuid}", cards))
    assert blank.code == "value-spaces"
    assert blank.text.startswith("Blanks are part of a UUID entry")
    (hides,) = (advice for advice in advise(resolve("0,1,-1,0,3", cards))
                if advice.code == "value-hides-rest")  # fmt: skip
    assert hides.text == "-1 ends the list: 3 is not visible."


@pytest.mark.parametrize("k", [2, 3, 12])
@pytest.mark.parametrize("name", ["/gpu:{k}", "/device:GPU:{k}", 'with tf.device("/GPU:{k}"):'])
def test_a_name_of_tensorflows_that_does_not_exist(name: str, k: int) -> None:
    found = request_advice(name.replace("{k}", str(k)), resolve("1,2", h100(4)))
    assert found is not None
    assert f"/device:GPU:{k} does not exist: 'unknown device'" in found.text
    assert found.text.endswith("For physical GPU 2 use /device:GPU:1.") == (k == 2)


def test_names_are_answered_where_only_their_number_is_known() -> None:
    (card,) = h100(1)
    found = request_advice("cuda:0", resolve("", [card]))
    assert found is not None
    assert found.text.startswith("No GPU is visible. cuda:0 does not exist")
    assert request_advice("cuda:1", resolve("1,0", mixed())) is None
    assert request_advice("cuda:2", resolve("1,0", mixed())) is not None


@pytest.mark.parametrize("name", ["cuda:1", "cuda", "cpu", "", "/gpu:0", "GPU-2f", "RTX 2080"])
def test_a_name_that_exists(name: str) -> None:
    assert request_advice(name, resolve("1,2", h100(4))) is None


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_name_that_gputop_prints_can_be_asked_for(framework: Framework) -> None:
    assert [requested(device_name(framework.id, k)) for k in (0, 7, 15)] == [0, 7, 15]


N = "CUDA_VISIBLE_DEVICES"
CONTAINER_ID = "nvidia-visible-outside-container"
SHELL: list[tuple[str, str | None, str, list[str]]] = [
    (f"{N}=1,0 python train.py", "1,0", "python train.py", []),
    (f'{N}="0,1" python t.py', "0,1", "python t.py", []),
    (f"export {N}=2", "2", "", []),
    (f"export {N}=2; python t.py", "2", "python t.py", []),
    (f"export {N}=2\npython t.py", "2", "python t.py", []),
    (f"env {N}=2 python t.py", "2", "python t.py", []),
    (f"sudo {N}=2 python t.py", "2", "python t.py", []),
    (f"{N}=2 sudo -E python t.py", "2", "python t.py", []),
    (f"{N}=1; python t.py", None, "python t.py", ["shell-not-exported"]),
    (f"{N}=1 && python t.py", None, "python t.py", ["shell-not-exported"]),
    (f"{N}=1 sudo python t.py", None, "python t.py", ["shell-sudo"]),
    (f"{N}=1", "1", "", []),
    (f'{N}=""', "", "", []),
    (f"me@node:~$ {N}=0 python t.py # don't", "0", "python t.py", []),
    (f"$ export {N}=2\n$ python t.py", "2", "python t.py", []),
    (f"{N}=1 python t#1.py", "1", "python t#1.py", []),
    ("CUDA_VISIBLE_DIVICES=1 python t.py", None, "python t.py", ["name-typo"]),
    (f"os.environ['{N}'] = '1'", "1", "", []),
    ('os.environ["CUDA_VISIBLE_DIVICES"]="2,3,4"', None, "", ["name-typo"]),
    (f"~/ {N}=0  python t.py # GPU 0; one", "0", "python t.py", []),
]
# Lines that start no program, or of which it is not known what the program gets.
MISTAKES: list[tuple[str, str, list[str]]] = [
    (f"{N}= 1 python t.py", "command called 1", ["shell-space-after-equals"]),
    (f"{N} = 1 python t.py", f"command called {N}", ["shell-space-before-equals"]),
    (f"{N} =1 python t.py", f"command called {N}", ["shell-space-before-equals"]),
    (f"{N}=0, 1 python t.py", "command called 1", ["shell-space-in-list"]),
    (f"{N}=0;1 python t.py", "command called 1", ["shell-semicolon"]),
    (f"{N}=$0 python t.py", "$0 is known only when it runs", ["shell-dollar"]),
    (f"{N}=$1 python t.py", "$1 is known only when it runs", []),
    (f'{N}="0,1 python t.py', '"0,1 cannot be followed to its end', []),
    (f"set {N}=1; python t.py", f"what set does with {N}=1", ["shell-set"]),
    (f"set {N}='1'; python t.py", f"what set does with {N}=", ["shell-set"]),
    ("CUDA_VISIBLE-DEVICES=1 python t.py", "command called CUDA", ["name-typo"]),
    ("NVIDIA_VISIBLE_DEVICES=1 python t.py", f"it does not name {N}", [CONTAINER_ID]),
    ("NVIDIA_VISIBLE_DEVICES=1 docker run x", f"it does not name {N}", [CONTAINER_ID]),
]


@pytest.mark.parametrize(("text", "value", "rest", "ids"), SHELL, ids=[case[0] for case in SHELL])
def test_a_pasted_line(text: str, value: str | None, rest: str, ids: list[str]) -> None:
    line = read_pasted(text)
    assert line is not None
    assert (line.value, " ".join(line.rest), line.unknown) == (value, rest, None)
    assert [advice.code for advice in line.advice] == ids


@pytest.mark.parametrize(("text", "why", "ids"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_nothing_is_claimed_of_a_line_that_starts_no_program(
    text: str, why: str, ids: list[str]
) -> None:
    line = read_pasted(text)
    assert line is not None
    assert (line.value, why in (line.unknown or "")) == (None, True)
    assert [advice.code for advice in line.advice] == ids


@pytest.mark.parametrize("text", [f"{N} = 1,2 python t.py", f"{N} =1,2 x", f'{N} = "1,2"'])
def test_a_line_with_spaces_is_answered_with_the_right_one(text: str) -> None:
    line = read_pasted(text)
    assert line is not None
    assert line.advice[0].text.endswith(f"masks nothing. Write {N}=1,2.")


def test_a_pasted_line_with_an_order() -> None:
    line = read_pasted(f"CUDA_DEVICE_ORDER=PCI_BUS_ID {N}=1 python t.py")
    assert line is not None
    assert (line.order, line.value) == ("PCI_BUS_ID", "1")


@pytest.mark.parametrize("text", ["", "0,1", "GPU-123", "none", "a=b", "0 1", "one,two"])
def test_a_value_is_no_line(text: str) -> None:
    assert read_pasted(text) is None


def test_processes() -> None:
    assert environ_advice(Environ({"PATH": "/bin"})) == ()
    assert environ_advice(Environ({"NVIDIA_VISIBLE_DEVICES": "1"}), in_container=True) == ()
    both = Environ({"NVIDIA_VISIBLE_DEVICES": "1", N: "1"})
    assert environ_advice(both) == ()
    inside = h100(4)[2:]
    (index,) = container_advice(resolve("2", inside), h100(4), inside, "the container")
    assert index.code == "container-index"
    assert not [*container_advice(resolve("7", inside), h100(4), inside, "the container")]


PIECES = [N, "=", " ", ";", "0", ",", "'", "sudo ", "set ", "GPU-", "-", "$0"]
ANY = st.text() | st.lists(st.sampled_from(PIECES)).map("".join)


@given(ANY, st.sampled_from([h100(4), mixed(), TWO, []]))
def test_any_text_is_judged(text: str, devices: list[CudaDevice]) -> None:
    mapping: Mapping = resolve(text, devices)
    found = [*advise(mapping), *of_shell(text)]
    request_advice(text, mapping)
    assert all(advice.text.isprintable() for advice in found)


@pytest.mark.parametrize("value", ["'$(touch x)'", '"0;rm x"', "[`id`]", "$'0\\t\\' ;touch X #"])
def test_what_is_left_of_a_hostile_value_is_not_advised(value: str) -> None:
    said = [hint.text for hint in of_value(value) if "Write" in hint.text]
    assert said
    assert all("Write the GPUs as 0,1" in message for message in said)
