"""`gputop free`: picks GPUs for a new job."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from functools import partial
from typing import TYPE_CHECKING

from gputop.allocation.gpu_watch import Picked, Watch, not_enough, plain_value, tally
from gputop.commands.shared.hosts import complain_of, named, of_host, timeout_of
from gputop.commands.shared.options import HOSTS_ONCE, JSON, PROMETHEUS_APART
from gputop.commands.targets.gpu_request import add_pick_options, pick_request
from gputop.deadline import within
from gputop.errors import GputopError, UsageError
from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.cuda.pick import PickedValue, PickRequest, value_of
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.gpu import GpuPart, parts_of
from gputop.model.machine.text import duration
from gputop.output import complain, write
from gputop.sources.agent_process import ANSWER
from gputop.sources.ask import TIMEOUT
from gputop.sources.many import first_fitting
from gputop.sources.ssh.client import CONFIG
from gputop.sources.ssh.names import HostName

if TYPE_CHECKING:
    from gputop.sources.prometheus.free import FreeHost

_WATCHED = ("--wait", "--min-free", "--max-util", "--exclude", "--shared", "--window")
"""Options that require watching GPUs, which a Prometheus server does not do."""
_CLUSTER_TIMEOUT = 60.0
"""Seconds for all queries of a Prometheus server."""
_CLUSTER = "HOST GPU,GPU of one of the machines that a Prometheus server knows"
DESCRIPTION = "Pick GPUs for a new job and print the CUDA_VISIBLE_DEVICES that names them."
EPILOG = """\
examples:
  export CUDA_DEVICE_ORDER=PCI_BUS_ID      as nvidia-smi counts, once for all of these
  CUDA_VISIBLE_DEVICES=$(gputop free -n 2) python train.py     two GPUs that nobody uses
  gputop free --min-free 20GiB --shared    one with so much free, others may be on it
  gputop free -n 4 --same-model --wait 2h  wait for four of a kind
  eval "$(gputop free --format export)"    for all that this shell starts
  gputop free -H @lab -n 2                 HOST GPU,GPU of the first host that has them
  eval "$(gputop free -H @lab --format ssh)"    a shell there that has the GPU
  gputop free --prometheus http://prometheus:9090 --model H100 -n 4

exit status: 0 chosen, 1 there are not enough (nothing is printed, and an empty
CUDA_VISIBLE_DEVICES hides every GPU), 2 usage, 3 the NVIDIA driver cannot be read
"""
TAKES = {**HOSTS_ONCE, **JSON, "demo": "", "prometheus": _CLUSTER}
NEEDS = {"--shared": ("--min-free",), "--model": ("--prometheus",)}
APART = (*PROMETHEUS_APART, *(("--prometheus", other) for other in ("--timeout", *_WATCHED)))


def add_options(parser: argparse.ArgumentParser) -> None:
    add_pick_options(parser)
    add = parser.add_argument
    add("--model", metavar="NAME", help="with --prometheus: of a model with this in its name")
    add("--format", dest="form", choices=("index", "uuid", "export", "ssh"),
        default="index",
        help="indices (none where they may mean other GPUs), UUIDs, a line for this shell, or with"
        " -H the line that starts a shell there (default: index)")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    elsewhere = "--prometheus" if options.prometheus is not None else "-H" * bool(options.hosts)
    if options.form == "ssh" and not elsewhere:
        raise UsageError("--format ssh needs -H: it prints what starts a shell there")
    if options.form == "export" and elsewhere:
        raise UsageError(f"--format export is for this shell: with {elsewhere} give --format ssh")
    request = pick_request(options)
    if options.prometheus is not None:
        return _run_cluster(options, options.prometheus)
    if options.hosts:
        host, picked = _first_that_fits(options, request)
    else:
        host, picked = None, _picked(options, request, None)
    return _print(options, request, host, picked)


def _print(
    options: argparse.Namespace, request: PickRequest, host: HostName | None, picked: Picked
) -> int:
    """Print what was picked. NotEnoughGpusError."""
    frame, pick = picked
    order = PCI_BUS_ID if options.form in ("export", "ssh") else request.order
    value = value_of(frame, pick.parts, order, _by_uuid(options)) if pick.parts else PickedValue()
    notes = [note for note in (pick.note, value.note) if note]
    for note in notes if pick.parts else ():  # otherwise the error says it
        complain(of_host(host, note))
    if options.json:
        _write(named(_json(picked, value.text, notes), host))
    elif value.text:
        _write(line_for(options.form, host, value.text))
    if not pick.parts:
        raise not_enough(picked, request)
    return 0 if value.text else 1


def line_for(form: str, host: HostName | None, value: str) -> str:
    """Return the line for a person or a shell. SourceError for a value with characters that mean
    something to a shell: the driver there made it, or a program that poses as one."""
    plain_value(value)
    if form == "ssh" and host is not None:
        return shell_line(host, value)
    exported = f"export {ORDER}={PCI_BUS_ID} {NAME}=" if form == "export" else ""
    return f"{exported}{value}" if host is None else f"{host.requested_name} {value}"


def shell_line(host: HostName, value: str) -> str:
    """Return the line that starts a login shell on the host that sees only these GPUs. A shell here
    reads it, and then the user's shell there, which may be sh, csh or fish."""
    config, port = os.environ.get(CONFIG), host.port
    options = [*(("-F", config) if config else ()), *(("-p", str(port)) if port else ())]
    remote = f"exec env {ORDER}={PCI_BUS_ID} {NAME}={value} $SHELL -l"
    return shlex.join(["ssh", "-t", *options, "--", host.target, remote])


