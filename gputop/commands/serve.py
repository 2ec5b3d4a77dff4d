"""`gputop serve`: shows the screen in browsers, read-only."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

from gputop.commands.shared.options import HOSTS, PROMETHEUS_APART
from gputop.commands.shared.server_options import Address, address, token_of
from gputop.errors import GputopError, UsageError
from gputop.model.machine.text import printable
from gputop.output import complain, write
from gputop.settings import session_of
from gputop.sources.opening import open_source
from gputop.sources.prometheus.client import PrometheusClient, headers_of
from gputop.sources.shared import Broadcast, share

if TYPE_CHECKING:
    from gputop.export.browser.viewer import Window

_MAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "__main__.py")
DESCRIPTION = "Show the screen in browsers, read-only."
EPILOG = """\
examples:
  gputop serve                          prints the address to open here
  ssh -L 8787:127.0.0.1:8787 node-07    and from elsewhere, before opening it
  gputop serve -H @lab                  all hosts of a group on one page
  gputop serve --prometheus http://prometheus:9090    thousands of machines

Whoever has the address sees what gputop shows to you: processes, users, command lines. Nothing can
be signalled, run or saved from a browser.

exit status: 0 ended by Ctrl-C or SIGTERM, 1 other errors, 2 usage
"""
TAKES = {**HOSTS, "demo": "", "prometheus": "", "interval": "", "theme": ""}
APART = (("--no-token", "--token-file"), *PROMETHEUS_APART)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", type=address, default=Address("127.0.0.1", 8787),
        help="where browsers connect; 0 takes a free port (default: 127.0.0.1:8787)")  # fmt: skip
    add("--no-token", action="store_true",
        help="no secret in the address: every user of this machine can look")  # fmt: skip
    add("--token-file", metavar="FILE",
        help="the secret of the address, which then outlasts the server")  # fmt: skip
    add("--viewers", metavar="N", type=int, default=8,
        help="the most browsers at once; each takes about 60 MiB (default: 8)")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    try:
        from gputop.export.browser.server import BrowserServer
    except ImportError:
        install = "pip install 'gputop-tui[serve]', in a clone '.[serve]'"
        raise GputopError(f"gputop serve needs textual-serve: {install}") from None
    if options.viewers < 1:
        raise UsageError(f"--viewers {options.viewers} is not a number of browsers")
    token = "" if options.no_token else secrets.token_urlsafe(24)
    if options.token_file is not None:
        token = token_of(options.token_file)
    host, port = options.listen
    with ExitStack() as stack:
        door = partial(share, _hold_sources(options, stack))
        server = BrowserServer(partial(_viewer, options), door, token, options.viewers)
        server.run(host, port, partial(_say_where, options.listen, bool(token)))
    return 0


def _hold_sources(options: argparse.Namespace, stack: ExitStack) -> list[Broadcast]:
    """Return what viewers share: nothing of a Prometheus server, which each asks itself."""
    if options.prometheus is not None:
        PrometheusClient(options.prometheus, headers_of(os.environ))  # to say at once what is wrong
        return []
    opened = partial(open_source, interval=session_of(options).interval, waits=True)
    return [
        stack.enter_context(closing(Broadcast(opened(host, demo=options.demo))))
        for host in options.hosts or (None,)
    ]


def _viewer(options: argparse.Namespace, door: int, window: Window) -> list[str]:
    given = {
        "--theme": options.theme, "--prometheus": options.prometheus, "--interval": options.interval
    }  # fmt: skip
    words = [f"{flag}={value}" for flag, value in given.items() if value is not None]
    hosts = [host.requested_name for host in options.hosts]
    size = str(window.width), str(window.height)
    return [sys.executable, _MAIN, "viewer", *words, "--", str(door), *size, *hosts]


def _say_where(listen: Address, secret: bool, path: str, port: int) -> None:
    where = listen._replace(port=port)
    write(f"http://{where}{path}\n", required=True)
    if where.is_loopback:
        name = printable(os.uname().nodename, 64)
        complain(f"from elsewhere: ssh -L {port}:{where} {name}, then open it there")
    else:
        complain("anybody on the network can listen in: this is http; a proxy with TLS is safer")
    if not secret:
        complain("no token: whoever reaches this port can look")
