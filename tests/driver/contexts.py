"""What CUDA programs hold on a simulated machine: context.c tells it, and NVML's lists have it.

Each program has a connection; the kernel says whose it is, and its end is the end of the process.
A driver may lie about them, see LIES.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.driver.scenario import Scenario, delist, enlist

LIES = {
    "no_memory": "the memory of a program is not told",
    "half_memory": "half of the memory of a program is told",
    "gpu_memory": "what programs hold is missing in the memory of the GPU",
    "pid": "a program has the PID of its parent",
    "no_sample": "no program is at work",
    "stays": "a program that has ended stays, with its memory",
}
_WORK = 0.8
"""Seconds of work that a launched kernel shows."""


class Contexts:
    """The connections of CUDA programs. `path` is what GPUTOP_TEST_CUDA names."""

    def __init__(
        self, update: Callable[[Callable[[Scenario], object]], None], elapsed: Callable[[], float]
    ) -> None:
        """update: `Machine.update`; elapsed: seconds since the start of the scenario."""
        self._update, self._elapsed = update, elapsed
        # A path of a socket has 108 bytes at most.
        self._folder = Path(tempfile.mkdtemp(prefix="gputop-cuda-"))
        self.path = self._folder / "socket"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.path))
        self._socket.listen(64)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more programs."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait for the next one
        self._thread.join()
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                program, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(program,), daemon=True).start()

    def _serve(self, program: socket.socket) -> None:
        size = struct.calcsize("3i")
        pid, _, _ = struct.unpack(
            "3i", program.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        )
        inner = _inner(pid)
        with program, program.makefile() as lines, suppress(OSError):
            for line in lines:
                index, slot, used, is_busy = map(int, line.split())
                until = self._elapsed() + _WORK if is_busy else None
                self._update(_Holding(index, slot, pid, inner, used, until).enter)
                program.sendall(b".")
        self._update(lambda scenario: _end(scenario, pid))


def _inner(pid: int) -> dict[str, Any]:
    """Return the entry's number in a PID namespace below ours, if the process is in one."""
    namespace = os.stat(f"/proc/{pid}/ns/pid").st_ino
    if namespace == os.stat("/proc/self/ns/pid").st_ino:
        return {}
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    numbers = next(line for line in lines if line.startswith("NSpid:"))
    return {"inner": (int(numbers.split()[-1]), namespace)}


class _Holding(NamedTuple):
    """What a process holds of a GPU."""

    gpu: int
    slot: int
    """That of the MIG device; -1: of the whole GPU."""
    pid: int
    inner: dict[str, Any]
    used: int
    until: float | None
    """The second to which it works; None: it has no new work."""

    def enter(self, scenario: Scenario) -> None:
        """Put it into the scenario in place of what the process held before."""
        lie, gpu = scenario.get("lie") or "", scenario["gpus"][self.gpu]
        before = _take(gpu, self.pid) or {"sm": 0, "mem": 0}
        held = 0 if lie == "gpu_memory" else self.used
        entry = {**before, **self.inner, "pid": self.pid, "owner": self.pid, "used": held}
        if self.slot >= 0:
            device = gpu["mig"]["devices"][self.slot]
            entry.update(gi=device["gi"], ci=device["ci"])
        if self.until is not None and lie != "no_sample":
            entry["sm"] = {"steps": [[0, 97], [self.until, 0]]}
            work = {"steps": [[0, 98], [self.until, 0]]}
            gpu["utilization"] = {**(gpu.get("utilization") or {}), "gpu": work}
        enlist(gpu, "compute", entry)
        told = {"no_memory": None, "half_memory": self.used // 2}
        entry.update(held=held, used=told.get(lie, self.used))
        if lie == "pid":
            entry["pid"] = os.getpid()


def _take(gpu: Scenario, pid: int) -> dict[str, Any] | None:
    """Take a process off a GPU with all that it held; return its entry."""
    listed = gpu["compute"] or []
    entry = next((entry for entry in listed if entry.get("owner") == pid), None)
    if entry is not None:
        entry.update(pid=pid, used=entry["held"])
        delist(gpu, [pid])
    return entry


def _end(scenario: Scenario, pid: int) -> None:
    if scenario.get("lie") != "stays":
        for gpu in scenario["gpus"]:
            _take(gpu, pid)
