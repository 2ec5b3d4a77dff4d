"""Lines of several machines are read at the same time, from the first on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.protocol.streams import lines_of, stream

pytestmark = pytest.mark.system

READ_AT_ONCE = """\
import sys, threading

from gputop.protocol.codec import decode_line

sys.setswitchinterval(1e-6)
line = sys.stdin.buffer.read()
begin = threading.Barrier(8)


def read():
    begin.wait()
    decode_line(line)


threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_the_first_lines_come_to_many_threads_at_once() -> None:
    """Without a lock five of six such programs died by SIGSEGV."""
    inventory = lines_of(stream())[1]
    for _ in range(4):
        command = [sys.executable, "-c", READ_AT_ONCE]
        done = subprocess.run(command, input=inventory, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
