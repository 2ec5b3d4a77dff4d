"""The filter language."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.errors import UsageError
from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame
from gputop.model.machine.origin import Container, Origin
from gputop.model.metrics.process import ProcessRow
from gputop.model.processes import process_rows
from gputop.model.processes.filter import FilterError, absent_gpus, idle, names_host
from tests.builders import GIB, frame, gpu, matching, process

SEEN = CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "GPU-1"}))
BUSY: dict[str, Any] = {"sm_utilization": 0.9, "cpu": 1.5, "rss": 3 * GIB, "gpu_memory": 20 * GIB}
MACHINE = frame(
    [gpu(0, utilization=0.5), gpu(1, utilization=0.5)],
    [
        process(11, user="alice", command="python train.py --lr 1", start_time=1990.0, **BUSY),
        process(12, on=1, user="bob", command="python -m serve", sm_utilization=0.0, cpu=0.0,
                rss=GIB, gpu_memory=10 * GIB, start_time=2000.0 - 7200, cuda_context=SEEN),
        process(13, on=1, gpu_instance=3, user="alicea", command='say "or"', start_time=1000.0,
                sm_utilization=0.049, gpu_memory=0),
        process(14, on=None, user=None, command=None, start_time=None),
    ],
)  # fmt: skip


def rows(of: Frame = MACHINE) -> list[ProcessRow]:
    return process_rows.rows(of, LogicalNames(of))


def pids(text: str) -> list[int]:
    return sorted(row.process.pid for row in matching(rows(), text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user:alice", [11]),
        ("USER:Alice", [11]),
        ("user:ali", []),
        ("ali", [11, 13]),
        ("pid:1", []),
        ("pid:12", [12]),
        ("gpu:1", [12, 13]),
        ("gpu:01", [12, 13]),
        ("gpu:1:3", [13]),
        ("gpu:GPU-1", [12, 13]),
        ("gpu:gpu", [11, 12, 13]),
        ("gpu:GPU-7", []),
        ("gpu:0,1", [11, 12, 13]),
        ("gpu0,GPU-1", []),
        ("gpu:1,7", [12, 13]),
        ("gpu:1-3", [12, 13]),
        ("gpu:1-0", [11, 12, 13]),
        ("gpu0-1 !gpu:1", [11]),
        ("mem > 10G", [11]),
        ("mem >=10GiB alice", [11]),
        ("!mem > 10G", [12, 13]),
        ('"user=alice"', []),
        ('"alice|bob"', []),
        ("localhost:80", []),
        ("cuda:0", [12]),
        ("cuda:1", []),
        ("mem>10G", [11]),
        ("mem>=10GiB", [11, 12]),
        ("MEM>10240M", [11]),
        ("mem<.5gb", [13]),
        ("mem<=0", [13]),
        ("rss>2g", [11]),
        ("sm<5", [12, 13]),
        ("sm<=4.9%", [12, 13]),
        ("cpu>100", [11]),
        ("cpu>=0", [11, 12]),
        ("age>1h", [12]),
        ("age>=120m", [12]),
        ("age<10s", []),
        ("age<=10s", [11]),
        ("age>1d", []),
        ("idle", [12]),
        ("!idle", [11, 13]),
        ('"idle"', []),
        ("!user:alice", [12, 13]),
        ("!train", [12, 13]),
        ("!gpu:1", [11]),
        ("!mem>10G", [12, 13]),
        ("!rss>2G", [12]),
        ("!pid:14", [11, 12, 13]),
        ("alice !user:alice", [13]),
        ("user:alice or user:bob", [11, 12]),
        ("user:alice mem>1T or python mem<=10G", [12]),
        ("user:bob OR idle or train.py", [11, 12]),
        ('"train.py --lr"', [11]),
        ('"--lr train.py"', []),
        ("--lr train.py", [11]),
        ('user:"bob"', [12]),
        ('!"train.py --lr"', [12, 13]),
        ('"or"', [13]),
        ("!or", [11, 12]),
        ("serve:8000", []),
        ("", [11, 12, 13, 14]),
        ("14", [14]),
    ],
)
def test_what_fits(text: str, expected: list[int]) -> None:
    assert pids(text) == expected


def test_no_percentage_is_below_itself() -> None:
    """In floats 57 * 0.01 is more than 57 / 100."""
    for n in range(101):
        busy = replace(MACHINE.processes[0], sm_utilization=n / 100)
        of = rows(replace(MACHINE, processes=(busy,)))
        assert matching(of, f"sm<{n}") == []
        assert len(matching(of, f"sm>={n}")) == 1


@pytest.mark.parametrize("text", ["user:bob", "gpu:0", "cuda:0", "mem>1G", "sm<5", "age>0", "idle"])
def test_what_is_unknown_fits_neither_way(text: str) -> None:
    assert 14 not in pids(text)
    assert 14 not in pids(f"!{text}")


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("mem>10", 4, "a unit is missing: K M G T"),
        ("alice mem>10X", 10, "a unit is missing: K M G T"),
        ("mem>", 4, "a number is missing, with a unit of K M G T"),
        ("age>x", 4, "a number is missing, with a unit of s m h d"),
        ("age>1w", 4, "a unit is missing: s m h d"),
        ("alice foo<3", 6, "compare one of mem, rss, age, idle, sm, cpu, or quote it"),
        ("or alice", 0, "nothing before this 'or'"),
        ("alice or", 6, "nothing after this 'or'"),
        ("a or or b", 5, "nothing before this 'or'"),
        ('alice "bob', 6, "this quote is not closed"),
        ('user:"a"b', 5, "this quote is not closed"),
        ("alice !", 6, "a word is missing after !"),
        ("user:", 0, "a word is missing after user:"),
        ("user=alice", 0, "write user:alice, or quote it"),
        ("a gpu=1", 2, "write gpu:1, or quote it"),
        ("mem=10G", 0, "compare: mem>10g or mem<10g, or quote it"),
        ("usr:alice", 0, "there is no usr: but user:alice, or quote it"),
        ("user:alice,bob", 0, "one at a time: user:alice or user:bob"),
        ("alice|bob", 0, "for either write alice or bob, or quote it"),
        ("not alice", 0, "write !alice in place of not alice, or quote it"),
        ("a and b", 2, "words next to each other must all match: leave it out, or quote it"),
        ("mem >", 4, "a comparison is mem>10G, or quote it"),
        ("gpu:0,", 0, "a GPU is missing beside a comma"),
        ('""', 0, 'a word is missing after ""'),
    ],
)
def test_a_bad_filter_says_where_and_what(text: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        matching((), text)
    assert (caught.value.position, caught.value.reason) == (position, reason)
    assert isinstance(caught.value, UsageError)
    assert f"column {position + 1}: {reason}" in str(caught.value)


PARTS = st.sampled_from(
    ["user:", "gpu:", "pid:", "cuda:", "mem", "sm", "age", ">", "<=", "<", "10", "G", "h", "!", '"',
     " ", ",", "-", "|", "=", "not", "or", " or ", "idle", "alice", "ß",
     "1" * 5000, "\x1b", "\u3000", "İ"]
)  # fmt: skip


def test_containers_and_how_long_idle() -> None:
    boxed = Origin(container=Container(id="abc123", runtime="docker", name="llama", image="vllm:1"))
    here = frame(
        processes=[
            process(1, origin=boxed, idle_for=700.0, sm_utilization=None),
            process(2, origin=Origin(), idle_for=0.0, sm_utilization=0.5),
            process(3, idle_for=None, sm_utilization=0.5),
        ]
    )
    for text, expected in {
        "llama": [1],
        "container:llama": [1],
        "container:VLLM": [1],
        "container:abc": [1],
        "!container:abc": [2],
        "!llama": [2, 3],
        "idle>10m": [1],
        "idle": [1],
        "!idle": [2, 3],
        "!idle>10m": [2],
    }.items():
        assert [row.process.pid for row in matching(rows(here), text)] == expected, text


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True), ("ODE3", True), ("node4", False), ("!node4", True), ("host:node3", True),
        ("host:node3.lab", True), ("host:node", False), ("!host:node3", False), ('"node 3"', False),
        ("node3 lab", True), ("node3 alice", False), ("alice or node3", True),
        ("user:node3", False), ("gpu:3", False), ("mem>1G", False), ("idle", False),
        ("!mem>1G", False),
    ],
)  # fmt: skip
def test_a_host_fits_by_its_name_alone(text: str, fits: bool) -> None:
    assert names_host(text)("bob@node3.lab:22") is fits


def test_a_gpu_that_there_is_not() -> None:
    for text, absent in {
        "gpu:99": "99", "alice or gpu:1 gpu7": "7", "gpu:5-9": "5-9",
        "gpu:1,9": None, "!gpu:99": None, "gpu:0:7": None, "alice": None,
    }.items():  # fmt: skip
        assert absent_gpus(text, MACHINE.gpus) == absent, text


@given(st.one_of(st.text(), st.lists(PARTS, max_size=8).map("".join)))
def test_any_text_gives_rows_or_an_error_with_its_place(text: str) -> None:
    every, errors = rows(), []
    try:
        found = matching(every, text)
    except FilterError as error:
        errors.append(error)
        found = []
    assert all(row in every for row in found)
    assert all(0 <= error.position <= len(text) for error in errors)
    assert all(str(error).isprintable() for error in errors)


@pytest.mark.parametrize(
    ("sm", "gpu_values", "expected"),
    [
        (0.0, {"utilization": 0.9}, True),
        (0.1, {"utilization": 0.0}, False),
        (None, {"utilization": 0.0}, True),
        (None, {"utilization": 0.1}, None),
        (None, {"utilization": None}, None),
        (None, {"utilization": 0.0, "stale_for": 9.0}, None),
    ],
)
def test_idle(sm: float | None, gpu_values: dict[str, Any], expected: bool | None) -> None:
    [row] = rows(frame([gpu(0, **gpu_values)], [process(1, sm_utilization=sm)]))
    assert idle(row) is expected
