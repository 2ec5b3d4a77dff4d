"""Chooses the source of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.sources.source import Source
    from gputop.sources.ssh.names import HostName


BRIEF, NO_LINKS, NO_DRIVER = "--brief", "--no-links", "--no-driver"
"""Less for an agent to ask the driver: only values of GPUs that tables and findings need
(`model.machine.sections`), not how the GPUs are connected, or nothing: it answers requests."""
TABLE = (BRIEF, NO_LINKS)


def open_source(
    host: HostName | None,
    interval: float | None,
    waits: bool = False,
    demo: bool = False,
    less: tuple[str, ...] = (),
    timeout: float | None = None,
) -> Source:
    """Return the source of a host, or of this machine if it is None.

    With `interval` None it gives one frame and ends. For `waits` see LocalSource; with `demo` the
    machine is an invented one. `less`: any of those above. `timeout` is as for SshSource.
    Each source is imported here, only if it is needed.
    """
    if demo:
        from gputop.sources.demo.source import DemoSource

        return DemoSource(interval, host and host.requested_name, waits)
    if host is not None:
        from gputop.sources.ssh.source import SshSource

        return SshSource(host, interval, waits, less, timeout)
    from gputop.sources.local import LocalSource

    return LocalSource(interval, waits, less)
