"""The keys that choose what the process table shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from gputop.model.process_metrics import PROCESS
from gputop.model.text import printable
from gputop.settings import Session, keep_settings
from gputop.tui.inquiry import Inquiry
from gputop.tui.screens.asking import AskingScreen
from gputop.tui.screens.columns import ColumnsScreen
from gputop.tui.widgets.processes import ProcessTable

_GROUP = Binding.Group("Processes")


class ViewScreen(AskingScreen):
    """A screen with a process table, and perhaps GPUs to choose from."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "user", "User", tooltip="Round: all processes, mine, a row a user",
                id="view.user", key_display="u", group=_GROUP),
        Binding("t", "tree", "Tree", tooltip="Fold processes under their parents; Enter opens",
                id="view.tree", key_display="t", group=_GROUP),
        Binding("space", "tag", "Tag", tooltip="Tag the process, or all of the group",
                id="view.tag", show=False, group=_GROUP),
        Binding("z", "finished", "Ended", tooltip="Processes that have ended, or without them",
                id="view.finished", show=False, group=_GROUP),
        Binding("C", "columns", "Columns", tooltip="Choose columns and their order, and keep them",
                id="view.columns", show=False, group=_GROUP),
    ]  # fmt: skip

    def __init__(self, inquiry: Inquiry, settings: Session) -> None:
        super().__init__(inquiry)
        self.settings = settings

    def action_user(self) -> None:
        """Round: all, mine, by user."""
        self.query_one(ProcessTable).go_round()

    def action_tree(self) -> None:
        """Folded under the parents, or not."""
        self.query_one(ProcessTable).toggle_tree()

    def action_tag(self) -> None:
        """The process under the cursor."""
        self.query_one(ProcessTable).tag()

    def action_finished(self) -> None:
        """With those that have ended, or without."""
        self.query_one(ProcessTable).toggle_finished()

    def action_columns(self) -> None:
        """Choose them in a dialog."""
        shown = self.query_one(ProcessTable).chosen_columns or tuple(PROCESS)
        self.app.push_screen(ColumnsScreen(shown), self._chosen)

    def _chosen(self, columns: tuple[str, ...] | None) -> None:
        if columns is not None:
            self.query_one(ProcessTable).show_columns(columns)
            self.keep({"processes.columns": columns})

    def keep(self, chosen: Mapping[str, Any]) -> None:
        """Write what was chosen down for the next time."""
        if self.settings.path is None:
            return
        try:
            keep_settings(self.settings.path, chosen)
        except (OSError, ValueError) as error:
            words = printable(f"not kept: {error}", 120)
            self.query_one(ProcessTable).say_above(words)

    def only_gpu(self, key: str, instance: tuple[int, int] | None = None) -> None:
        """The processes of a GPU or MIG device alone, and the cursor among them."""
        table = self.query_one(ProcessTable)
        table.only_gpu(key, instance)
        self.set_focus(table)
