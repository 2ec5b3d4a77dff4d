"""The panes of the main screen: which are shown, and how they share the lines."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.settings import PANES, Pane, Session
from gputop.tui.inquiry import Inquiry
from gputop.tui.screens.pages import PagesScreen
from gputop.tui.widgets.gpus import GpuPane
from gputop.tui.widgets.mappingpane import MappingPane
from gputop.tui.widgets.processes import ProcessTable

_SHORT = 34
"""Lines under which the mapping of many GPUs is one line until it is asked for."""
_TINY = 14
"""Lines under which it is not shown until then."""
_WANTED_PROCESSES = 8
_NAMES: dict[Pane, str] = {"gpus": "GPUs", "processes": "Processes", "mapping": "Mapping"}


class PanesScreen(PagesScreen):
    """A screen with panes that can be hidden. A subclass gives `_show_panes`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *PagesScreen.BINDINGS,
        *(
            Binding(str(number), f"pane('{pane}')", f"{_NAMES[pane]} pane",
                    tooltip=f"Show the {_NAMES[pane]} pane, or hide it", id=f"panes.{pane}",
                    show=False, group=Binding.Group("Screen"))
            for number, pane in enumerate(PANES, 1)
        ),
    ]  # fmt: skip

    def __init__(self, inquiry: Inquiry, settings: Session) -> None:
        super().__init__(inquiry, settings)
        self._lines = 1  # of GPUs and their parts
        self._mapping_open = False
        self._panes: tuple[Pane, ...] = settings.panes or PANES

    def action_pane(self, pane: Pane) -> None:
        """Show it, or hide it; the last one stays."""
        panes = tuple(one for one in PANES if (one in self._panes) != (one == pane))
        if not panes:
            return
        self._panes = panes
        self._lay_out()
        self._show_panes()
        self.say_unsaid()
        if self.focused is None or not self.focused.display:
            self.set_focus(self.query_one(ProcessTable if self._has("processes") else GpuPane))
        self.keep({"panes": panes})

    def _has(self, pane: Pane) -> bool:
        return pane in self._panes

    def _show_panes(self) -> None:
        raise NotImplementedError

    @property
    def unsaid(self) -> str:
        """Nothing of a pane that is hidden."""
        return super().unsaid if self._has("gpus") else ""

    @property
    def _count(self) -> int:
        return len(self._frame.gpus) if self._frame else 1

    @property
    def _needed(self) -> int:
        """Lines for all panes: two at the ends, GPUs with labels, processes, mapping."""
        return 2 + (self._lines + 1) + (_WANTED_PROCESSES + 2) + (min(self._count, 8) + 3)

    @property
    def _short(self) -> bool:
        return self.size.height < min(_SHORT, self._needed)

    def _lay_out(self) -> None:
        """Share the lines: GPUs first, but never so many that no process is left to see."""
        height, count, short = self.size.height, self._count, self._short
        pane, mapping = self.query_one(GpuPane), self.query_one(MappingPane)
        pane.head_lines = 0 if short else 1
        closed = short and not self._mapping_open
        mapping.set_class(closed, "-line")
        mapping.display = self._has("mapping") and (not closed or height >= _TINY)
        spare = min(6, max(0, height - self._needed) // 2)  # for what is to be said of it
        mapping_lines = min(count, 8) + 3 + spare if not closed else int(height >= _TINY)
        if not mapping.display:
            mapping_lines = 0
        if short and not closed:
            mapping_lines = min(mapping_lines, max(4, height // 3))
        self.query_one("#mapping-result").styles.height = max(1, mapping_lines - 1)
        table = self.query_one(ProcessTable)
        pane.display, table.display = self._has("gpus"), self._has("processes")
        processes = min(_WANTED_PROCESSES, max(1, height // 3)) + 2 if table.display else 0
        room = max(1, height - 2 - mapping_lines - processes)
        pane.styles.height = min(self._lines + pane.head_lines, room) if table.display else room
        if self._frame is not None and mapping.display:
            mapping.show_answer()
