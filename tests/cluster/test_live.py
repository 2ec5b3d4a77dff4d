"""`gputop --prometheus` in a terminal: a host over a real sshd, a server that says nothing."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from gputop.sources.prometheus.client import PrometheusClient
from gputop.sources.prometheus.exporters import EXPORTERS, Site
from gputop.sources.prometheus.host import FallbackSource, PrometheusSource
from gputop.sources.prometheus.queries import ClusterQueries
from gputop.sources.ssh.names import HostName, plain_host
from tests.cluster.series import gputop, serving, up
from tests.conftest import MachineFactory, rest_long
from tests.patience import until
from tests.sshd import Sshd, sshd
from tests.terminal import Terminal
from tests.tui.live import ESCAPE, GPUTOP, restored

pytestmark = pytest.mark.system
__all__ = ["sshd"]


def test_a_host_opens_over_ssh_or_else_as_prometheus_knows_it(
    sshd: Sshd, machine: MachineFactory, tmp_path: Path
) -> None:
    sshd.host("node", machine("h200x8").env)
    machines = [gputop("node", (0.5,), finding="error"), gputop("unreached", (0.25, 0))]
    with (
        serving(tmp_path, *machines, up("node:9835", 1)) as prometheus,
        Terminal([*GPUTOP, "--prometheus", prometheus.url], cols=120, rows=30) as terminal,
    ):
        terminal.wait_for("3 GPUs, 1 free")
        terminal.wait_for(lambda: "node:9835" in terminal.display[4])
        terminal.send(b"\x1b[B\r")
        terminal.wait_for("8 GPUs")  # the machine itself, not what Prometheus has of it
        assert "Prometheus" not in terminal.text
        terminal.send(b"q")
        terminal.wait_for("every 10s")
        # The agent there ends when its connection does.
        until(lambda: not sshd.processes(HostName("node", "node", None)))
        terminal.send(b"\x1b[B\r")
        terminal.wait_for("from Prometheus (")
        terminal.wait_for("unreached:9835")
        assert "Could not resolve hostname" in terminal.display[0]
        terminal.send(b"qq")
        assert terminal.exit_code(5) == 0
        assert restored(terminal)


def test_what_ssh_brings_of_a_host_is_remembered_while_it_is_open() -> None:
    server = ClusterQueries(PrometheusClient("http://127.0.0.1:1", {}), Site(EXPORTERS))
    opened = FallbackSource(PrometheusSource(server, "node:9835"), 1.0)
    for wanted in (True, False):
        opened.remember(wanted)
        assert (opened.past is not None) == wanted


def test_a_server_that_says_nothing_holds_up_no_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Terminal([*GPUTOP, "--prometheus", url], cols=80, rows=24) as terminal:
            terminal.wait_for(f"asking {url}")
            terminal.send(b"?")
            terminal.wait_for("A part of a host's name")
            terminal.send(b"qs/a")
            terminal.wait_for("Enter keep")
            terminal.send(ESCAPE)
            terminal.wait_for("Enter open")
            terminal.send(b"q")
            assert terminal.exit_code(3) == 0


@rest_long(
    ("words", "said"),
    ("--prometheus http://a -H b", "--prometheus cannot be used with -H"),
    ("--prometheus http://a --once --timeout 3", "--prometheus cannot be used with --timeout"),
    ("--prometheus http://a free --window 3", "--prometheus cannot be used with --window"),
    ("--prometheus http://a serve -H b", "--prometheus cannot be used with -H"),
    ("--prometheus a serve", "is not a URL such as http://prometheus:9090"),
    ("--prometheus http://a topo", "--prometheus is not an option of gputop topo"),
    ("--prometheus a:9090", "is not a URL such as http://prometheus:9090"),
)
def test_what_it_does_not_go_with(words: str, said: str) -> None:
    command = [*GPUTOP, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_name_of_the_server_never_becomes_an_option() -> None:
    assert plain_host("node1:9835") == HostName("node1", "node1", None)
    assert plain_host("10.0.0.7:9400") == HostName("10.0.0.7", "10.0.0.7", None)
    assert plain_host("[fe80::1]:9400") == HostName("fe80::1", "fe80::1", None)
    assert plain_host("node1") == HostName("node1", "node1", None)
    for text in (
        "-oProxyCommand=x", "root@node1", "-v:22", "http://node1:9400/metrics", "a b", "a\n", "",
        "node[1-3]", "@lab", "-", "a,b", "a;b", "$(x)", "no\u202ede", "x" * 10 + "\x00",
    ):  # fmt: skip
        assert plain_host(text) is None, text
