"""The screen on a terminal, from its first picture to the text that is printed after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from gputop.output import write
from gputop.settings import session_of
from gputop.sources.feed import Feed, close_all
from gputop.sources.opening import open_source
from gputop.tui.terminal.splash import Splash

if TYPE_CHECKING:
    from argparse import Namespace

    from gputop.settings import Session
    from gputop.sources.prometheus.watch import ClusterWatch
    from gputop.tui.app import GputopApp


def run(options: Namespace) -> int:
    """Show this machine, the hosts, whose agents start before Textual is imported, or the machines
    that a Prometheus server knows."""
    if options.prometheus is not None:
        with closing(cluster_watch(options)) as cluster:
            return show((), session_of(options), cluster=cluster)
    session = session_of(options)
    feeds = [
        Feed(open_source(host, session.interval, waits=True, demo=options.demo))
        for host in options.hosts or (None,)
    ]
    return show(feeds, session)


def cluster_watch(options: Namespace, ssh: bool = True) -> ClusterWatch:
    """Return what asks the server of --prometheus. UsageError."""
    from gputop.sources.prometheus.client import headers_of
    from gputop.sources.prometheus.watch import INTERVAL, ClusterWatch

    interval = options.interval or INTERVAL
    return ClusterWatch(options.prometheus, headers_of(os.environ), interval, ssh)


def show(
    feeds: Sequence[Feed],
    session: Session,
    make: Callable[[Sequence[Feed], Session], GputopApp] | None = None,
    cluster: ClusterWatch | None = None,
) -> int:
    """Show machines until the user quits, and return the exit status. GputopError.

    The first frame is drawn before Textual is imported. `make` makes the app if it is not the usual
    one, and is called after that import; `cluster` is for the usual one.
    """
    splash = Splash(feeds, session.user)
    try:
        splash.start()
        from gputop.tui.app import GputopApp
        from gputop.tui.start import run

        app = make or partial(GputopApp, cluster=cluster)
        status, frame = run(feeds, session, splash.finish, make=app)
    finally:
        splash.finish(leave=True)
        close_all([feed.source for feed in feeds])
    if session.print_last and frame is not None and frame.problem is None:
        from gputop.export.table import table

        write(table(frame, session.processes.idle_after))
    return status
