"""`gputop export`: serves metrics to Prometheus, or writes them to a file."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import closing
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING

from gputop.commands.shared.server_options import (
    Address,
    Reloader,
    address,
    authorization,
    tls_context,
)
from gputop.commands.shared.unit import unit_command
from gputop.errors import DriverError, GputopError, UsageError
from gputop.files import chosen_parent, reason_of
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.output import complain, write
from gputop.sources.ask import frames_of
from gputop.sources.follow import follow
from gputop.sources.opening import open_source

if TYPE_CHECKING:
    from gputop.export.prometheus.exposition import Exposition

_LISTEN = Address("127.0.0.1", 19400)
_INTERVAL = 5.0
_FILE = "gputop.prom"
_NAMES = "gputop", "dcgm"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_INDEX = b'<!doctype html><title>gputop</title><a href="/metrics">metrics of the GPUs here</a>\n'
_ONCE = "print the metrics once, or with --textfile write them once, and exit"
_EVERY = (
    f"seconds between readings of the driver (default: {_INTERVAL:g}); however many scrape, it is"
    " not read more often"
)
DESCRIPTION = "Serve the GPUs of this machine, and who is on them, to Prometheus."
EPILOG = """\
examples:
  gputop export                            serve http://127.0.0.1:19400/metrics
  gputop export --listen 0.0.0.0:19400 --tls-cert cert.pem --tls-key key.pem
  gputop export --names gputop,dcgm        for dashboards of dcgm-exporter as well
  gputop export --textfile /var/lib/prometheus/node-exporter
  gputop export --once | promtool check metrics
  gputop export --rules > /etc/prometheus/gputop.rules.yml
  gputop export --dashboard > gputop.json  to import in Grafana
  gputop export --no-users --unit          print a systemd unit that serves for good

A machine with 8 GPUs makes about 700 series, and on each GPU up to 3 for each
of 20 users and 20 jobs. --processes makes up to 7 for each process on a GPU,
200 processes at most, and new ones whenever one starts: for machines with few,
long jobs. --names gputop,dcgm adds about 150.

Certificates, keys and the password are read anew when they change, and at SIGHUP.

exit status: 0 done, or ended by SIGTERM, 1 other errors, 2 usage, 3 the NVIDIA
driver cannot be read (--once)
"""
TAKES = {"demo": "", "once": _ONCE, "interval": _EVERY}
_SERVED = ("--tls-cert", "--tls-key", "--tls-client-ca", "--auth-file")
APART = (
    *((option, other) for option in _SERVED for other in ("--textfile", "--once")),
    ("--listen", "--once"),
    *(("--unit", other) for other in ("--once", "--rules", "--dashboard")),
)  # fmt: skip
_UNIT = """\
# What gputop export --unit printed. To have it done from now on, as root:
#   gputop export --unit > /etc/systemd/system/gputop-export.service
#   systemctl enable --now gputop-export

[Unit]
Description=Serve the GPUs to Prometheus (gputop)
Wants=network-online.target
After=network-online.target nvidia-persistenced.service

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=10
KillMode=mixed
NoNewPrivileges=yes
ProtectSystem={protected}

