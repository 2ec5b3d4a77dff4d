"""The sub-commands, one module each, imported only when its command is given.

DESCRIPTION, EPILOG  what `--help` prints before and after the options
add_options(parser)  declares the options of its own
TAKES, NEEDS, APART  if it has any, what `shared.options` says of them
run(options)         does the work, and returns the exit status or raises a GputopError

screen, snapshot and line are gputop without a command.

targets/   which processes and GPUs the typed words mean; watch until they are free or reserved
shared/    the options that gputop and its commands share, their values, and asking several machines
           once, or following them, all at the same time
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
    "record": "write down what happens on the GPUs, for later",
    "replay": "show on the screen what was recorded",
    "reserve": "reserve GPUs for a shell, see what is reserved",
    "run": "run a program on free GPUs, and reserve them for it",
    "serve": "show the screen in a browser, to look at",
    "topo": "show how GPUs are connected, and which CPUs are near",
    "usage": "add up who held GPUs over days, from a recording",
    "wait": "wait until processes end or GPUs are free, and notify you",
}
"""Every command with its line in `gputop --help`."""
