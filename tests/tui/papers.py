"""Pages as they would be drawn, without an app."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame
from gputop.model.metrics.history import History
from gputop.sources.source import Moment
from gputop.tui.panes.lines import StyledLine, width_of
from gputop.tui.panes.paper import Paper
from gputop.tui.snapshot import Snapshot


def written(lines: Iterable[StyledLine], paper: Paper) -> str:
    """The text of a page; each line is as wide as the page."""
    text = []
    for line in lines:
        pieces = paper.cut(line)
        assert width_of(pieces) == paper.width
        text.append("".join(piece for piece, _ in pieces).rstrip())
    return "\n".join(text)


def shown_frames(*frames: Frame, moment: Moment = "now") -> Iterable[Snapshot]:
    """The frames as screens get them, with the history up to each."""
    history = History()
    for frame in frames:
        history.append(frame)
        yield Snapshot(frame, history, LogicalNames(frame), moment=moment)


def section(page: str, name: str) -> list[str]:
    """The lines under a heading."""
    lines = page.split("\n")
    begin = lines.index(f" {name}") + 1
    end = next((n for n in range(begin, len(lines)) if not lines[n].strip()), len(lines))
    return lines[begin:end]
