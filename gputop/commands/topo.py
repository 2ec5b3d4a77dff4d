"""`gputop topo`: options, and what they do.

Exit status: 0 done, 2 usage, 3 the driver cannot be read.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing

from gputop.commands import HELP
from gputop.commands.output import write
from gputop.errors import DriverError, SourceError
from gputop.export.topology import topology_json, topology_text
from gputop.model.frame import Frame
from gputop.sources.local import LocalSource

_PATIENCE = 5.0
"""Seconds that a driver may take to wake up, and to tell all of it."""
_EPILOG = """\
examples:
  gputop topo                     links, peer-to-peer, CPUs and NUMA nodes
  taskset -c $(gputop topo --json | jq -r '.gpus[3].usable_cpus') python train.py

--json: gpus (gpu, uuid, name, pci_bus_id, cpus and usable_cpus as taskset -c
takes them, numa, gpu_numa), links and p2p (a row and a column a GPU)

exit status: 0 done, 2 usage, 3 the NVIDIA driver cannot be read
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command; `run` takes what it parses."""
    parser = commands.add_parser(
        "topo",
        help=HELP["topo"],
        description="Tell how the GPUs are connected, which can use each other's memory, and"
        " which CPUs are near.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", dest="topo_json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises GputopErrors."""
    frame = _frame()
    if options.topo_json:
        write(topology_json(frame) + "\n", "utf-8")
    else:
        write(topology_text(frame))
    return 0


def _frame() -> Frame:
    """The first frame that tells all, or the one after some patience."""
    end = time.monotonic() + _PATIENCE
    with closing(LocalSource(0.2)) as source:
        for frame in source.frames():
            over = time.monotonic() >= end
            if frame.problem is not None and (over or frame.problem.kind != "not_answering"):
                raise DriverError(str(frame.problem))
            if over or (frame.links is not None and frame.topology is not None):
                return frame
    raise SourceError("the agent sends no more frames")
