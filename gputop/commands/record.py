"""`gputop record`: writes down what happens on the GPUs."""

from __future__ import annotations

import argparse
import os
import re
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import NoReturn

from gputop.commands.shared.hosts import complain_of, of_host
from gputop.commands.shared.options import HOSTS
from gputop.commands.shared.unit import unit_command
from gputop.commands.shared.values import duration, size
from gputop.errors import DriverError, GputopError, UsageError
from gputop.model.machine.frame import Frame
from gputop.output import complain, write
from gputop.protocol.messages import MAX_INTERVAL
from gputop.recording.contents import Commands, recorded
from gputop.recording.counting import make_sums
from gputop.recording.days import default_folder
from gputop.recording.writer import Limits, RecordingWriter, host_writers
from gputop.settings import user_named
from gputop.sources.follow_hosts import HostFollower
from gputop.sources.ssh.names import HostName

DESCRIPTION = (
    "Write down what happens on the GPUs. What is written can be read at once, and"
    " stays readable however the recorder ends."
)
EPILOG = """\
examples:
  gputop record                            this machine, until Ctrl-C
  gputop record night.gputop --every 2s    into one file
  gputop record -H @lab --keep 90d         all hosts of a group
  gputop record --unit                     print a systemd unit that does it for good

exit status: 0 ended by Ctrl-C or SIGTERM, 1 it cannot record, 2 usage
"""
_UNIT = """\
# What gputop record --unit printed. To have it done from now on:
#   gputop record --unit > ~/.config/systemd/user/gputop-record.service
#   systemctl --user enable --now gputop-record
#   loginctl enable-linger    (also while nobody is logged in)

[Unit]
Description=Record what happens on the GPUs (gputop)

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=30
KillMode=mixed
UMask=0077
Nice=10

[Install]
WantedBy=default.target
"""
_TOGETHER = 10
"""Recorded samples that are counted after each new one, until the last hour is: 2 ms."""
_DIGITS = re.compile(r"[0-9]+")
"""Numbers in an error: if only they change, as in `no answer for 12 s`, it is the same error."""
_every = duration("a time from 1s to 60s, as 10s", least=1, most=MAX_INTERVAL)
_keep = duration("a time from 1d on, as 30d", least=86400)
TAKES = {**HOSTS, "demo": "record the invented machine, where FILE|FOLDER says"}


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", metavar="FILE|FOLDER", nargs="?",
        help="a folder, or a name that ends with /: a file a day there; another name: that one file"
        " (default: ~/.local/state/gputop/recordings, or below $XDG_STATE_HOME)")  # fmt: skip
    add("--every", metavar="TIME", type=_every, default=10.0,
        help="time between two samples, 1s to 60s (default: 10s)")  # fmt: skip
    add("--keep", metavar="TIME", type=_keep, default=_keep("30d"),
        help="keep so many recorded days of a folder, besides today (default: 30d)")  # fmt: skip
    add("--max-size", metavar="SIZE", type=size, default=size("2G"),
        help="delete the oldest days to stay below (default: 2G)")  # fmt: skip
    add("--commands", choices=("none", "script", "all"), default="script",
        help="of other users' commands: nothing, the name of the program or script (default), or"
        " all of it; never what looks like a secret")  # fmt: skip
    add("--unit", action="store_true",
        help="print a unit for systemd --user that records, and record nothing")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    if options.demo and options.path is None:
        raise UsageError("--demo needs a path to record to, such as demo/")
    path = options.path or os.path.join(default_folder(), "")
    if options.unit:
        write(_UNIT.format(command=unit_command(["record", *_options(path, options)])))
        return 0
    # SIGTERM may come at any point: a recording stays readable if it is cut at any byte.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    limits = Limits(options.keep, options.max_size)
    try:
        with ExitStack() as stack:
            writers = _writers(stack, path, options, limits)
            where, hosts = os.path.abspath(path), options.hosts or (None,)
            write(f"recording {_whom(options)} every {options.every:g} s to {where}\n")
            follower = HostFollower(hosts, options.every, options.demo)
            stack.callback(follower.close)
            _record(writers, where, options, follower)
    except KeyboardInterrupt:
        return 0


def _writers(
    stack: ExitStack, path: str, options: argparse.Namespace, limits: Limits
) -> Mapping[str, RecordingWriter]:
    """Return the writer of each host, of this machine under an empty name. None takes what is
    another's. GputopError."""
    hosts = [host.requested_name for host in options.hosts]
    if hosts and (path.endswith("/") or os.path.isdir(path)):
        return host_writers(stack, path, hosts, options.every, limits, complain)
    writer = RecordingWriter(path, options.every, limits, complain, hosts=max(1, len(hosts)))
    stack.callback(writer.close)
    return dict.fromkeys(hosts or [""], writer)


def _whom(options: argparse.Namespace) -> str:
    hosts = options.hosts
    if not hosts:
        return "the demo" if options.demo else "this machine"
    return hosts[0].requested_name if len(hosts) == 1 else f"{len(hosts)} hosts"


def _record(
    writers: Mapping[str, RecordingWriter],
    path: str,
    options: argparse.Namespace,
    follower: HostFollower,
) -> NoReturn:
    """Record until no host is left that can be recorded, which is a GputopError."""
    me = user_named("me")
    problems: dict[HostName | None, str] = {}
    swollen: set[HostName | None] = set()
    sums = make_sums(Path(path)) if os.path.isdir(path) else iter(())
    for host, news in follower:
        if isinstance(news, Frame):
            name = news.host.name if host is None else host.requested_name
            named = host.target.rpartition("@")[0] or None if host else me
            writer = writers["" if host is None else host.requested_name]
            is_swollen = writer.is_swollen
            if is_swollen and host not in swollen:
                complain(
                    of_host(host, "this day's file is large: other users' commands are left out")
                )
            (swollen.add if is_swollen else swollen.discard)(host)
            commands: Commands = "none" if is_swollen else options.commands
            writer.append(name, recorded(news, commands, follower.user_of(host) or named))
            for _ in islice(sums, _TOGETHER):
                pass
        problem = _problem_of(news)
        before, problems[host] = problems.get(host, ""), _DIGITS.sub("", str(problem or ""))
        if problem is not None and problems[host] != before:
            complain_of(host, problem)
        elif problem is None and before:
            complain(of_host(host, "the GPUs can be read again"))
    raise GputopError("no host is left that can be recorded")


def _problem_of(news: Frame | GputopError) -> GputopError | None:
    """Return why the GPUs of a machine cannot be read; None if they can."""
    if isinstance(news, GputopError):
        return news
    return None if news.problem is None else DriverError(str(news.problem))


def _options(path: str, options: argparse.Namespace) -> list[str]:
    """Return options that mean the same wherever systemd starts it: groups become their hosts."""
    folder = path.endswith("/")
    words = [
        os.path.abspath(path) + "/" * folder,
        f"--every={options.every:g}s",
        f"--keep={options.keep / 86400:g}d",
        f"--max-size={options.max_size:.0f}",
        f"--commands={options.commands}",
    ]
    words += [f"--host={host.requested_name}" for host in options.hosts]
    return [*words, "--demo"] if options.demo else words
