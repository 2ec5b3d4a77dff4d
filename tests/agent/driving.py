"""An agent driven by hand over its pipe, as gputop's reader drives it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.driver import Machine
from tests.driver.machine import REPOSITORY

COMMAND = [sys.executable, str(REPOSITORY / "gputop" / "__main__.py"), "agent"]

Json = dict[str, Any]


class Agent:
    """`gputop agent` on a machine; a context manager: it is killed at the end.

    With the interval left at its largest, it makes a frame at its start and then only when asked.
    """

    def __init__(
        self,
        machine: Machine,
        interval: float = 60.0,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """env: over the machine's. prefix: a command that runs the one after it."""
        self.process = subprocess.Popen(
            [*prefix, *COMMAND, "--interval", str(interval)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**machine.env, **(env or {})},
        )
        assert self.process.stdin
        assert self.process.stdout
        self._stdin = self.process.stdin
        self._stdout = self.process.stdout.fileno()
        self._rest = b""

    def __enter__(self) -> Agent:
        self.hello = self.line()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                if pipe:
                    pipe.close()

    def line(self, within: float = 10.0) -> Json:
        """The next line; EOFError at the end of the stream, TimeoutError if none comes in time."""
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if not select.select([self._stdout], [], [], max(0.0, left))[0]:
                raise TimeoutError
            if not (piece := os.read(self._stdout, 1 << 20)):
                raise EOFError
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        message: Json = json.loads(line)
        return message

    def send(self, line: bytes) -> None:
        """A line to its standard input, as it is."""
        self._stdin.write(line + b"\n")
        self._stdin.flush()

    def ask(self, request: str, **values: object) -> None:
        """A request."""
        self.send(json.dumps({"request": request, **values}).encode())

    def refresh(self, within: float = 10.0) -> Json:
        """The frame that comes when asked for one."""
        self.ask("refresh")
        return self.line(within)

    def close_stdin(self) -> None:
        """The end of its standard input."""
        self._stdin.close()


def until(condition: Callable[[], object], within: float = 5.0) -> None:
    """Look until it is so; TimeoutError if it does not become so in time."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def start_as(pid: int, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """A process of that number, which is free."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(50):
        try:
            last.write_text(str(pid - 1))
        except OSError:
            pytest.skip("process numbers cannot be chosen here")
        process = subprocess.Popen(command, **options)
        if process.pid == pid:
            return process
        process.kill()
        process.communicate()
    pytest.skip("somebody else was always quicker")


SECTIONS = (
    "identity", "bar1", "engines", "clocks", "power_more", "thermal", "throttle", "pcie", "nvlink",
    "ecc", "health", "activity",
)  # fmt: skip
"""The fields of `model.sections`."""


def plain(gpu: Json) -> Json:
    """A GPU, and its MIG devices, without what has tests of its own: sections, memory of parts."""
    kept = {field: value for field, value in gpu.items() if field not in SECTIONS}
    parts = ("memory_total", "memory_used", "activity")
    if kept["mig"] is not None:
        kept["mig"] = [
            {field: value for field, value in device.items() if field not in parts}
            for device in kept["mig"]
        ]
    return kept
