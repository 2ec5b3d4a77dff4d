"""Names and images of containers, if their runtime reports them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gputop.agent.worker import Worker
from gputop.model.machine.origin import Container
from gputop.model.machine.text import printable
from gputop.trust import find_program, may_connect

_LIMIT = 2.0
"""Seconds that a runtime has to answer."""
_RETRY = 60.0
"""Seconds until the name of a container is asked for again after no answer."""
_MOST = 1024
"""Containers that are remembered: on some machines each job has a new container."""
_INSPECT = ("inspect", "--type", "container", "--format", "{{.Name}}\t{{.Config.Image}}")
_LABEL = "io.kubernetes."
"""How the kubelet's labels of a container begin."""
_KEPT = {"name": 128, "image": 256, "pod": 128, "namespace": 128}
"""The fields of Container that a runtime tells, and how many characters of each are kept."""


class ContainerNames:
    """Asks the runtimes for names in a thread of its own, once for each container."""

    def __init__(self) -> None:
        self._named: dict[str, Container] = {}
        self._asked: dict[str, float] = {}
        self._due: dict[str, Container] = {}
        self._worker = Worker("containers", self._ask)

    def prepare(self, containers: Iterable[Container]) -> Mapping[str, Container]:
        """Ask for the names of new containers, and again after a minute without an answer. Return
        those that have their name and image, by id."""
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
        return self._named

    def wait(self, seconds: float) -> None:
        self._worker.wait(time.monotonic() + seconds)

    def has_no_answer(self, container: Container) -> bool:
        """Return whether a container was asked for in vain; `prepare` asks again after a minute."""
        is_done = not self._worker.busy and container.id in self._asked
        return is_done and container.id not in self._named

    def _ask(self) -> None:
        for id_, container in self._due.items():
            self._asked[id_] = time.monotonic()
            if (named := _inspect(container)) is not None:
                self._named[id_] = named
        for kept in (self._named, self._asked):
            for oldest in list(kept)[:-_MOST]:
                del kept[oldest]


def _inspect(container: Container) -> Container | None:
    from gputop.agent.program import answer_of  # a slow import, seldom needed

    for name, *words in _commands(container):
        program, _ = find_program(name)
        answer = answer_of([program, *words, container.id], _LIMIT) if program else ""
        if any(texts := _parse(answer)):
            kept = zip(_KEPT.items(), texts, strict=False)
            fields = {field: printable(text, most) or None for (field, most), text in kept}
            return msgspec.structs.replace(container, **fields)
    return None


def _commands(container: Container) -> Iterator[list[str]]:
    """Yield the commands that may know a container; its id is appended to them. A client is only
    run if its daemon may be asked; podman has no daemon."""
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


def _parse(answer: str) -> tuple[str, ...]:
    """Return the name, image, pod and namespace that a runtime tells; empty is unknown."""
    name, tab, image = answer.strip().partition("\t")
    if tab and not answer.lstrip().startswith(("{", "[")):
        return name.removeprefix("/"), image
    try:
        container = msgspec.json.decode(answer)
        container = container[0] if isinstance(container, list) else container
        if "status" in container:  # crictl
            status = container["status"]
            labels = status.get("labels") or {}
            name, image = status["metadata"]["name"], status["image"]["image"]
        else:
            labels = (container.get("Config") or {}).get("Labels") or {}
            name = labels.get(f"{_LABEL}container.name", container["Name"])
            image = container["Image"]
        pod, namespace = (labels.get(f"{_LABEL}pod.{of}", "") for of in ("name", "namespace"))
        return str(name).removeprefix("/"), str(image), str(pod), str(namespace)
    except (msgspec.MsgspecError, TypeError, LookupError, AttributeError, RecursionError):
        return ()
