"""`python -m bench.cluster [NODES [SECONDS]]`: a cluster as a real Prometheus server knows it.

Makes the series of NODES machines with 8 GPUs each, loads them into the server (`promtool tsdb
create-blocks-from openmetrics`), and queries them as `gputop --prometheus` does, without and with
gputop's recording rules. Then measures the screen for SECONDS, refreshing every 10 s.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bench.tree import cpu_seconds, memory_mib
from bench.tty import Recorder
from gputop.commands.export import rules
from gputop.sources.prometheus.client import PrometheusClient
from gputop.sources.prometheus.queries import find_site
from tests.prometheus import Prometheus

_GPUS = 8
_SAMPLES = (-120, -60, 0)
"""Seconds from now. None is in the future: the server would refuse earlier results of its rules."""
_LOOKBACK = "--query.lookback-delta=1h"
"""Loading takes longer than the five minutes for which a sample counts by default."""
_MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA H200")
_RULES = """\
global: {{evaluation_interval: 15s}}
rule_files: [{rules}]
"""
_MIB = 1 << 20


class TimedClient(PrometheusClient):
    """A client that notes how long each query took, and the size of its answer."""

    def __init__(self, url: str) -> None:
        super().__init__(url, {})
        self.noted: list[tuple[str, float, int]] = []
        self._bytes = 0

    def _api(self, path: str, words: Any) -> Any:
        begun = time.monotonic()
        data = super()._api(path, words)
        self.noted.append((str(words["query"]), time.monotonic() - begun, len(str(data))))
        return data


def main() -> int:
    """Measure a cluster, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description="a cluster")
    parser.add_argument("nodes", nargs="?", type=int, default=10_000)
    parser.add_argument("seconds", nargs="?", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = _load(folder, options.nodes)
        with Prometheus(folder, "", _LOOKBACK, data=data) as server:
            print(f"\n{options.nodes} nodes x {_GPUS} GPUs, without recording rules")
            _measure(server.url)
        path = folder / "rules.yml"
        path.write_text(rules())
        config = _RULES.format(rules=path)
        with Prometheus(folder, config, _LOOKBACK, data=data) as server:
            server.wait_for("instance:gputop_gpu_findings:worst", within=120)
            server.wait_for("gputop:gpu_utilization_ratio:quantile", within=120)
            print("\nthe same, with gputop's recording rules")
            _measure(server.url)
            _watch(server.url, options.seconds)
    return 0


def _load(folder: Path, nodes: int) -> Path:
    """Make the series, and return the server's data folder with them."""
    text, data = folder / "series.txt", folder / "data"
    begun = time.monotonic()
    with text.open("w") as file:
        count = _write(file, nodes, int(time.time()))
    size = text.stat().st_size / _MIB
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()
    print(f"{count} series, {size:.0f} MiB of text, loaded in {time.monotonic() - begun:.0f} s")
    return data


def _write(file: IO[str], nodes: int, now: int) -> int:
    """Write the series, metric by metric, and return how many there are."""
    chance, count = random.Random(1), 0
    for name, labels_and_values in _metrics(nodes, chance).items():
        file.write(f"# TYPE {name} gauge\n")
        for labels, value in labels_and_values:
            count += 1
            for at in _SAMPLES:
                file.write(f"{name}{{{labels}}} {value:g} {now + at}\n")
    file.write("# EOF\n")
    return count


def _metrics(nodes: int, chance: random.Random) -> dict[str, Iterator[tuple[str, float]]]:
    total = 80 << 30

    def gpus(extra: str = "") -> Iterator[tuple[str, int, int]]:
        for node in range(nodes):
            host = f'job="gputop",instance="node{node:05d}:19400"'
            for gpu in range(_GPUS):
                yield f'{host},gpu="{gpu}",uuid="GPU-{node:05d}-{gpu}"{extra}', node, gpu

    def is_free(node: int, gpu: int) -> bool:
        return (node * 7 + gpu) % 5 == 0

    def host_labels(node: int) -> str:
        return f'job="gputop",instance="node{node:05d}:19400"'

    return {
        "gputop_gpu_info": (
            (f'{labels},model="{_MODELS[node % 3]}"', 1) for labels, node, _ in gpus()
        ),
        "gputop_gpu_up": ((labels, 1) for labels, _, _ in gpus()),
        "gputop_gpu_free": ((labels, is_free(node, gpu)) for labels, node, gpu in gpus()),
        "gputop_gpu_utilization_ratio": (
            (labels, 0 if is_free(node, gpu) else round(chance.random(), 2))
            for labels, node, gpu in gpus()
        ),
        "gputop_gpu_memory_used_bytes": (
            (labels, 0 if is_free(node, gpu) else chance.randrange(total))
            for labels, node, gpu in gpus()
        ),
        "gputop_gpu_memory_total_bytes": ((labels, total) for labels, _, _ in gpus()),
        "gputop_gpu_findings": (
            (f'{labels},level="alarm",code="XID 79"', 1)
            for labels, node, gpu in gpus()
            if node % 97 == 0 and gpu == 3
        ),
        "gputop_user_processes": (
            (f'{labels},user="user{(node * 3 + gpu) % 400}"', 1 + gpu % 2)
            for labels, node, gpu in gpus()
            if not is_free(node, gpu)
        ),
        "gputop_up": ((host_labels(node), 1) for node in range(nodes)),
        "gputop_reading_age_seconds": ((host_labels(node), 2.5) for node in range(nodes)),
        "up": ((host_labels(node), node % 211 != 0) for node in range(nodes)),
    }


def _measure(url: str) -> None:
    """Print the time and size of each query of a refresh, then of the whole refresh."""
    client = TimedClient(url)
    _refresh(client)  # warms the server's caches
    client.noted.clear()
    begun = time.monotonic()
    _refresh(client)
    wall = time.monotonic() - begun
    for query, seconds, size in sorted(client.noted, key=lambda note: -note[1]):
        print(f"{seconds * 1000:8.0f} ms {size:9d} B  {query[:110]}")
    size = sum(size for *_, size in client.noted)
    print(f"{len(client.noted)} queries, {size} B, {wall:.2f} s for all, four at a time")


def _refresh(client: PrometheusClient) -> None:
    queries = find_site(client)
    queries.sums()
    queries.nodes("worst", 50)


def _watch(url: str, seconds: float) -> None:
    """Print what the screen costs on this machine."""
    command = [sys.executable, "-m", "gputop", "--prometheus", url]
    env = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    screen = Recorder(command, 200, 50, env)
    with screen:
        screen.listen(15)
        used, begun = cpu_seconds(screen.process.pid), time.monotonic()
        screen.listen(seconds)
        share = (cpu_seconds(screen.process.pid) - used) / (time.monotonic() - begun)
        _, pss = memory_mib(screen.process.pid)
        print(f"gputop --prometheus: {share:.1%} of a core, {pss:.0f} MiB")
        screen.send(b"q")


if __name__ == "__main__":
    sys.exit(main())
