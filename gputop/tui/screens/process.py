"""One process, whole: what it is, where it runs, and what it calls its GPUs, with the reasoning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gputop.model import query
from gputop.model.frame import Frame, ProcessKey
from gputop.model.frameworks import FRAMEWORKS, MAIN, device_name
from gputop.model.logical_names import LogicalNames
from gputop.model.metrics import PROCESS, ProcessRow
from gputop.model.process_mapping import ProcessMapping
from gputop.model.text import GIB, printable
from gputop.tui.widgets.bars import KeyLine
from gputop.tui.widgets.page import Line, Page

_OF_PROCESS = (("pid", "PID"), ("user", "user"), ("state", "state"), ("cpu", "CPU %"),
               ("rss", "RSS"))  # fmt: skip
_OF_GPU = ("gpu_memory", "sm_utilization", "type")
_LABELS = {one.id: one.label for one in FRAMEWORKS}
_CONTEXT = GIB
"""Bytes under which a process that has more elsewhere does not compute on a GPU."""
_MARKS = {"error": "alarm", "warning": "notice", "info": "quiet"}


class ProcessScreen(Screen[None]):
    """The page of a process; it stays, with its last figures, when the process ends."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,backspace", "leave", "Back", tooltip="To the table",
                id="process.leave"),
    ]  # fmt: skip

    keys: tuple[tuple[str, str], ...] = (("Esc", "back"), ("q", "quit"))

    def __init__(self, key: ProcessKey) -> None:
        super().__init__()
        self._key = key
        self._rows: list[ProcessRow] = []
        self._mapping: ProcessMapping | None = None
        self._frame: Frame | None = None
        self._ended = False

    def compose(self) -> ComposeResult:
        """The page, and the keys."""
        yield Page(id="page")
        yield KeyLine(self.keys, id="keys")

    def on_mount(self) -> None:
        """A frame may have come before the page was made."""
        self._show()

    def on_resize(self) -> None:
        """Other line ends."""
        self._show()

    def action_leave(self) -> None:
        """Back to the table."""
        self.dismiss(None)

    def show_frame(self, frame: Frame, names: LogicalNames) -> None:
        """Another frame."""
        rows = [row for row in query.rows(frame, names) if frame.key(row.process) == self._key]
        self._frame, self._ended = frame, not rows
        if rows:
            self._rows, self._mapping = rows, names.mapping(rows[0].process)
        if self.is_mounted:
            self._show()

    def _show(self) -> None:
        if self._rows:
            self.query_one(Page).show_lines(list(self._lines(self.query_one(Page))))

    def _lines(self, page: Page) -> Iterator[Line]:
        process = self._rows[0].process
        yield []
        yield from page.wrapped(process.command or "not in this /proc", 1, "heading")
        if self._ended:
            yield [(" it has ended, or left the GPUs; these are its last figures", "alarm")]
        facts = [f"{label} {PROCESS[id_].text(self._rows[0])}" for id_, label in _OF_PROCESS]
        if process.start_time is not None:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(process.start_time))
            facts.append(f"started {since}, {PROCESS['age'].text(self._rows[0])} ago")
        if process.parent is not None:
            facts.append(f"parent {process.parent}")
        yield from page.wrapped(
            " · ".join(facts) if page.glyphs.name != "ascii" else ", ".join(facts), 1
        )
        yield from _title("On the GPUs")
        for row in self._rows:
            yield _gpu_line(row, self._rows)
        yield from _title("What it calls them")
        yield from self._named(page)

    def _named(self, page: Page) -> Iterator[Line]:
        mapping, around = self._mapping, self._rows[0].process.surroundings
        if mapping is None or around is None:
            yield from page.wrapped("Its variables have not been looked at.", 2, "quiet")
            return
        for sentence in mapping.reasoning():
            yield from page.wrapped(sentence)
        if around.frameworks:
            loaded = ", ".join(_LABELS[one] for one in around.frameworks if one in _LABELS)
            yield from page.wrapped(f"It has loaded {loaded}.")
        yield []
        yield from _devices(mapping, page.glyphs.to)
        for one in mapping.advice:
            for first, line in enumerate(page.wrapped(one.message, 4)):
                mark = f"  {page.glyphs.warning} " if not first else "    "
                yield [(mark, _MARKS[one.severity]), *line[1:]]
        yield from _title("Variables that decide")
        for variable, value in mapping.environ.variables.items():
            yield from page.wrapped(f"{variable}={printable(value, 400)}")
        if not mapping.environ.variables:
            yield from page.wrapped("none", 2, "quiet")


def _title(text: str) -> Iterator[Line]:
    yield []
    yield [(f" {text}", "heading")]


def _devices(mapping: ProcessMapping, to: str) -> Iterator[Line]:
    used = {place for place, _ in mapping.evidence.names}
    for k, device in enumerate(mapping.mapping.visible or ()):
        names = "".join(f"{device_name(one, k):<16}" for one in MAIN)
        line: Line = [(f"  {names}", "heading"), (f"{to}  {device.label}", "text")]
        yield [*line, ("  in use", "good")] if device.place in used else line


def _gpu_line(row: ProcessRow, rows: list[ProcessRow]) -> Line:
    facts = "  ".join(f"{PROCESS[id_].label} {PROCESS[id_].text(row)}" for id_ in _OF_GPU)
    place, name = PROCESS["gpu"].text(row), row.cuda or ""
    held = max(one.process.gpu_memory or 0 for one in rows)
    own = row.process.gpu_memory
    small = own is not None and own < _CONTEXT <= held
    note = ("  a context only: ranks open one on cuda:0 too", "quiet") if small else ("", "text")
    return [(f"  GPU {place:<5}", "text"), (f"{name:<9}", "key"), (facts, "text"), note]
