"""The raw bytes of /proc/PID/environ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model.machine.environment import NAME, Environ, is_misspelt, parse_environ
from tests.model.test_visibility_vectors import Vector, named, vectors

STATES = {"clobbered": "overwritten"}


def known(environ: Environ) -> tuple[str, str | None]:
    """What is known of the variable: its state, and its value."""
    value = environ.variables.get(NAME)
    state = environ.missing if value is None else "value" if value else "empty"
    return state, value


@named(vectors("environ"))
def test_published_case(vector: Vector) -> None:
    status = vector["status"]
    found = known(parse_environ(vector["environ"].encode()))
    assert found == (STATES.get(status, status), vector["value"])


@pytest.mark.parametrize(
    ("block", "state", "value"),
    [
        (b"CUDA_VISIBLE_DEVICES=\0A=1\0", "empty", ""),
        (b"CUDA_VISIBLE_DEVICES=\xff\0", "value", "\udcff"),
        (b"A=1\0CUDA_VISIBLE_DEVICES=a=b\0", "value", "a=b"),
        (b"A=CUDA_VISIBLE_DEVICES=1\0", "unset", None),
        (b"\0\0\0\0", "overwritten", None),
        (b"\0CUDA_VISIBLE_DEVICES=1\0", "overwritten", None),
        (b"lr=3e-4 --devices\0\0\0\0\0\0", "overwritten", None),
    ],
)
def test_states(block: bytes, state: str, value: str | None) -> None:
    assert known(parse_environ(block)) == (state, value)


@pytest.mark.system
@pytest.mark.parametrize("value", [None, "", "1,0", "2\n3"])
def test_a_real_process(value: str | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k != NAME}
    if value is not None:
        environment[NAME] = value
    sleeper = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        sleeper, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        block = Path(f"/proc/{process.pid}/environ").read_bytes()
        process.communicate(b"\n")
    assert parse_environ(block).variables.get(NAME) == value


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_VISIBLE_DIVICES",
        "CUDA_VISIBILE_DEVICES",
        "CUDA_VISABLE_DEVICES",
        "CUDA_VISIBLE_DEIVCES",
        "CUDA_VISIBLE-DEVICES",
        "CUDA_VISIBLE",
        "CUDA_VISIBLE_DEVICE",
        "CUDA_VISBLE_DEVICES",
        "cuda_visible_devices",
        "CUDA_VISIBLES_DEVICES",
        "CUDAVISIBLEDEVICES",
    ],
)
def test_misspelt_names_seen_in_the_wild(name: str) -> None:
    assert is_misspelt(name)
    assert parse_environ(f"PATH=/bin\0{name}=2\0".encode()).misspelt == (name,)


@pytest.mark.parametrize(
    "name",
    [
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "CUDA_HOME"),
        *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "PATH", ""),
        *("MUSA_VISIBLE_DEVICES", "JAX_CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES_SAVED"),
    ],
)
def test_other_names_are_left_alone(name: str) -> None:
    assert not is_misspelt(name)


@given(
    st.binary(max_size=80)
    | st.lists(st.sampled_from([NAME.encode(), b"=", b"\0", b"1"])).map(b"".join)
)
def test_any_bytes_have_an_answer(block: bytes) -> None:
    found = parse_environ(block)
    assert (NAME in found.variables) <= (found.missing == "unset")
