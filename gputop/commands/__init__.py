"""The sub-commands, a module each: `add_parser` declares the options, `run` does the work.

A module is imported only when its command is given: the others need not wait for it.
"""

from __future__ import annotations

HELP = {
    "config": "print the settings that hold, check them, tell where they are",
    "doctor": "tell what is wrong with a machine or a Python environment",
    "free": "pick GPUs for a new job",
    "kill": "stop processes on GPUs",
    "map": "tell what a CUDA_VISIBLE_DEVICES means",
    "topo": "tell how GPUs are connected, and which CPUs are near",
}
"""Every command with its line in `gputop --help`."""
