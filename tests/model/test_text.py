"""Values as text, and text of others made harmless."""

from __future__ import annotations

import random
import sys
import time
import unicodedata

import pytest

from gputop.export.table import aligned
from gputop.model.machine.text import (
    MISSING,
    cells,
    clock,
    clock_time,
    counted,
    date_time,
    duration,
    percent,
    printable,
    rate,
    short_command,
    short_name,
    size,
    three_digits,
)

K, M, G, T, P = (1024**n for n in range(1, 6))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (K, "1K"),
        (999 * K, "999K"),
        (1000 * K, "0.98M"),
        (M, "1.00M"),
        (int(9.99 * M), "9.99M"),
        (10 * M, "10M"),
        (999 * M, "999M"),
        (1000 * M, "0.98G"),
        (G, "1.00G"),
        (int(38.2 * G), "38.2G"),
        (140 * G, "140G"),
        (999 * G, "999G"),
        (1000 * G, "0.98T"),
        (2 * T, "2.00T"),
        (3 * P, "3.00P"),
        (2**63, "8192P"),
    ],
)
def test_size(count: int | None, text: str) -> None:
    assert size(count) == text


def test_the_size_of_a_mean_is_whole() -> None:
    """A point of a graph stands for several readings."""
    assert (size(0.0), size(511.6)) == ("0", "512")


def test_cells_of_a_terminal() -> None:
    assert list(map(cells, ("zoe", "zo\u00eb", "zoe\u0308", "\u674e\u660e"))) == [3, 3, 3, 4]


def test_columns_of_wide_names_are_straight() -> None:
    rows = [["\u674e\u660e", "1"], ["zoe\u0308", "12"], ["alice", "3"]]
    lines = aligned(("USER<", "N"), rows).splitlines()
    assert {cells(line) for line in lines} == {9}


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(0, "0 B/s"), (999.4, "999 B/s"), (1e3, "1.00 kB/s"), (4.15e6, "4.15 MB/s"),
     (999.6e6, "1.00 GB/s"), (419.3e9, "419 GB/s"), (1.8e12, "1.80 TB/s")],
)  # fmt: skip
def test_rate(per_second: float, text: str) -> None:
    assert rate(per_second) == text


