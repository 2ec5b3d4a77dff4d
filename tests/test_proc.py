"""The parsers of /proc/PID/status and stat, with names that pretend to be something else."""

from __future__ import annotations

import os

import pytest

from gputop.model.machine.proc_stat import ProcStat, parse_stat
from gputop.proc import proc_field

STATUS = (
    b"Name:\t%b\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t77\nPid:\t77\nPPid:\t1\n"
    b"TracerPid:\t0\nUid:\t4242\t0\t0\t0\nGroups:\t \nNSpid:\t77\t3\nSigIgn:\t0000000000001000\n"
)


@pytest.mark.parametrize(
    "name", [b"train", b"\rUid:\t0", b"Uid:\t0\t0\t0", b"\\nUid:\t0", b"", b"\x85Uid:\t0"]
)
def test_no_name_of_a_process_passes_for_another_line(name: bytes) -> None:
    """The kernel escapes newlines in it, and nothing else that might end a line."""
    status = STATUS % name
    assert proc_field(status, b"Uid") == [b"4242", b"0", b"0", b"0"]
    assert proc_field(status, b"Pid") == [b"77"]  # not PPid
    assert proc_field(status, b"NSpid") == [b"77", b"3"]
    assert proc_field(status, b"SigIgn") == [b"0000000000001000"]
    assert proc_field(status, b"Groups") == proc_field(status, b"CapEff") == []
    assert proc_field(b"", b"Uid") == []


def test_the_kernel_writes_such_lines() -> None:
    with open("/proc/self/status", "rb") as file:
        status = file.read()
    assert proc_field(status, b"Pid") == [b"%d" % os.getpid()]
    assert proc_field(status, b"PPid") == [b"%d" % os.getppid()]
    uids = (os.getuid(), os.geteuid())
    assert [int(word) for word in proc_field(status, b"Uid")[:2]] == list(uids)


NUMBERS = (
    b"7 70 71 34816 -1 4194304 120 0 0 0 250 30 0 0 20 0 16 0 123456 9000000 2048 "
    b"18446744073709551615 1 1 0 0 0 0 0 4096 65536 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


@pytest.mark.parametrize("name", [b"train", b") R 1 (", b"a b\n) Z 0", b"", b"\xff(("])
def test_no_name_of_a_process_passes_for_its_numbers(name: bytes) -> None:
    shown = name.decode("utf-8", "replace")
    stat = ProcStat(shown, "S", 7, 70, 4194304, 280, 16, 123456, 2048)
    assert parse_stat(b"77 (%b) S %b" % (name, NUMBERS)) == stat
    only_these = b" ".join(NUMBERS.split()[:21])
    assert parse_stat(b"77 (%b) S %b" % (name, only_these)) == stat


@pytest.mark.parametrize(
    "tail",
    [b"", b" S", b" S " + b" ".join(NUMBERS.split()[:20]), b" S " + NUMBERS.replace(b"2048", b"x"),
     b" S " + NUMBERS.replace(b"123456", b"9" * 19), b" S " + NUMBERS.replace(b"7 ", b"9" * 5000)],
)  # fmt: skip
def test_what_no_kernel_writes_is_an_error(tail: bytes) -> None:
    """Another machine sends it: of a number of 4,000 digits no message could be made."""
    with pytest.raises(ValueError, match=r"not as usual|invalid literal|Exceeds the limit"):
        parse_stat(b"77 (train)" + tail)


def test_the_kernel_writes_such_numbers() -> None:
    with open("/proc/self/stat", "rb") as file:
        stat = parse_stat(file.read())
    assert (stat.parent, stat.group) == (os.getppid(), os.getpgrp())
    assert stat.threads >= 1 <= stat.pages
