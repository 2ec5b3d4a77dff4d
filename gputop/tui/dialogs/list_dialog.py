"""Dialogs with a list: a column to sort by, a signal, the columns or the panes to show."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList

from gputop.model.machine.signals import signal_name, signal_number
from gputop.model.metrics.metric import Metric
from gputop.model.metrics.process import COLUMNS, SOMETIMES, USUAL_COLUMNS
from gputop.settings import PANES, Pane
from gputop.tui.keys import following
from gputop.tui.panes.editor import Editor
from gputop.tui.panes.heading import KeyLine, key_words
from gputop.tui.panes.lines import MOVES, Lines
from gputop.tui.terminal.key_queue import keyed

R = TypeVar("R")
PANE_NAMES: dict[str, str] = {
    "gpus": "GPUs",
    "processes": "Processes",
    "history": "Utilization of the last minutes, if there is room",
    "mapping": "Mapping of CUDA_VISIBLE_DEVICES",
}
"""What a pane is called."""


class Options(OptionList):
    """A list in which a click selects and a double click chooses, as in a table."""

    def on_click(self, event: Click) -> None:
        event.prevent_default()
        index = event.style.meta.get("option")
        if index is not None and event.chain == 1:
            self.highlighted = index
        elif index is not None and event.chain == 2:
            self.action_select()


class ListDialog(ModalScreen[R | None]):
    """A list with a cursor over the keys that work on it; Esc answers None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Cancel", id="list.leave", key_display="Esc"),
        *MOVES[:2],
        Binding("question_mark,f1", "app.help", "Help", id="list.help", show=False),
    ]
    ENTER = "choose"
    """What Enter does, in a word."""

    def __init__(self, title: str, start: int = 0) -> None:
        """`start` is the row of the cursor at first."""
        super().__init__()
        self._title, self._start = title, start

    def lines(self) -> Iterable[str]:
        """Return a line for each row."""
        raise NotImplementedError

    def answer(self, index: int) -> R:
        """Return the answer that Enter gives on a row."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield Options(markup=False, id="list")
        yield from self.keys()

    def keys(self) -> Iterable[KeyLine]:
        """Make the line of keys: those of this dialog, then those of every one."""
        own: list[BindingType] = vars(type(self)).get("BINDINGS", [])
        words = [*key_words(keyed(self.app, own)), ("Enter", self.ENTER)]
        words += key_words(keyed(self.app, ListDialog.BINDINGS))
        yield KeyLine(words, (self.ENTER, "cancel"))

    def on_mount(self) -> None:
        self.query_one("#list").border_title = Content(self._title)
        self.draw(self._start)

    @property
    def options(self) -> OptionList:
        return self.query_one(OptionList)

    def draw(self, index: int | None) -> None:
        """Draw the rows, with the cursor on the one at `index`."""
        self.options.set_options(map(Content, self.lines()))
        self.options.highlighted = index

    def on_option_list_option_selected(self) -> None:
        self.choose()

    def choose(self) -> None:
        """Answer with the row under the cursor, if there is one."""
        if self.options.highlighted is not None:
            self.dismiss(self.answer(self.options.highlighted))

    def action_move(self, step: int) -> None:
        if step > 0:
            self.options.action_cursor_down()
        else:
            self.options.action_cursor_up()


_LABEL = max(len(metric.label) for metric in COLUMNS.values()) + 2
_SHOWN, _AUTO, _HIDDEN = "[x]", "[auto]", "[ ]"
"""The marks of what is shown, what is shown while it tells something, and what is not."""


def _described(metric: Metric[Any]) -> str:
    words, _, _ = metric.help.partition(";")  # the part that there is room for
    return f"{metric.label:<{_LABEL}}{words}"


class SortDialog(ListDialog[str]):
    """Asks for the id of the column to sort by; the one of the order today has its direction."""

    ENTER = "sort"

    def __init__(self, current: str, descending: bool) -> None:
        super().__init__("Sort by (the same again reverses)", list(COLUMNS).index(current))
        glyphs = Lines.glyphs
        self._today = current, glyphs.descending if descending else glyphs.ascending

    def lines(self) -> Iterable[str]:
        current, sign = self._today
        for id_, metric in COLUMNS.items():
            yield f"{sign if id_ == current else ' '} {_described(metric)}"

    def answer(self, index: int) -> str:
        return list(COLUMNS)[index]


class ShownDialog(ListDialog[R]):
    """Asks which names of a list to show, by their marks. A subclass gives a key for that."""

    def __init__(
        self,
        title: str,
        marks: Mapping[str, str],
        words: Mapping[str, str],
        sometimes: Collection[str] = (),
    ) -> None:
        """`words` stand for the names in the list; those in `sometimes` can also be shown only
        while they tell something."""
        super().__init__(title)
        self._marks, self._words, self._sometimes = dict(marks), words, sometimes

    def lines(self) -> Iterable[str]:
        wide = max(map(len, self._marks.values()))
        return (f"{mark:<{wide}} {self._words[name]}" for name, mark in self._marks.items())

    def action_show(self) -> None:
        """Give the name under the cursor the next mark, unless it is the last that is shown."""
        name = [*self._marks][self._index]
        choices = (_SHOWN, _HIDDEN, _AUTO) if name in self._sometimes else (_SHOWN, _HIDDEN)
        marks = {**self._marks, name: following(self._marks[name], choices)}
        if any(mark != _HIDDEN for mark in marks.values()):
            self._marks = marks
        self.draw(self._index)

    @property
    def _index(self) -> int:
        return self.options.highlighted or 0


class ColumnsDialog(ShownDialog[tuple[str, ...]]):
    """Asks for the columns to show and their order; the last column is always the command."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "show", "Show, hide", id="columns.toggle", key_display="Space",
                priority=True),
        Binding("left_square_bracket,shift+up", "shift(-1)", "Up", id="columns.sooner",
                key_display="["),
        Binding("right_square_bracket,shift+down", "shift(1)", "Down", id="columns.later",
                key_display="]"),
    ]  # fmt: skip
    ENTER = "save"

    def __init__(self, chosen: Sequence[str]) -> None:
        """`chosen`: as the settings have them, with `?` after a name that is shown while it tells
        something."""
        marks = {
            name.removesuffix("?"): _AUTO if name.endswith("?") else _SHOWN
            for name in chosen or USUAL_COLUMNS
        }
        marks |= {id_: _HIDDEN for id_ in COLUMNS if id_ not in marks}
        del marks["command"]
        title = "Columns; [auto]: if it has something to show, and fits"
        words = {id_: _described(metric) for id_, metric in COLUMNS.items()}
        super().__init__(title, marks, words, SOMETIMES)

    def answer(self, index: int) -> tuple[str, ...]:
        """Return the columns as the settings have them; none if they are the usual ones."""
        ends = {_SHOWN: "", _AUTO: "?"}
        shown = [f"{name}{ends[mark]}" for name, mark in self._marks.items() if mark != _HIDDEN]
        chosen = (*shown, "command")
        return () if chosen == USUAL_COLUMNS else chosen

    def action_shift(self, step: int) -> None:
        marks = [*self._marks.items()]
        index = min(max(0, self._index + step), len(marks) - 1)
        marks.insert(index, marks.pop(self._index))
        self._marks = dict(marks)
        self.draw(index)


