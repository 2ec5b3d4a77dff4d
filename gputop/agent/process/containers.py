"""Names and images of containers, where their runtime tells them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

import msgspec

from gputop.agent.worker import Worker
from gputop.model.machine.origin import Container
from gputop.model.machine.text import printable
from gputop.trust import find_program, may_connect

_LIMIT = 2.0
"""Seconds for an answer."""
_RETRY = 60.0
"""Seconds until one without an answer is asked for again."""
_MOST = 1024
"""Containers that are remembered: on some machines each job is a new one."""
_INSPECT = ("inspect", "--type", "container", "--format", "{{.Name}}\t{{.Config.Image}}")


class ContainerNames:
    """Asks the runtimes in a thread of its own, once for each container."""

    def __init__(self) -> None:
        self._named: dict[str, Container] = {}
        self._asked: dict[str, float] = {}
        self._due: dict[str, Container] = {}
        self._worker = Worker("containers", self._ask)

    def prepare(self, containers: Iterable[Container]) -> None:
        """Ask for those that are new, or have had no answer for a minute."""
        now = time.monotonic()
        due = {
            container.id: container
            for container in containers
            if container.id not in self._named
            and now - self._asked.get(container.id, -_RETRY) >= _RETRY
        }
        if due and not self._worker.busy:
            self._due = due
            self._worker.ask()

    def wait(self, seconds: float) -> None:
        self._worker.wait(time.monotonic() + seconds)

    def named(self, container: Container) -> Container:
        """Return it with its name and image, once they are known."""
        return self._named.get(container.id, container)

    def _ask(self) -> None:
        for id_, container in self._due.items():
            self._asked[id_] = time.monotonic()
            if (named := _inspect(container)) is not None:
                self._named[id_] = named
        for kept in (self._named, self._asked):
            for oldest in list(kept)[:-_MOST]:
                del kept[oldest]


def _inspect(container: Container) -> Container | None:
    from gputop.agent.program import answer_of  # it takes long, and is seldom needed

    for name, *words in _commands(container):
        program, _ = find_program(name)
        answer = answer_of([program, *words, container.id], _LIMIT) if program else ""
        name, image = _parse(answer)
        if name or image:
            return msgspec.structs.replace(
                container,
                name=printable(name.removeprefix("/"), 128) or None,
                image=printable(image, 256) or None,
            )
    return None


def _commands(container: Container) -> Iterator[list[str]]:
    """Those that may know it, to be followed by its id. Without a daemon that may be asked,
    its client is left alone; podman has none."""
    if container.runtime == "podman":
        yield ["podman", *_INSPECT]
    if container.runtime == "docker":
        host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        if _may_ask(host):
            yield ["docker", "--host", host, *_INSPECT]
    if container.runtime in ("containerd", "cri-o"):
        address = os.environ.get("CONTAINERD_ADDRESS", "/run/containerd/containerd.sock")
        crio = "unix:///var/run/crio/crio.sock"
        usual = f"unix://{address}" if container.runtime == "containerd" else crio
        endpoint = os.environ.get("CONTAINER_RUNTIME_ENDPOINT", usual)
        if _may_ask(endpoint):
            yield ["crictl", "--runtime-endpoint", endpoint, "inspect", "-o", "json"]
        if usual != crio and _may_ask(f"unix://{address}"):
            for namespace in ("default", "k8s.io"):
                yield ["nerdctl", "--address", address, "--namespace", namespace, "inspect"]


def _may_ask(host: str) -> bool:
    socket = host.removeprefix("unix://")
    return host != socket and may_connect(socket)


def _parse(answer: str) -> tuple[str, str]:
    name, tab, image = answer.strip().partition("\t")
    if tab and not answer.lstrip().startswith(("{", "[")):
        return name, image
    try:
        container = msgspec.json.decode(answer)
        container = container[0] if isinstance(container, list) else container
        if "status" in container:  # crictl
            status = container["status"]
            pod = (status.get("labels") or {}).get("io.kubernetes.pod.name")
            name, image = status["metadata"]["name"], status["image"]["image"]
            return (f"{pod}/{name}" if pod else str(name)), str(image)
        return str(container["Name"]), str(container["Image"])
    except (msgspec.MsgspecError, TypeError, LookupError, AttributeError, RecursionError):
        return "", ""
