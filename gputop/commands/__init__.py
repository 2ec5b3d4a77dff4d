"""The sub-commands, a module each: `add_parser` declares the options, `run` does the work.

A module is imported only when its command is given: the others need not wait for it.
"""

from __future__ import annotations

HELP = {
    "config": "print the settings, or check them",
    "doctor": "find out what is wrong with a machine or a Python environment",
    "export": "serve metrics to Prometheus",
    "free": "pick GPUs for a new job",
    "help": "show a page of the manual, or find a word in it",
    "kill": "end processes on GPUs",
    "map": "explain a CUDA_VISIBLE_DEVICES: which GPU is cuda:0",
    "serve": "show the screen in a browser, to look at",
    "record": "write down what happens on the GPUs, for later",
    "topo": "show how GPUs are connected, and which CPUs are near",
}
"""Every command with its line in `gputop --help`."""
