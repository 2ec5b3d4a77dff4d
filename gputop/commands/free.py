"""`gputop free`: its options, and what they do."""

from __future__ import annotations

import argparse
import json
from functools import partial

from gputop.commands.free_cluster import free_host, value_of, write_json
from gputop.commands.free_hosts import first_that_fits, shell_line
from gputop.commands.hosts import add_command_hosts, named, of_host
from gputop.commands.picking import add_pick_options, pick_request, plain_value
from gputop.commands.watching import Picked, not_enough, say_waiting, watch_gpus
from gputop.errors import UsageError
from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.cuda.pick import Form, GpuPick, PickedValue, PickRequest, value_for
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.frame import Frame
from gputop.output import complain, write
from gputop.sources.ssh.names import HostName

DESCRIPTION = "Pick GPUs for a new job and print the CUDA_VISIBLE_DEVICES that names them."
EPILOG = """\
examples:
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


def add_options(parser: argparse.ArgumentParser) -> None:
    add_command_hosts(parser)
    add_pick_options(parser)
    add = parser.add_argument
    add("--prometheus", dest="free_prometheus", metavar="URL",
        help="HOST GPU,GPU of one of the machines that a Prometheus server knows")  # fmt: skip
    add("--model", metavar="NAME", help="with --prometheus: of a model with this in its name")
    add("--format", dest="form", choices=("uuid", "index", "export", "ssh"),
        default="uuid",
        help="UUIDs, indices where exact, a line for this shell, or with -H the line that starts"
        " a shell there (default: uuid)")  # fmt: skip
    add("--json", dest="free_json", action="store_true", help="print a line of JSON")


def run(options: argparse.Namespace) -> int:
    if url := options.free_prometheus or options.prometheus:
        return _print_cluster(options, url)
    _check(options)
    request = pick_request(options, elsewhere=bool(options.hosts))
    if not options.hosts:
        wait, begin = options.wait or 0, partial(say_waiting, request)
        return _print(options, request, None, watch_gpus(None, options, request, wait, begin))
    host, picked = first_that_fits(options, request)
    return _print(options, request, host, picked)


def _print_cluster(options: argparse.Namespace, url: str) -> int:
    """Print what a Prometheus server knows to be free. GputopError where there is not enough."""
    found = free_host(options, url)
    value = value_of(found, options.form)
    line = _line(options.form, found.host, value)
    if options.free_json:
        write_json(found, value)
    else:
        write(line, "utf-8", required=True)
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.form == "ssh" and not options.hosts:
        raise UsageError("--format ssh goes with -H: it prints what starts a shell there")
    if options.form == "export" and options.hosts:
        raise UsageError("--format export is for this shell: with -H give --format ssh")
    if options.model is not None:
        raise UsageError("--model goes with --prometheus URL")


def _print(
    options: argparse.Namespace, request: PickRequest, host: HostName | None, picked: Picked
) -> int:
    """Print what was picked; GputopError where there is not enough."""
    frame, pick = picked
    form: Form = "export" if options.form == "ssh" else options.form
    value = value_for(frame, pick.gpus, request.order, form) if pick.gpus else None
    notes = [note for note in (pick.note, value.note if value else None) if note]
    for note in notes:
        complain(of_host(host, note))
    error = not_enough(frame, pick, request) if value is None else None
    if options.free_json:
        write(named(_json(frame, pick, value, notes), host) + "\n", "utf-8", required=True)
    elif value:
        write(_line(options.form, host, value.text), "utf-8", required=True)
    if error is not None:
        raise error
    return 0


def _line(form: str, host: HostName | None, value: str) -> str:
    """Return the line for a person or a shell. SourceError for a value that a shell would read
    more into: the driver there, or what says that it is one, made it."""
    plain_value(value)
    if form == "ssh" and host is not None:
        return f"{shell_line(host, value)}\n"
    exported = f"export {ORDER}={PCI_BUS_ID} {NAME}=" if form == "export" else ""
    return f"{exported}{value}\n" if host is None else f"{host.asked} {value}\n"


def _json(frame: Frame, pick: GpuPick, value: PickedValue | None, notes: list[str]) -> str:
    gpus = {
        gpu.index: {"gpu": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.pci_bus_id}
        for gpu in frame.gpus
    }
    picked = [gpus[gpu.index] for gpu in pick.gpus or ()]
    refused = [{**gpus[index], "reason": reason} for index, reason in pick.reasons.items()]
    text = value and value.text
    return json.dumps({"value": text, "gpus": picked, "refused": refused, "notes": notes})
