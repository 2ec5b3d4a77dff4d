"""The parser of /proc/PID/status, with names that pretend to be other lines."""

from __future__ import annotations

import os

import pytest

from gputop.proc import status_field

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
    assert status_field(status, b"Uid") == [b"4242", b"0", b"0", b"0"]
    assert status_field(status, b"Pid") == [b"77"]  # not PPid
    assert status_field(status, b"NSpid") == [b"77", b"3"]
    assert status_field(status, b"SigIgn") == [b"0000000000001000"]
    assert status_field(status, b"Groups") == status_field(status, b"CapEff") == []
    assert status_field(b"", b"Uid") == []


def test_the_kernel_writes_such_lines() -> None:
    with open("/proc/self/status", "rb") as file:
        status = file.read()
    assert status_field(status, b"Pid") == [b"%d" % os.getpid()]
    assert status_field(status, b"PPid") == [b"%d" % os.getppid()]
    uids = (os.getuid(), os.geteuid())
    assert [int(word) for word in status_field(status, b"Uid")[:2]] == list(uids)
