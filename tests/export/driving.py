"""`gputop export` at work, and what asks it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.agent.driving import children_of
from tests.export.test_families import Samples, read
from tests.patience import until

GPUTOP = [sys.executable, "-m", "gputop"]


class Exporter:
    """A context manager; `port` is where it listens."""

    def __init__(self, *words: str, environ: Mapping[str, str] = os.environ) -> None:
        """words: of the command line after `gputop`; it listens on a free port of 127.0.0.1."""
        self._command = [*GPUTOP, *words, "--listen", "127.0.0.1:0"]
        self._environ = environ

    def __enter__(self) -> Exporter:
        self.process = subprocess.Popen(
            self._command, env=dict(self._environ), stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        match = re.fullmatch(r"gputop: serving https?://127\.0\.0\.1:(\d+)/metrics\n", line)
        assert match is not None, line
        self.port = int(match[1])
        self.target = f"127.0.0.1:{self.port}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0

    def text(self) -> str:
        """Return what is at /metrics."""
        with urllib.request.urlopen(f"http://{self.target}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def samples(self) -> Samples:
        """Return the values at /metrics by name and labels."""
        return read(self.text())

    def wait_for(self, name: str, value: float, within: float = 20.0) -> Samples:
        """Return the samples as soon as every series of that name has that value."""
        samples: Samples = {}

        def is_there() -> bool:
            nonlocal samples
            samples = self.samples()
            return set(samples.get(name, {}).values()) == {value}

        until(is_there, within)
        return samples

    def connect(self, receive: int = 0) -> socket.socket:
        """Return a connection; `receive`: bytes that the kernel takes of it, at most."""
        connection = socket.socket()
        if receive:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def status(self, field: str) -> int:
        """Return a number of /proc/PID/status."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        (value,) = re.findall(rf"^{field}:\s+(\d+)", text, re.M)
        return int(value)

    @property
    def agents(self) -> list[int]:
        """The processes that it has started."""
        return children_of(self.process.pid)

    def kill_agent(self) -> None:
        """Kill what reads the driver."""
        for pid in self.agents:
            os.kill(pid, signal.SIGKILL)
