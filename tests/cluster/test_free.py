"""`gputop free --prometheus`, on a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.series import dcgm, gputop, nvidia_gpu_exporter, serving
from tests.prometheus import Prometheus

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A roomy machine, one that has just enough, a full one, and two with names of no host."""
    machines = [
        gputop("roomy", (0,) * 8, model="NVIDIA H100 80GB HBM3"),
        gputop("fits", (0, 0.9, 0, 0), model="NVIDIA H100 80GB HBM3"),
        gputop("full", (0.9, 0.9, 0.1), model="NVIDIA H100 80GB HBM3"),
        gputop("-oProxyCommand=x", (0, 0, 0), model="NVIDIA H100 80GB HBM3"),
        gputop("cluster1/node5", (0, 0), model="NVIDIA A2"),
        gputop("other", (0, 0, 0), model="NVIDIA L40S"),
    ]
    with serving(tmp_path_factory.mktemp("free"), *machines) as prometheus:
        yield prometheus


def free(*words: str) -> subprocess.CompletedProcess[str]:
    """What the command says."""
    command = [sys.executable, "-m", "gputop", "free", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_host_that_fits_best(server: Prometheus) -> None:
    done = free("--prometheus", server.url, "--model", "h100", "-n", "3", "--format", "index")
    assert (done.stdout, done.returncode) == ("fits 0,2,3\n", 0)
    assert done.stderr.startswith("gputop: fits: by gputop, ")
    assert done.stderr.rstrip().endswith("s old")


def test_json_and_more_than_one_host_has(server: Prometheus) -> None:
    done = free("--prometheus", server.url, "-n", "4", "--json")
    facts = json.loads(done.stdout)
    assert (facts["host"], len(facts["gpus"])) == ("roomy", 4)
    assert facts["gpus"][0] == {"gpu": 0, "uuid": "GPU-roomy-0"}
    assert facts["value"].startswith("0,1,")
    done = free("--prometheus", server.url, "-n", "9", "--model", "H100")
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == (
        "gputop: no host has 9 free GPUs of one model with 'H100' in its name: "
        "the most are 8 H100 80GB HBM3 on roomy:9835\n"
    )
    done = free("--prometheus", server.url, "--model", 'B200"}')
    assert done.stderr == "gputop: no host has a free GPU with 'B200\"}' in its model's name\n"


def test_free_gpus_of_a_host_that_ssh_cannot_reach(server: Prometheus) -> None:
    done = free("--prometheus", server.url, "--model", "A2")
    assert done.stderr == (
        "gputop: no host with a name that ssh takes has 1 free GPU of one model with 'A2' in its "
        "name: the most are 2 A2 on cluster1/node5:9835\n"
    )


def test_a_shell_there(server: Prometheus) -> None:
    done = free("--prometheus", server.url, "--model", "L40", "--format", "ssh")
    assert done.stdout.startswith("ssh -t -- other ")
    assert "CUDA_VISIBLE_DEVICES=0 " in done.stdout


def test_by_memory_and_rest_where_nobody_tells_who_is_there(tmp_path: Path) -> None:
    with serving(tmp_path, dcgm("node1", (0, 80, 0))) as prometheus:
        done = free("--prometheus", prometheus.url, "-n", "2", "--format", "index")
        assert done.stdout == "node1 0,2\n"
        assert "by dcgm-exporter" in done.stderr
        assert "it does not say who is on a GPU" in done.stderr


def test_every_exporter_counts(tmp_path: Path) -> None:
    """The one with most GPUs has none free."""
    machines = [gputop("node1", (0.5,) * 4), nvidia_gpu_exporter("node2", (0.9, 0))]
    with serving(tmp_path, *machines) as prometheus:
        done = free("--prometheus", prometheus.url, "--format", "uuid")
        assert (done.stdout, done.returncode) == ("node2 GPU-node2-1\n", 0), done.stderr
        assert "gputop: node2: by nvidia_gpu_exporter, " in done.stderr
        assert "it does not say who is on a GPU" in done.stderr


@pytest.mark.long
def test_what_does_not_go_together() -> None:
    url = ("--prometheus", "http://127.0.0.1:1")
    for words, said in {
        ("--model", "H100"): "--model needs --prometheus",
        (*url, "--wait"): "--prometheus cannot be used with --wait",
        (*url, "-H", "a"): "--prometheus cannot be used with -H",
        (*url, "--format", "export"): "is for this shell",
        (*url, "-n", "0"): "is not a number of GPUs",
    }.items():
        done = free(*words)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
    assert free(*url).returncode == 4