[Install]
WantedBy=multi-user.target
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--listen", metavar="HOST:PORT", type=address,
        help=f"where it listens (default: {_LISTEN}); port 0 picks a free one")  # fmt: skip
    where.add_argument("--textfile", metavar="DIR",
        help=f"write {_FILE} into this folder for node_exporter, and listen nowhere")  # fmt: skip
    where.add_argument("--rules", action="store_true",
        help="print recording rules and alerts for Prometheus, and exit")  # fmt: skip
    where.add_argument("--dashboard", action="store_true",
        help="print a dashboard for Grafana, and exit")  # fmt: skip
    add("--unit", action="store_true",
        help="print a unit for systemd that does this for good, and exit")  # fmt: skip
    add("--names", metavar="LIST", type=_names, default=("gputop",),
        help="whose names, labels and units metrics have: gputop (default), dcgm (as"
        " dcgm-exporter) or gputop,dcgm")  # fmt: skip
    add("--processes", action="store_true", help="single processes as well, see below")
    add("--no-users", action="store_true",
        help="no names of users, pods and containers, and no command lines")  # fmt: skip
    add("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    add("--tls-key", metavar="FILE", help="its key, if that is in a separate file")
    add("--tls-client-ca", metavar="FILE",
        help="require client certificates signed by this one")  # fmt: skip
    add("--auth-file", metavar="FILE",
        help="require the USER:PASSWORD on its only line (basic auth)")  # fmt: skip


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    if not set(names) <= set(_NAMES):
        raise argparse.ArgumentTypeError(f"{text!r} is not gputop, dcgm or gputop,dcgm")
    return names


def run(options: argparse.Namespace) -> int:
    if options.processes and "gputop" not in options.names:
        raise UsageError("--processes needs gputop in --names: dcgm-exporter has no processes")
    if options.rules or options.dashboard:
        from gputop.export.prometheus.dashboard import dashboard

        write(rules() if options.rules else dashboard(), "utf-8")
        return 0
    if options.unit:
        write(_unit(options))
        return 0
    exposition = _exposition(options)
    if options.once:
        return _once(options, exposition)
    signal.signal(signal.SIGHUP, lambda *_: None)
    if options.textfile is not None:
        return _write_files(options, exposition)
    return _serve(options, exposition)


def rules() -> str:
    """Return recording rules and alerts for Prometheus."""
    folder = resources.files("gputop.export.prometheus")
    return folder.joinpath("rules.yml").read_text(encoding="utf-8")


def _unit(options: argparse.Namespace) -> str:
    """Return a unit that does the same wherever systemd starts it."""
    words = ["export", f"--names={','.join(options.names)}"]
    if options.textfile is None:
        words.append(f"--listen={options.listen or _LISTEN}")
    words += [f"--{name.replace('_', '-')}={os.path.abspath(path)}"
              for name in ("textfile", "tls_cert", "tls_key", "tls_client_ca", "auth_file")
              if (path := getattr(options, name)) is not None]  # fmt: skip
    words += [f"--{name.replace('_', '-')}" for name in ("processes", "no_users", "demo")
              if getattr(options, name)]  # fmt: skip
    words.append(f"--interval={_interval(options):g}")
    protected = "strict" if options.textfile is None else "full"  # which lets it write below /var
    return _UNIT.format(command=unit_command(words), protected=protected)


def _exposition(options: argparse.Namespace) -> Exposition:
    try:
        from gputop.export.prometheus.exposition import Exposition, Scope
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        advice = "pip install 'gputop-tui[prometheus]', in a clone '.[prometheus]'"
        raise GputopError(f"gputop export needs prometheus_client: {advice}") from None
    serves = options.textfile is None and not options.once
    names = frozenset(options.names)
    scope = Scope(names, options.processes, named=not options.no_users, itself=serves)
    return Exposition(time.time, scope)


def _interval(options: argparse.Namespace) -> float:
    return float(options.interval or _INTERVAL)


def _once(options: argparse.Namespace, exposition: Exposition) -> int:
    """Write one reading, or that there is none; then raise DriverError or SourceError if so."""
    message: Frame | GputopError
    with closing(open_source(None, None, demo=options.demo)) as source:
        try:
            message = next(frames_of(source))
        except GputopError as error:
            message = error
    exposition.put(message)
    if options.textfile is None:
        write(exposition.text().decode(), "utf-8")
    else:
        _publish(options.textfile, exposition)
    if isinstance(message, GputopError):
        raise message
    if message.problem is not None:
        raise DriverError(str(message.problem))
    return 0


def _write_files(options: argparse.Namespace, exposition: Exposition) -> int:
    """Write a file for every reading until SIGTERM; the last file says that export has ended."""
    said = ""

    def put(message: Frame | GputopError) -> None:
        nonlocal said
        exposition.put(message)
        words = str(message) if isinstance(message, GputopError) else ""
        try:
            _publish(options.textfile, exposition)
        except GputopError as error:
            words = str(error)
        if words and words != said:
            complain(printable(words))
        said = words

    _publish(options.textfile, exposition)  # at once, so that an error ends gputop here
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with closing(open_source(None, _interval(options), demo=options.demo)) as source:
        try:
            follow(source, frames_of, put)
        finally:
            exposition.put(GputopError("gputop export has ended"))
            _publish(options.textfile, exposition)
    return 0


def _publish(folder: str, exposition: Exposition) -> None:
    path = os.path.join(folder, _FILE)
    try:
        parent, name = chosen_parent(path)
        with parent:
            parent.publish(name, exposition.text(), 0o644)
    except (OSError, ValueError) as error:
        raise GputopError(f"{printable(path)} cannot be written: {reason_of(error)}") from None


def _serve(options: argparse.Namespace, exposition: Exposition) -> int:
    from gputop.export.http import WebPage, WebServer, is_own_name

    where = options.listen or _LISTEN
    files = options.tls_cert, options.tls_key, options.tls_client_ca
    tls = Reloader(partial(tls_context, *files), *files)
    wanted = Reloader(partial(authorization, options.auth_file), options.auth_file)
    is_open = options.auth_file is None and options.tls_client_ca is None
    pages = {"/metrics": WebPage(_TEXT, exposition.text), "/": WebPage("text/html", lambda: _INDEX)}

    def begin(port: int) -> None:
        scheme = "http" if tls() is None else "https"
        complain(f"serving {scheme}://{where._replace(port=port)}/metrics")
        if is_open and not where.is_loopback and not options.no_users:
            complain("whoever reaches that port can read who works here: see --auth-file,"
                     " --tls-client-ca and --no-users")  # fmt: skip

    def renew() -> None:
        tls.renew()
        wanted.renew()

    with closing(open_source(None, _interval(options), demo=options.demo)) as source:
        reader = threading.Thread(
            target=follow, args=(source, frames_of, exposition.put), daemon=True
        )
        reader.start()
        # A web page of somebody else, whose name leads here, is not to get past the loopback.
        own = partial(is_own_name, listen=where.host) if is_open and where.is_loopback else None
        server = WebServer(pages, tls, wanted, own)
        try:
            asyncio.run(server.serve(where.host, where.port, begin, renew))
        except OSError as error:
            raise GputopError(f"cannot listen on {where}: {reason_of(error)}") from None
    return 0