def _by_uuid(options: argparse.Namespace) -> bool:
    return bool(options.uuid or options.form == "uuid")


def _json(picked: Picked, value: str | None, notes: list[str]) -> str:
    parts = {part.number: _facts(part) for part in parts_of(picked.frame.gpus)}
    gpus = [parts[number] for number in picked.pick.numbers]
    return json.dumps({"value": value, "gpus": gpus, "refused": _refused(picked), "notes": notes})


def _refused(picked: Picked) -> list[dict[str, object]]:
    parts = {part.number: _facts(part) for part in parts_of(picked.frame.gpus)}
    return [{**parts[n], "reason": reason} for n, reason in picked.pick.reasons.items()]


def _facts(part: GpuPart) -> dict[str, object]:
    gpu, device = part.gpu, part.device
    facts: dict[str, object] = {"gpu": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.pci_bus_id}
    return facts if device is None else {**facts, "mig": part.number, "mig_uuid": device.uuid}


def _write(line: str) -> None:
    write(f"{line}\n", "utf-8", required=True)


# Several hosts


def _first_that_fits(options: argparse.Namespace, request: PickRequest) -> tuple[HostName, Picked]:
    """Return the first host that answers with enough GPUs, and of those that answer at the same
    time the first of -H. GputopError if none has enough in time."""
    ask = partial(_picked, options, request)
    seconds = ANSWER + TIMEOUT + options.window + options.wait
    chosen, answers = first_fitting(options.hosts, ask, lambda it: bool(it.pick.parts), seconds)
    picks = dict[HostName, Picked]()
    for host in filter(answers.__contains__, options.hosts):
        answer = answers[host]
        if isinstance(answer, GputopError):
            complain_of(host, answer)
        else:
            picks[host] = answer
    if chosen:
        return chosen, picks[chosen]
    for host, picked in picks.items():
        complain(of_host(host, tally(picked.pick, request)))
    if options.json:  # as with a host that is picked, and with the host of each GPU
        refused = [
            {"host": host.requested_name, **gpu}
            for host, picked in picks.items()
            for gpu in _refused(picked)
        ]
        nothing = {"host": None, "value": None, "gpus": [], "refused": refused, "notes": []}
        _write(json.dumps(nothing))
    raise GputopError(f"no host has enough GPUs: {request.count} requested")


def _picked(options: argparse.Namespace, request: PickRequest, host: HostName | None) -> Picked:
    def say(words: str) -> None:
        complain(of_host(host, words))

    wait, timeout = options.wait, timeout_of(options)
    return Watch(request, wait, options.window, host, options.demo, say, timeout).watch()


# A cluster


def _run_cluster(options: argparse.Namespace, url: str) -> int:
    """Print GPUs of one model on a host that has enough free ones, as a Prometheus server knows,
    and how old that knowledge is. GputopError if no host has enough."""
    pick = _free_host(options, url)
    by_uuid = _by_uuid(options)
    value = ",".join(gpu.uuid or "" if by_uuid else str(gpu.index) for gpu in pick.gpus)
    line = line_for(options.form, pick.host, value)
    if options.json:
        gpus = [{"gpu": gpu.index, "uuid": gpu.uuid} for gpu in pick.gpus]
        age = None if pick.age is None else round(pick.age, 1)
        facts = {"host": pick.host.requested_name, "value": value, "gpus": gpus, "age": age}
        line = json.dumps(facts)
    _write(line)
    return 0


def _free_host(options: argparse.Namespace, url: str) -> FreeHost:
    from gputop.sources.prometheus.client import PrometheusClient, headers_of
    from gputop.sources.prometheus.free import find_free
    from gputop.sources.prometheus.queries import find_site

    client = PrometheusClient(url, headers_of(os.environ))
    model, count = options.model or "", options.count
    try:
        pick = within(_CLUSTER_TIMEOUT, lambda: find_free(find_site(client), model, count))
    except TimeoutError:
        raise client.error(f"no complete answer within {_CLUSTER_TIMEOUT:g} s") from None
    age = "" if pick.age is None else f", {duration(pick.age)} old"
    guess = "" if pick.exporter.free else "; it does not say who is on a GPU"
    complain(f"{pick.host.requested_name}: by {pick.exporter.name}{age}{guess}")
    return pick
