"""`gputop free -H`: the first of several hosts that has enough GPUs."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import time
from functools import partial

from gputop.commands.hosts import complain_of
from gputop.commands.watching import Picked, tally, watch_gpus
from gputop.errors import GputopError
from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.cuda.pick import PickRequest
from gputop.model.machine.environment import NAME, ORDER
from gputop.output import complain, write
from gputop.sources.many import ask_hosts, in_order
from gputop.sources.ssh.client import CONFIG
from gputop.sources.ssh.names import HostName


def first_that_fits(options: argparse.Namespace, request: PickRequest) -> tuple[HostName, Picked]:
    """Return the first host in the order of -H that has enough, or after that the first one that
    gets them. GputopError where none has, or does in time."""
    begun = time.monotonic()
    refused: dict[HostName, Picked] = {}
    ask = partial(watch_gpus, options=options, request=request, wait=0)
    for host, answer in in_order(options.hosts, ask_hosts(options.hosts, ask)):
        if isinstance(answer, GputopError):
            complain_of(host, answer)
        elif answer.pick.gpus:
            return host, answer
        else:
            refused[host] = answer
    for host, picked in refused.items():
        complain(f"{host.asked}: {tally(picked.pick, request)}")
    left = (options.wait or 0) - (time.monotonic() - begun)
    hopeful = [host for host, picked in refused.items() if picked.pick.possible]
    if left > 0 and hopeful:
        complain(f"waiting for {request.count} on any of {len(hopeful)} hosts")
        for host, answer in ask_hosts(hopeful, partial(ask, wait=left)):
            if isinstance(answer, GputopError):
                complain_of(host, answer)
            elif answer.pick.gpus:
                return host, answer
    if options.free_json:
        write(_refusals(refused) + "\n", "utf-8", required=True)
    raise GputopError(f"no host has enough GPUs: {request.count} requested")


def _refusals(refused: dict[HostName, Picked]) -> str:
    """Return JSON as that of a host which is picked, without one."""
    gpus = [
        {"host": host.asked, "gpu": index, "reason": reason}
        for host, (_, pick) in refused.items()
        for index, reason in pick.reasons.items()
    ]
    return json.dumps({"host": None, "value": None, "gpus": [], "refused": gpus, "notes": []})


def shell_line(host: HostName, value: str) -> str:
    """Return the line that starts a login shell of the user there that sees these GPUs. It is read
    by a shell here and then by theirs, be that sh, csh or fish."""
    config, port = os.environ.get(CONFIG), host.port
    options = [*(("-F", config) if config else ()), *(("-p", str(port)) if port else ())]
    remote = f"exec env {ORDER}={PCI_BUS_ID} {NAME}={value} $SHELL -l"
    return shlex.join(["ssh", "-t", *options, "--", host.target, remote])