class PanesDialog(ShownDialog[tuple[tuple[Pane, ...], bool]]):
    """Asks for the panes to show, at least one, and whether to save the choice."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "show", "Show, hide", id="panes.toggle", key_display="Space",
                priority=True),
        Binding("w", "keep", "Save", id="panes.keep"),
    ]  # fmt: skip
    ENTER = "for now"

    def __init__(self, shown: Sequence[Pane]) -> None:
        marks: dict[str, str] = {pane: _SHOWN if pane in shown else _HIDDEN for pane in PANES}
        super().__init__("Panes", marks, PANE_NAMES)

    def answer(self, index: int, keep: bool = False) -> tuple[tuple[Pane, ...], bool]:
        return tuple(pane for pane in PANES if self._marks[pane] == _SHOWN), keep

    def action_keep(self) -> None:
        self.dismiss(self.answer(self._index, keep=True))


class SignalNameDialog(ListDialog[int]):
    """Asks for a signal by name or number, over a list of all."""

    AUTO_FOCUS = "#signal-name"

    def __init__(self, current: int) -> None:
        self._numbers = sorted(map(int, signal.valid_signals()))
        super().__init__("Which signal? A name or a number", self._numbers.index(current))

    def compose(self) -> ComposeResult:
        with Vertical(id="list"):
            yield Editor("", max_length=16, id="signal-name")
            options = Options(markup=False)
            options.can_focus = False
            yield options
        yield from self.keys()

    def lines(self) -> Iterable[str]:
        return (f"{number:>3}  {signal_name(number)}" for number in self._numbers)

    def answer(self, index: int) -> int:
        return self._numbers[index]

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value.strip():
            self.options.highlighted = self._search(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.choose()

    def _search(self, text: str) -> int | None:
        prefix = text.strip().upper().removeprefix("SIG")
        names = {number: signal_name(number).removeprefix("SIG") for number in self._numbers}
        exact = signal_number(prefix)
        starts = (number for number in names if names[number].startswith(prefix))
        number = exact if exact in names else next(starts, None)
        return None if number is None else self._numbers.index(number)
