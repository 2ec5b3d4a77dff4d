"""`gputop --line`: machines in one line, for status bars.

A format is text with fields in braces, `{free}/{gpus} free`; `{{` and `}}` are braces. A field is
only a name. An unknown value is `-`; values of several machines are added up.

A status bar may take parts of a value for styles, markup or quotes. So values have only letters,
digits and a few signs; any other character in a machine's names becomes `?`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gputop.errors import UsageError
from gputop.model.health.findings import in_alarm, worst_of
from gputop.model.health.free import count_of_free, is_free
from gputop.model.machine import summary
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import MISSING, percent, printable, ranges, size

DEFAULT = "{free}/{gpus} free {util}% {memory_used}/{memory_total} {hottest}C {problem}"
DEFAULT_HOSTS = f"{{hosts}} hosts {DEFAULT}"
"""The format for several machines."""
_PART = re.compile(r"(\{\{|\}\}|\{[^{}]*\}|[{}])")
_UNSAFE = re.compile(r"[^\w .,:;@+/()-]")
_MAX_FIELD_CHARS = 200
"""Characters printed of a value, and of a faulty format."""


class LineView(NamedTuple):
    """The machines of a line."""

    frames: Sequence[Frame]
    """One frame of each machine that answered."""
    asked: int | None = 1
    """How many were asked; None if that is not known."""


class LineField(NamedTuple):
    """What replaces `{name}`."""

    help: str
    read: Callable[[LineView], str | None]
    """Returns None if the value is not known."""


def format_line(text: str) -> Callable[[LineView], str]:
    """Return a function that makes the line of a format, without a line break. UsageError."""
    parts = [_part(part) for part in _PART.split(text) if part]

    def line(view: LineView) -> str:
        return "".join(_value(part, view) for part in parts).rstrip()

    return line


def _part(part: str) -> str | LineField:
    if part in ("{{", "}}"):
        return part[0]
    if part in ("{", "}"):
        raise UsageError(f"--format has a {part} by itself: write {part * 2} for a brace")
    if not part.startswith("{"):
        return part
    name = part[1:-1]
    if name not in FIELDS:
        shown = printable(part, _MAX_FIELD_CHARS)
        raise UsageError(f"--format has no field {shown}: choose from {', '.join(FIELDS)}")
    return FIELDS[name]


def _value(part: str | LineField, view: LineView) -> str:
    if isinstance(part, str):
        return part
    value = part.read(view)
    return MISSING if value is None else _UNSAFE.sub("?", printable(value, _MAX_FIELD_CHARS))


def _gpus(view: LineView) -> list[Gpu]:
    """Return the GPUs that answer; the values of others are old."""
    return [gpu for frame in view.frames for gpu in frame.gpus if gpu.state == "answers"]


def _readable(view: LineView) -> list[Frame]:
    return [frame for frame in view.frames if frame.problem is None]


def _count(view: LineView, count: Callable[[Frame], int | None]) -> str | None:
    """Return the sum over the machines; None if no machine knows its count."""
    counts = [number for frame in _readable(view) if (number := count(frame)) is not None]
    return str(sum(counts)) if counts else None


def _host(view: LineView) -> str | None:
    names = [frame.host.requested_name or frame.host.name for frame in view.frames]
    return ",".join(names) or None


def _hosts(view: LineView) -> str | None:
    seen = len(_readable(view))
    if view.asked is None:
        return None
    return str(seen) if seen == view.asked else f"{seen}/{view.asked}"


def _free_gpus(view: LineView) -> str | None:
    """Return `2,6`, for several machines `node1:2,6 node2:0`; None if it cannot be known."""
    if _count(view, count_of_free) is None:
        return None
    parts = []
    for frame in view.frames:
        free = ranges(gpu.index for gpu in frame.gpus if is_free(frame, gpu))
        name = f"{frame.host.requested_name or frame.host.name}:" if view.asked != 1 else ""
        parts += [f"{name}{free}"] if free else []
    return " ".join(parts) or "none"


def _of_gpus(
    read: Callable[[Gpu], float | None], show: Callable[[list[float]], str]
) -> Callable[[LineView], str | None]:
    """Return a function that shows the known values of all GPUs together."""

    def value(view: LineView) -> str | None:
        values = [number for gpu in _gpus(view) if (number := read(gpu)) is not None]
        return show(values) if values else None

    return value


def _of_memory(show: Callable[[int, int], str]) -> Callable[[LineView], str | None]:
    """Return a function that shows the bytes used and the total, of GPUs that report both."""

    def value(view: LineView) -> str | None:
        pairs = [
            (gpu.memory_used, gpu.memory_total)
            for gpu in _gpus(view)
            if gpu.memory_used is not None and gpu.memory_total
        ]
        used, total = sum(used for used, _ in pairs), sum(total for _, total in pairs)
        return show(used, total) if pairs else None

    return value


def _names(view: LineView) -> list[str]:
    seen = summary.users_of(process for frame in view.frames for process in frame.processes)
    reported = (user for frame in view.frames for user in summary.users(frame))
    return list(dict.fromkeys([*seen, *reported]))


def _sees_all(view: LineView) -> bool:
    """Return whether all users of all GPUs are known."""
    gpus = [(frame, gpu) for frame in view.frames for gpu in frame.gpus]
    return bool(gpus) and all(summary.tells_users(*each) for each in gpus)


def _users(view: LineView) -> str | None:
    count = sum(not name.startswith("(") for name in _names(view))
    return str(count) if _sees_all(view) else (f"{count}+" if count else None)


def _who(view: LineView) -> str | None:
    names = _names(view)
    return " ".join(names) or ("nobody" if _sees_all(view) else None)


def _problems(view: LineView) -> Iterator[str]:
    for frame in view.frames:
        name = f"{frame.host.requested_name or frame.host.name}: " if view.asked != 1 else ""
        if frame.problem is not None:
            yield f"{name}{frame.problem.text}"
        elif (worst := worst_of(frame)) is not None:
            yield f"{name}{worst.text}"


FIELDS: dict[str, LineField] = {
    "free": LineField("free GPUs", lambda view: _count(view, count_of_free)),
    "gpus": LineField("all GPUs", lambda view: _count(view, lambda frame: len(frame.gpus))),
    "free_gpus": LineField("which are free: `2,6`, of several hosts `node1:2,6`", _free_gpus),
    "util": LineField(
        "utilization in percent, the mean of all GPUs",
        _of_gpus(lambda gpu: gpu.utilization, lambda values: percent(sum(values) / len(values))),
    ),
    "memory": LineField(
        "GPU memory in use, in percent", _of_memory(lambda used, total: percent(used / total))
    ),
    "memory_used": LineField(
        "GPU memory in use, of all GPUs together", _of_memory(lambda used, _: size(used))
    ),
    "memory_total": LineField("all GPU memory", _of_memory(lambda _, total: size(total))),
    "power": LineField(
        "watts, of all GPUs together",
        _of_gpus(lambda gpu: gpu.power, lambda values: f"{sum(values):.0f}"),
    ),
    "hottest": LineField(
        "degrees Celsius of the hottest GPU",
        _of_gpus(lambda gpu: gpu.temperature, lambda values: f"{max(values):.0f}"),
    ),
    "users": LineField("users with processes on GPUs; `3+` where not all are seen", _users),
    "who": LineField("their names, those with most memory first", _who),
    "alarms": LineField(
        "GPUs that need attention",
        lambda view: _count(view, lambda frame: len(in_alarm(frame))),
    ),
    "problem": LineField(
        "what is wrong first of all, as `XID 79 GPU 6`; empty where all is well",
        lambda view: next(_problems(view), ""),
    ),
    "host": LineField("the name of the machine, or the names", _host),
    "hosts": LineField("how many machines answer; `2/3` where not all do", _hosts),
}
"""The fields by name, in the order of the manual."""
