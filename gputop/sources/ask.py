"""Requests to a source, for commands: one at a time, with a timeout."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from gputop.errors import DriverError, SourceError, UsageError
from gputop.model.machine.environment import CudaContext
from gputop.model.machine.frame import Frame
from gputop.protocol.messages import AnsweredRequest, Context, Reply
from gputop.sources.source import Source

TIMEOUT = 5.0
"""Seconds that a driver may take to wake up, or an agent to give a short answer."""


def frames_of(source: Source) -> Iterator[Frame]:
    """Yield the frames of a source, without the replies."""
    return (message for message in source.frames() if isinstance(message, Frame))


def wait_for_frame(source: Source, accept: Callable[[Frame], bool], timeout: float) -> Frame:
    """Return the first frame that is accepted, or the first one after `timeout` seconds.

    SourceError if the frames end.
    """
    end = time.monotonic() + timeout
    for frame in frames_of(source):
        if accept(frame) or time.monotonic() >= end:
            return frame
    raise SourceError("the agent sends no more frames")


def answers(frame: Frame) -> bool:
    """Return whether the driver and all GPUs have answered, and reservations are read; a problem is
    an answer, too."""
    if frame.problem is not None:
        return frame.problem.code != "not_answering"
    return not frame.host.reservations_unknown and not any(gpu.is_overdue for gpu in frame.gpus)


def readable_frame(source: Source, accept: Callable[[Frame], bool]) -> Frame:
    """Return the first frame that is accepted, or the first one after TIMEOUT.

    DriverError, without waiting, if the driver cannot be read.
    """

    def accept_or_fail(frame: Frame) -> bool:
        return answers(frame) if frame.problem is not None else accept(frame)

    frame = wait_for_frame(source, accept_or_fail, TIMEOUT)
    if frame.problem is not None:
        raise DriverError(str(frame.problem))
    return frame


def is_whole(frame: Frame) -> bool:
    """Return whether all GPUs have answered, and the CUDA context of each process is read."""
    processes = [process for process in frame.processes if process.start_time is not None]
    return answers(frame) and all(process.cuda_context is not None for process in processes)


def context_of(source: Source, pid: int) -> CudaContext:
    """Return the CUDA context of a process. SourceError, UsageError if there is none."""
    context = ask(source, Context(pid), TIMEOUT).context
    if context is None:
        raise UsageError(f"there is no process {pid} here, or it has ended")
    return context


def ask(source: Source, request: AnsweredRequest, timeout: float) -> Reply:
    """Send a request and return its Reply once it is done, or the last one after `timeout` seconds.
    A request without an id gets one.

    SourceError if there is no answer, UsageError if there can be none.
    """
    request = replace(request, id=request.id or uuid.uuid4().hex)
    try:
        unsent = source.request(request)
    except UnicodeEncodeError as error:  # a path or a value of this command's own arguments
        raise UsageError(f"{ascii(str(error.object))[:200]} is not text in UTF-8") from None
    if unsent is not None:
        raise SourceError(unsent.error or "it was not sent")
    end = time.monotonic() + timeout
    last: Reply | None = None
    for message in source.frames():
        if isinstance(message, Reply) and message.request == request.id:
            last = message
        over = time.monotonic() >= end
        if last is not None and last.error is not None:
            raise (UsageError if last.invalid else SourceError)(last.error)
        if last is not None and (last.done or over):
            return last
        if over:
            raise SourceError("the agent does not answer the request: try again")
    raise SourceError("the agent sends no more frames")
