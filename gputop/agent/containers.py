"""Names and images of containers, where their runtime tells them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable

import msgspec

from gputop.agent.program import run_program
from gputop.agent.worker import Worker
from gputop.model.place import Container
from gputop.model.text import printable

_LIMIT = 2.0
"""Seconds for an answer."""
_RETRY = 60.0
"""Seconds until one without an answer is asked for again."""
_ASKED = "{{.Name}}\t{{.Config.Image}}"
_SOCKET = "unix:///var/run/docker.sock"


class ContainerNames:
    """Asks the runtimes in a thread of its own, once for each container."""

    def __init__(self) -> None:
        self._known: dict[str, Container] = {}
        self._asked: dict[str, float] = {}
        self._wanted: dict[str, Container] = {}
        self._worker = Worker("containers", self._ask)

    def prepare(self, containers: Iterable[Container]) -> None:
        """Ask for those that are new, or have had no answer for a minute."""
        now = time.monotonic()
        due = {
            one.id: one for one in containers if now - self._asked.get(one.id, -_RETRY) >= _RETRY
        }
        wanted = {id_: one for id_, one in due.items() if id_ not in self._known}
        if wanted and not self._worker.busy:
            self._wanted = wanted
            self._worker.ask()

    def wait(self, seconds: float) -> None:
        """For what has been asked."""
        self._worker.wait(time.monotonic() + seconds)

    def named(self, container: Container) -> Container:
        """With its name and image, once they are known."""
        return self._known.get(container.id, container)

    def _ask(self) -> None:
        for id_, container in self._wanted.items():
            self._asked[id_] = time.monotonic()
            if (answer := _inspect(container)) is not None:
                self._known[id_] = answer


def _inspect(container: Container) -> Container | None:
    program = _command(container)
    if program is None:
        return None
    answer = _output([*program, "inspect", "--type", "container", "--format", _ASKED, container.id])
    name, tab, image = (answer or "").strip().partition("\t")
    if not tab:
        return None
    return msgspec.structs.replace(
        container,
        name=printable(name.removeprefix("/"), 128) or None,
        image=printable(image, 256) or None,
    )


def _command(container: Container) -> list[str] | None:
    """Without a daemon that may be asked, docker's is left alone; podman has none."""
    if container.runtime == "podman":
        program = shutil.which("podman")
        return [program] if program else None
    if container.runtime != "docker" or not (program := shutil.which("docker")):
        return None
    host = os.environ.get("DOCKER_HOST", _SOCKET)
    socket = host.removeprefix("unix://")
    may = host != socket and os.access(socket, os.R_OK | os.W_OK)
    return [program, "--host", host] if may else None


def _output(command: list[str]) -> str | None:
    """What it writes in time; None if it fails. What it started ends with it."""
    try:
        output, status = run_program(command, _LIMIT, errors=subprocess.DEVNULL)
    except OSError:
        return None
    return output.decode("utf-8", "replace") if status == 0 else None
