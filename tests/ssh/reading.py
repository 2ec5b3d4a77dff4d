"""Reading a source of another machine, for tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.sources.ask import frames_of
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.source import SshSource


@contextmanager
def source(host: HostName, interval: float | None = 0.5) -> Iterator[SshSource]:
    """A source as a screen has it, closed at the end."""
    made = SshSource(host, interval, waits=True)
    try:
        yield made
    finally:
        made.close()


def first_frame(of: SshSource) -> Frame:
    """The next frame that comes. SourceError."""
    return next(frames_of(of))


def why_not(host: HostName) -> SourceError:
    """Why there is no frame of a machine."""
    with source(host) as opened:
        return ending(opened)


def ending(of: SshSource, frames: int = 20) -> SourceError:
    """What ends the frames of a source, which are no more than that."""
    try:
        for _ in islice(of.frames(), frames):
            pass
    except SourceError as error:
        return error
    raise AssertionError("frames did not end, or without a word")


def in_thread(of: SshSource, frames: int = 20) -> tuple[threading.Thread, list[SourceError]]:
    """Read a source to its end in a thread; what ended it is in the list then."""
    errors: list[SourceError] = []
    thread = threading.Thread(target=lambda: errors.append(ending(of, frames)), daemon=True)
    thread.start()
    return thread, errors


def client_of(host: HostName) -> int:
    """The ssh that has the stream of a host."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
    return next(int(pid) for pid in children if host.target.encode() in words[pid])
