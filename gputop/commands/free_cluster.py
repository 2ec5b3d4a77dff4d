"""`gputop free --prometheus`: a host of the cluster that has enough free GPUs of one model."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from gputop.errors import UsageError
from gputop.model.machine.text import duration
from gputop.output import complain, write

if TYPE_CHECKING:
    from gputop.sources.prometheus.free import FreeHost

_OWN = ("wait", "min_free", "max_util", "exclude", "shared")
"""Options for which GPUs would have to be watched."""


def free_host(options: argparse.Namespace, url: str) -> FreeHost:
    """Return the host, and say how old that is. GputopError where none has enough."""
    from gputop.sources.prometheus.client import PrometheusClient, headers_of
    from gputop.sources.prometheus.free import find_free
    from gputop.sources.prometheus.queries import find_exporter

    _check(options)
    queries = find_exporter(PrometheusClient(url, headers_of(os.environ)))
    found = find_free(queries, options.model or "", options.count)
    age = "" if found.age is None else f", {duration(found.age)} old"
    guess = "" if queries.exporter.free else "; who is on a GPU it does not tell"
    complain(f"{found.host.asked}: by {queries.exporter.name}{age}{guess}")
    return found


def value_of(found: FreeHost, form: str) -> str:
    """Return the GPUs as CUDA_VISIBLE_DEVICES takes them."""
    if form == "index":
        return ",".join(str(gpu.index) for gpu in found.gpus)
    return ",".join(gpu.uuid or "" for gpu in found.gpus)


def write_json(found: FreeHost, value: str) -> None:
    """Write a line of JSON."""
    gpus = [{"gpu": gpu.index, "uuid": gpu.uuid} for gpu in found.gpus]
    age = None if found.age is None else round(found.age, 1)
    facts = {"host": found.host.asked, "value": value, "gpus": gpus, "age": age}
    write(json.dumps(facts) + "\n", "utf-8", required=True)


def _check(options: argparse.Namespace) -> None:
    """UsageError for options that ask for more than Prometheus knows."""
    if options.hosts or options.demo:
        raise UsageError("--prometheus does not go with -H or --demo")
    if options.form == "export":
        raise UsageError("--format export is for this shell: with --prometheus give --format ssh")
    for name in _OWN:
        if getattr(options, name):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} does not go with --prometheus: give the host with -H")
    if options.count < 1:
        raise UsageError(f"-n {options.count} is not a number of GPUs")
