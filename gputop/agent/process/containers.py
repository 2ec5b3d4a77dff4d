"""Names and images of containers, where their runtime tells them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

import msgspec

from gputop.agent.worker import Worker
from gputop.model.place import Container
from gputop.model.text import printable

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
        for about in (self._known, self._asked):
            for oldest in list(about)[:-_MOST]:
                del about[oldest]


def _inspect(container: Container) -> Container | None:
    from gputop.agent.program import answer_of  # it takes long, and a look seldom needs it

    for command in _commands(container):
        answer = answer_of([*command, container.id], _LIMIT)
        name, image = _told(answer or "")
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
    return host != socket and os.access(socket, os.R_OK | os.W_OK)


def _told(answer: str) -> tuple[str, str]:
    """Name and image: of a line of docker or podman, else of JSON. What is not there is empty."""
    name, tab, image = answer.strip().partition("\t")
    if tab and not answer.lstrip().startswith(("{", "[")):
        return name, image
    try:
        about = msgspec.json.decode(answer)
        about = about[0] if isinstance(about, list) else about
        if "status" in about:  # crictl
            status = about["status"]
            pod = (status.get("labels") or {}).get("io.kubernetes.pod.name")
            name, image = status["metadata"]["name"], status["image"]["image"]
            return (f"{pod}/{name}" if pod else str(name)), str(image)
        return str(about["Name"]), str(about["Image"])
    except (msgspec.MsgspecError, TypeError, LookupError, AttributeError, RecursionError):
        return "", ""
