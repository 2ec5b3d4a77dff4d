"""`gputop free`: its options, and what they do."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from functools import partial

from gputop.commands import HELP
from gputop.commands.free_cluster import free_host, value_of, write_json
from gputop.commands.free_hosts import first_that_fits, shell_line
from gputop.commands.hosts import add_command_hosts, named
from gputop.commands.quantities import duration, percentage, size
from gputop.commands.watching import Picked, tally, watch_gpus
from gputop.errors import GputopError, SourceError, UsageError
from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.cuda.pick import Form, GpuPick, PickedValue, PickRequest, value_for
from gputop.model.health.free import AT_WORK, is_free
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import is_blank, printable, short_name
from gputop.output import complain, write
from gputop.sources.ssh.names import HostName

_EPILOG = """\
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
_PLAIN = re.compile(r"[\w/-]+(?:,[\w/-]+)*", re.ASCII)
_time = duration("a time, as 90, 10m or 2h")
_window = duration("a number of seconds from 0 to 60", most=60)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command; `run` takes what it parses."""
    parser = commands.add_parser(
        "free",
        help=HELP["free"],
        description="Pick GPUs for a new job and print the CUDA_VISIBLE_DEVICES that names them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_command_hosts(parser)
    add = parser.add_argument
    add("--prometheus", dest="free_prometheus", metavar="URL",
        help="HOST GPU,GPU of one of the machines that a Prometheus server knows")  # fmt: skip
    add("--model", metavar="NAME", help="with --prometheus: of a model with this in its name")
    add("-n", dest="count", metavar="N", type=int, default=1, help="how many (default: 1)")
    add("--min-free", metavar="SIZE", type=size,
        help="so much free memory, as 20GiB, 20G, 500MiB (default: nothing in use)")  # fmt: skip
    add("--max-util", metavar="PERCENT", type=percentage,
        help="not busier than that (default: 10, with --shared 100)")  # fmt: skip
    add("--exclude", metavar="LIST", help="not these: indices or beginnings of UUIDs")
    add("--same-model", action="store_true", help="demand one model (default: prefer it)")
    add("--shared", action="store_true", help="GPUs in use as well; goes with --min-free")
    add("--format", dest="form", choices=("uuid", "index", "export", "ssh"),
        default="uuid",
        help="UUIDs, indices where exact, a line for this shell, or with -H the line that starts"
        " a shell there (default: uuid)")  # fmt: skip
    add("--wait", metavar="TIME", type=_time, nargs="?", const=math.inf,
        help="wait until there are enough, at most 90, 10m or 2h (default: for ever)")  # fmt: skip
    add("--window", metavar="SEC", type=_window, default=2.0,
        help="watch the utilization so long (default: 2)")  # fmt: skip
    add("--json", dest="free_json", action="store_true", help="print a line of JSON")


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises GputopErrors: not enough is one."""
    if url := options.free_prometheus or options.prometheus:
        return _print_cluster(options, url)
    _check(options)
    request = _request(options)
    if not options.hosts:
        wait, begin = options.wait or 0, partial(_say_waiting, request)
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


def _say_waiting(request: PickRequest, pick: GpuPick) -> None:
    complain(f"waiting: {tally(pick, request)}")


def _print(
    options: argparse.Namespace, request: PickRequest, host: HostName | None, picked: Picked
) -> int:
    """Print what was picked; GputopError where there is not enough."""
    frame, pick = picked
    form: Form = "export" if options.form == "ssh" else options.form
    value = value_for(frame, pick.gpus, request.order, form) if pick.gpus else None
    notes = [note for note in (pick.note, value.note if value else None) if note]
    for note in notes:
        complain(note if host is None else f"{host.asked}: {note}")
    if value is None:
        _say_why(frame, pick)
    if options.free_json:
        write(named(_json(frame, pick, value, notes), host) + "\n", "utf-8", required=True)
    elif value:
        write(_line(options.form, host, value.text), "utf-8", required=True)
    if value is None:
        model = " of one model" if request.same_model and pick.suitable >= request.count else ""
        raise GputopError(f"not enough GPUs{model}: {tally(pick, request)}")
    return 0


def _say_why(frame: Frame, pick: GpuPick) -> None:
    """Say of every GPU why it cannot be had."""
    for gpu in frame.gpus:
        fits = "free" if is_free(frame, gpu) else "suitable"
        reason = pick.reasons.get(gpu.index, fits)
        complain(f"GPU {gpu.index} {short_name(gpu.name)}: {reason}")


def _line(form: str, host: HostName | None, value: str) -> str:
    """Return the line for a person or a shell. SourceError for a value that a shell would read
    more into: the driver there, or what says that it is one, made it."""
    if not _PLAIN.fullmatch(value):
        raise SourceError(f"a GPU calls itself {printable(value, 100)!r}, which is no UUID")
    if form == "ssh" and host is not None:
        return f"{shell_line(host, value)}\n"
    exported = f"export {ORDER}={PCI_BUS_ID} {NAME}=" if form == "export" else ""
    return f"{exported}{value}\n" if host is None else f"{host.asked} {value}\n"


def _request(options: argparse.Namespace) -> PickRequest:
    if options.shared and options.min_free is None:
        raise UsageError("--shared goes with --min-free SIZE: how much memory the job needs")
    if options.count < 1:
        raise UsageError(f"-n {options.count} is not a number of GPUs")
    limit = options.max_util
    if limit is None:
        limit = 100 if options.shared else AT_WORK * 100
    return PickRequest(
        count=options.count,
        min_free=options.min_free,
        max_utilization=limit / 100,
        shared=options.shared,
        same_model=options.same_model,
        exclude=_excluded(options.exclude),
        # On another machine our own variables mean nothing.
        value=None if options.hosts else os.environ.get(NAME),
        order=None if options.hosts else os.environ.get(ORDER),
    )


def _excluded(text: str | None) -> tuple[str, ...]:
    """Return the words; one that is empty is an error: `0,$OTHER` would leave out less."""
    words = () if text is None else tuple(word.strip() for word in text.split(","))
    if any(map(is_blank, words)):
        raise UsageError(f"--exclude {printable(text or '', 60)!r} has an empty entry")
    return words


def _json(frame: Frame, pick: GpuPick, value: PickedValue | None, notes: list[str]) -> str:
    gpus = {
        gpu.index: {"gpu": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.pci_bus_id}
        for gpu in frame.gpus
    }
    picked = [gpus[gpu.index] for gpu in pick.gpus or ()]
    refused = [{**gpus[index], "reason": reason} for index, reason in pick.reasons.items()]
    text = value and value.text
    return json.dumps({"value": text, "gpus": picked, "refused": refused, "notes": notes})