def test_size_is_never_wider_than_five_cells() -> None:
    """Up to a pebibyte; it is right as far as it goes, and never falls as bytes grow."""
    units = {"": 1, "K": K, "M": M, "G": G, "T": T}
    last = 0.0
    for step in range(2000):
        count = int(1.0175**step)
        if count >= 999 * T:
            break
        text = size(count)
        assert len(text) <= 5, count
        shown = float(text.rstrip("KMGT")) * units[text.lstrip("0123456789.")]
        assert abs(shown - count) <= max(K / 2, 0.05 * count)
        assert shown >= last
        last = shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (0.614, "0.61"),
        (9.81, "9.81"),
        (9.994, "9.99"),
        (9.995, "10.0"),
        (38.24, "38.2"),
        (99.94, "99.9"),
        (99.95, "100"),
        (140.4, "140"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, "-"), (0.0, "0"), (0.974, "97"), (1.0, "100"), (2.6, "260")]
)
def test_percent(ratio: float | None, text: str) -> None:
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-5, "0s"),
        (0, "0s"),
        (0.9, "0s"),
        (59.99, "59s"),
        (60, "1m00s"),
        (187, "3m07s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (8040, "2h14m"),
        (86399, "23h59m"),
        (86400, "1d00h"),
        (5 * 86400 + 3 * 3600, "5d03h"),
        (99 * 86400 + 86399, "99d23h"),
        (100 * 86400, "100d"),
        (412 * 86400, "412d"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
    assert len(text) <= 6


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (None, "-"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GeForce RTX 4080 SUPER", "RTX 4080 SUPER"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("Quadro RTX 6000", "RTX 6000"),
        ("A100-SXM4-40GB", "A100-SXM4-40GB"),
    ],
)
def test_short_name(name: str | None, text: str) -> None:
    assert short_name(name) == text


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (None, MISSING),
        ("", MISSING),
        ("python train.py", "train.py"),
        ("python train.py --lr 3e-4", "train.py --lr 3e-4"),
        ("/usr/bin/python3 -u train.py --lr 1", "train.py --lr 1"),
        ("/home/bob/.venv/bin/python3.11 /home/bob/jobs/train.py", "train.py"),
        ("python3.11 -W ignore -X dev train.py x", "train.py x"),
        ("python -Wignore train.py", "train.py"),
        ("python -u -m pkg --flag", "pkg --flag"),
        ("python -m torch.distributed.run sweep.py", "torch.distributed.run sweep.py"),
        ("/opt/conda/envs/my-env/bin/python -m ipykernel_launcher -f k", "ipykernel_launcher -f k"),
        ("python -c import time", "python -c import time"),
        ("/usr/bin/python3 -uc x", "python3 -uc x"),
        ("python -", "python -"),
        ("python", "python"),
        ("python -u", "python -u"),
        ("python -m", "python -m"),
        ("bash run.sh 1", "run.sh 1"),
        ("/bin/bash -x ./scripts/run.sh", "run.sh"),
        ("bash -c sleep 5", "bash -c sleep 5"),
        ("bash -ec sleep", "bash -ec sleep"),
        ("sh -lc x", "sh -lc x"),
        ("node server.js", "server.js"),
        ("perl -e print", "perl -e print"),
        ("Rscript model.R", "model.R"),
        ("julia -t 8 main.jl", "main.jl"),
        ("bash -e run.sh", "run.sh"),
        ("perl -ne print x", "perl -ne print x"),
        ("node -r 1 server.js", "server.js"),
        (
            "/opt/conda/bin/torchrun --nproc_per_node 8 train.py",
            "torchrun --nproc_per_node 8 train.py",
        ),
        ("/usr/lib/xorg/Xorg :0 -auth /run/x", "Xorg :0 -auth /run/x"),
        ("./nbody -benchmark", "nbody -benchmark"),
        ("VLLM::EngineCore", "VLLM::EngineCore"),
        ("ray::train", "ray::train"),
        ("[kworker/0:1]", "[kworker/0:1]"),
        ("[/]", "[/]"),
        ("[/red][bold]", "[/red][bold]"),
        ("/", "/"),
        ("//", "//"),
        ("/usr/bin/", "/usr/bin/"),
        ("pythonista script.py", "pythonista script.py"),
        ("env FOO=1 python train.py", "env FOO=1 python train.py"),
        ("训练/python", "python"),
    ],
)
def test_short_command(command: str | None, text: str) -> None:
    assert short_command(command) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ("\x1b[2J\x07\x9b31m\x7f", "\ufffd[2J\ufffd\ufffd31m\ufffd"),
        ("a\nb\rc\td\x00", "a\ufffdb\ufffdc\ufffdd\ufffd"),
        ("\u202egpj.exe\u202c\u2066x\u2069\u200f", "\ufffdgpj.exe\ufffd\ufffdx\ufffd\ufffd"),
        ("\u200b\u200d\ufeff\u2028\u2029", "\ufffd" * 5),
        ("\ud800x\udfff", "\ufffdx\ufffd"),
        ("\ue000\U000f0000", "\ufffd\ufffd"),
        ("a\u00a0b\u3000c\u2003d", "a b c d"),
        ("♥\ufe0f\ufe0e", "♥"),
        ("訓練 é e\u0301 😀", "訓練 é e\u0301 😀"),
        ("[red]x[/]", "[red]x[/]"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_printable_is_one_short_harmless_line() -> None:
    everything = [chr(code) for code in range(0x30000)] + [chr(sys.maxunicode)]
    random.Random(7).shuffle(everything)
    for start in range(0, len(everything), 4096):
        shown = printable("".join(everything[start : start + 4096]))
        assert len(shown) <= 4096
        assert "\n" not in shown
        assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
        shown.encode("utf-8")


def test_printable_says_that_it_cropped() -> None:
    assert printable("x" * 10, 10) == "x" * 10
    assert printable("x" * 11, 10) == "x" * 9 + "…"
    assert len(printable("\u00a0" * 10_000_000)) == 4096


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "GPU", "1 GPU"),
        (0, "GPU", "0 GPUs"),
        (1, "process", "1 process"),
        (208, "process", "208 processes"),
        (2, "uncorrected memory error", "2 uncorrected memory errors"),
    ],
)
def test_a_noun_follows_its_number(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words


def test_a_time_of_the_same_day_needs_no_date() -> None:
    noon = time.mktime((2026, 11, 21, 12, 0, 5, 0, 0, -1))
    assert date_time(noon) == "2026-11-21 12:00:05"
    assert date_time(noon, noon + 3600) == clock(noon) == "12:00:05"
    assert date_time(noon, noon + 86400) == "2026-11-21 12:00:05"
    assert clock_time(noon, noon + 3600) == "12:00"
    assert clock_time(noon, noon - 86400) == "2026-11-21 12:00"
