"""The real processes of a scenario: cheap, with any argv and environment, gone with the test.

A child dies with the thread that started it (PR_SET_PDEATHSIG), so start them from a thread that
lives as long as they shall.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

_INHERITED = ("PATH", "HOME", "LANG")


class Children:
    """Running children by name. A context manager: all are killed and reaped at its end."""

    def __init__(self, program: Path) -> None:
        """program: what runs in every child, of `build.child`."""
        self._program = program
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(list(self._running))

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the running children by name."""
        return {name: child.pid for name, child in list(self._running.items())}

    def start(self, processes: Mapping[str, Mapping[str, object]]) -> None:
        """Start processes ({"command", "env", "manner"} by name); wait until all are set up."""
        ready, written = os.pipe()
        try:
            for name, process in processes.items():
                self._running[name] = self._popen(process, written)
        finally:
            os.close(written)
        with open(ready, "rb") as pipe:
            pipe.read()

    def ended(self) -> list[str]:
        """Names of children that have ended since the last call, reaped and no longer running."""
        names = [name for name, child in list(self._running.items()) if child.poll() is not None]
        for name in names:
            self._running.pop(name, None)
        return names

    def kill(self, names: Iterable[str]) -> None:
        """SIGKILL children and wait until they are gone from the process table."""
        gone = [self._running.pop(name) for name in names]
        for child in gone:
            child.send_signal(signal.SIGKILL)
        for child in gone:
            child.wait()

    def _popen(self, process: Mapping[str, object], ready: int) -> subprocess.Popen[bytes]:
        command, env, manner = process["command"], process.get("env"), process.get("manner")
        assert isinstance(command, list)
        environment = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        environment.update(env if isinstance(env, dict) else {})
        if manner:
            environment["GPUTOP_TEST_CHILD"] = str(manner)
        return subprocess.Popen(
            command,
            executable=str(self._program),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=ready,
            stderr=subprocess.DEVNULL,
            # A Ctrl-C at the terminal is for the program under test.
            start_new_session=True,
        )
