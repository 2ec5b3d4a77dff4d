"""`gputop topo`: shows how GPUs are connected, and which CPUs are near."""

from __future__ import annotations

import argparse
from contextlib import closing

from gputop.commands.shared.hosts import print_answers, timeout_of
from gputop.commands.shared.options import HOSTS_ONCE, JSON
from gputop.errors import SourceError
from gputop.export.topology import topology_json, topology_text
from gputop.sources.ask import TIMEOUT, readable_frame
from gputop.sources.opening import BRIEF, open_source
from gputop.sources.source import REFUSED, is_smi_only
from gputop.sources.ssh.names import HostName

_INTERVAL = 0.2
"""Seconds between frames; the first frames are incomplete."""
DESCRIPTION = (
    "Show how the GPUs are connected, which can use each other's memory, and which CPUs are near."
)
EPILOG = """\
examples:
  gputop topo                     links, peer-to-peer, CPUs and NUMA nodes
  gputop topo -H node1,node2      those of other machines, over ssh
  taskset -c $(gputop topo --json | jq -r '.gpus[3].usable_cpus') python train.py

--json: a line for each host: host (with -H), gpus (gpu, uuid, name, pci_bus_id, cpus
and usable_cpus as taskset -c takes them, numa, gpu_numa), links and p2p (a row and a
column a GPU)

exit status: 0 done, 1 a host gives nothing, 2 usage, 3 the NVIDIA driver cannot be read
"""
TAKES = {**HOSTS_ONCE, **JSON, "demo": ""}


def add_options(parser: argparse.ArgumentParser) -> None:
    """It has those that are shared."""


def run(options: argparse.Namespace) -> int:
    def ask(host: HostName | None) -> tuple[str, int]:
        opened = open_source(
            host, _INTERVAL, demo=options.demo, less=(BRIEF,), timeout=timeout_of(options)
        )
        with closing(opened) as source:
            frame = readable_frame(
                source,
                lambda frame: is_smi_only(source) or None not in (frame.links, frame.topology),
            )
            if is_smi_only(source):
                raise SourceError(REFUSED)
            text = f"{topology_json(frame)}\n" if options.json else topology_text(frame)
            return text, 0

    return print_answers(options, ask, TIMEOUT)
